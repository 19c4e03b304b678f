//! A child's end of the pipe to its parent.
//! Touches: standard output, which from then on is standard error to everybody else.

use super::row::{Event, Skipped};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Where events go.
pub(super) struct Teller(File);

impl Teller {
    /// Takes standard output for events: a driver that prints must not be read as an answer.
    pub(super) fn take_stdout() -> io::Result<Teller> {
        let events: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
        nix::unistd::dup2_stdout(io::stderr().as_fd())?;
        Ok(Teller(File::from(events)))
    }

    /// Tells an event, at once: the next step may be the last.
    pub(super) fn tell(&mut self, event: &Event) {
        let Ok(mut line) = serde_json::to_string(event) else {
            return;
        };
        line.push('\n');
        // A parent that has stopped listening has given this child up.
        let _ = self.0.write_all(line.as_bytes());
    }

    /// Tells what is done next.
    pub(super) fn step(&mut self, what: &str) {
        self.tell(&Event::Step(what.to_owned()));
    }

    /// Tells what is not asked.
    pub(super) fn skip(&mut self, api: &str, route: &str, why: String) {
        self.tell(&Event::Skipped(Skipped {
            api: api.to_owned(),
            route: route.to_owned(),
            why,
        }));
    }
}
