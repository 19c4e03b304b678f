//! Reads from the kernel which files were closed.
//! Touches: a fanotify group, and the files of its events, which the kernel opens.
//! Law: a file that cannot be opened costs its own event only.

use nix::errno::Errno;
use nix::sys::fanotify::{Fanotify, FanotifyEvent, MaskFlags};
use std::fs::File;
use std::time::{Duration, Instant};

/// The events of one read.
#[derive(Default)]
pub(super) struct Closes {
    /// The files that were closed.
    pub(super) files: Vec<File>,
    /// Whether there were more events than the kernel's queue holds.
    pub(super) missed: bool,
}

/// The meaning of a failed read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The file of the first event cannot be opened. The kernel has discarded that event.
    File,
    /// No descriptor or no memory is left. The next read would lose an event again.
    Shortage,
    /// The group itself cannot be read.
    Group,
}

impl Failure {
    /// Classifies an error; None if there are no events.
    fn of(error: Errno) -> Option<Failure> {
        match error {
            Errno::EAGAIN | Errno::EINTR => None,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Some(Failure::Shortage),
            Errno::EBADF | Errno::EINVAL | Errno::EFAULT => Some(Failure::Group),
            // The kernel opens the file while the event is read, and returns the error of that: EACCES
            // from a server that trusts no root, ESTALE, ENOENT, or any error of a device.
            _ => Some(Failure::File),
        }
    }
}

/// Reads the events of a group, and skips those that cannot be read.
pub(super) struct Reader {
    /// The events that were skipped.
    skipped: u64,
    /// The count of skipped events at which the next message is printed: a program can close such files in a loop.
    report_at: u64,
    /// Those since the last event that could be read.
    in_a_row: u32,
    /// The end of the pause.
    until: Option<Instant>,
    tell: fn(&str),
}

/// The time for which no event is read if no descriptor is left.
const PAUSE: Duration = Duration::from_secs(1);

/// The most failed reads without a pause. Each should use up an event. If one does not, the daemon
/// must not spin.
const IN_A_ROW: u32 = 1000;

impl Reader {
    /// A reader that has skipped nothing. `tell` prints messages.
    pub(super) fn new(tell: fn(&str)) -> Reader {
        Reader {
            skipped: 0,
            report_at: 1,
            in_a_row: 0,
            until: None,
            tell,
        }
    }

    /// Returns the end of the pause; None if there is none.
    pub(super) fn pause(&self) -> Option<Instant> {
        self.until.filter(|until| *until > Instant::now())
    }

    /// Reads events without waiting. Returns None if there are none, and during a pause.
    ///
    /// # Errors
    /// When the group itself cannot be read.
    pub(super) fn read(&mut self, group: &Fanotify) -> Result<Option<Closes>, Errno> {
        if self.pause().is_some() {
            return Ok(None);
        }
        match group.read_events() {
            Ok(events) => {
                self.in_a_row = 0;
                return Ok(Some(Closes::of(&events)));
            }
            Err(error) => match Failure::of(error) {
                None => return Ok(None),
                Some(Failure::File) => self.skip(error, IN_A_ROW),
                Some(Failure::Shortage) => self.skip(error, 1),
                Some(Failure::Group) => return Err(error),
            },
        }
        Ok(Some(Closes::default()))
    }

    /// Skips an event. Pauses after so many in a row.
    fn skip(&mut self, error: Errno, pause_after: u32) {
        self.skipped = self.skipped.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.skipped >= self.report_at {
            self.report_at = self.skipped.saturating_mul(10);
            (self.tell)(&format!(
                "a file that was closed cannot be opened, and is skipped: {error} ({} so far)",
                self.skipped
            ));
        }
        if self.in_a_row >= pause_after {
            self.in_a_row = 0;
            self.until = Instant::now().checked_add(PAUSE);
        }
    }
}

impl Closes {
    fn of(events: &[FanotifyEvent]) -> Closes {
        let own = i32::try_from(std::process::id()).ok();
        // Closes by this daemon itself are ignored.
        let others = events.iter().filter(|event| Some(event.pid()) != own);
        let files = others.filter_map(|event| {
            let descriptor = event.fd()?.try_clone_to_owned().ok()?;
            Some(File::from(descriptor))
        });
        let overflown = MaskFlags::FAN_Q_OVERFLOW;
        Closes {
            files: files.collect(),
            missed: events.iter().any(|event| event.mask().contains(overflown)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_file_is_not_an_error_of_the_group() {
        for error in [Errno::EAGAIN, Errno::EINTR] {
            assert_eq!(Failure::of(error), None);
        }
        for error in [
            Errno::EACCES,
            Errno::EPERM,
            Errno::ENOENT,
            Errno::ENXIO,
            Errno::ESTALE,
            Errno::EIO,
        ] {
            assert_eq!(Failure::of(error), Some(Failure::File));
        }
        for error in [Errno::EMFILE, Errno::ENFILE] {
            assert_eq!(Failure::of(error), Some(Failure::Shortage));
        }
        for error in [Errno::EBADF, Errno::EINVAL, Errno::EFAULT] {
            assert_eq!(Failure::of(error), Some(Failure::Group));
        }
    }

    #[test]
    fn an_error_that_stays_makes_the_reader_pause() {
        let mut reader = Reader::new(|_| {});
        (0..IN_A_ROW - 1).for_each(|_| reader.skip(Errno::EIO, IN_A_ROW));
        assert_eq!(reader.pause(), None);
        reader.skip(Errno::EIO, IN_A_ROW);
        assert!(reader.pause().is_some());
        // The 1st, 10th, 100th and 1000th are reported.
        assert_eq!(reader.report_at, 10_000);
        let mut short = Reader::new(|_| {});
        short.skip(Errno::EMFILE, 1);
        assert!(short.pause().is_some());
    }
}
