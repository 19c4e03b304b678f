//! Sends events from a child to its parent, through a pipe.
//! Touches: standard output. All other code's standard output goes to standard error from then on.

use super::row::{Event, Skipped};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

/// The destination of events.
pub(crate) struct Teller(File);

impl Teller {
    /// Takes over standard output for events, so that text a driver prints is not read as an
    /// answer.
    pub(crate) fn take_stdout() -> io::Result<Teller> {
        let events: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
        nix::unistd::dup2_stdout(io::stderr().as_fd())?;
        Ok(Teller(File::from(events)))
    }

    /// Sends an event immediately: the next step may crash.
    pub(crate) fn tell(&mut self, event: &Event) {
        let Ok(mut line) = serde_json::to_string(event) else {
            return;
        };
        line.push('\n');
        // A parent that no longer reads has given this child up, so a failed write is ignored.
        let _ = self.0.write_all(line.as_bytes());
    }

    /// Sends the next step.
    pub(crate) fn step(&mut self, what: &str) {
        self.tell(&Event::Step(what.to_owned()));
    }

    /// Sends a query that is not made.
    pub(crate) fn skip(&mut self, api: &str, route: &str, why: String) {
        self.tell(&Event::Skipped(Skipped {
            api: api.to_owned(),
            route: route.to_owned(),
            why,
        }));
    }
}
