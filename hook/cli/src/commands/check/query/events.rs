//! Sends events from a child to its parent, through a pipe.
//! Touches: standard output. After that, text that other code writes to standard output goes to
//! standard error.

use super::row::{Event, Skipped};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

/// The destination of events.
pub(crate) struct Teller(File);

impl Teller {
    /// Reserves standard output for events, so that text printed by a driver is not read as an
    /// answer.
    pub(crate) fn take_stdout() -> io::Result<Teller> {
        let events: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
        nix::unistd::dup2_stdout(io::stderr().as_fd())?;
        Ok(Teller(File::from(events)))
    }

    /// Sends an event immediately, because the next step may crash.
    pub(crate) fn tell(&mut self, event: &Event) {
        let Ok(mut line) = serde_json::to_string(event) else {
            return;
        };
        line.push('\n');
        // A parent that no longer reads has given up on this child, so a failed write is ignored.
        let _ = self.0.write_all(line.as_bytes());
    }

    /// Announces the next step.
    pub(crate) fn step(&mut self, what: &str) {
        self.tell(&Event::Step(what.to_owned()));
    }

    /// Reports that a query is not made.
    pub(crate) fn skip(&mut self, api: &str, route: &str, why: String) {
        self.tell(&Event::Skipped(Skipped {
            api: api.to_owned(),
            route: route.to_owned(),
            why,
        }));
    }
}
