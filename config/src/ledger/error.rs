//! The errors of the ledger: why a file cannot be used, and why a process has no slot.
//! Touches: nothing.

use super::kernel::lock_file::PATH_MAX;
use super::protocol::header::{self, Foreign};
use super::protocol::layout;
use crate::sys::Errno;
use thiserror::Error;

/// Why a file cannot be used as a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// The path is too long to be stored.
    #[error("the path of the ledger is longer than {PATH_MAX} bytes")]
    Path,
    /// The file cannot be opened, or its path is a symbolic link.
    #[error("cannot open the ledger: {0}")]
    Open(#[source] Errno),
    /// It cannot be examined.
    #[error("cannot examine the ledger: fstat fails with {0}{hint}", hint = .0.hint())]
    Examine(#[source] Errno),
    /// It is a directory, a pipe, a device.
    #[error("the ledger is not a regular file")]
    NotAFile,
    /// It is too short or too long.
    #[error("the ledger is {0} bytes long, which is no ledger's length")]
    Length(u64),
    /// It is some other file.
    #[error("the file is not a ledger")]
    Magic,
    /// It was made by another version of gpuslice.
    #[error("the ledger has version {0}, not {ours}", ours = layout::VERSION)]
    Version(u32),
    /// The file is a ledger, but not the one that the slice was given.
    #[error(
        "it is another ledger than the one that the slice was started with (start the slice again)"
    )]
    Another,
    /// A process that used the ledger has found that it was overwritten.
    #[error(
        "the ledger was overwritten while it was in use (end the slice's programs and start the slice again)"
    )]
    Damaged,
    /// It cannot be mapped.
    #[error("cannot map the ledger: {0}")]
    Map(#[source] Errno),
    /// The kernel provides no private page for this process. Linux before 4.14 has none that a forked
    /// child does not inherit (`MADV_WIPEONFORK`).
    #[error(
        "the kernel gives no memory for what this process holds (out of memory, or Linux before 4.14)"
    )]
    Memory,
}

impl LedgerError {
    /// Whether the next attempt may succeed without any repair: this process has run out of
    /// descriptors or memory, or was interrupted.
    #[must_use]
    pub fn is_passing(self) -> bool {
        match self {
            LedgerError::Open(errno) | LedgerError::Map(errno) => errno.is_passing(),
            LedgerError::Memory => true,
            _ => false,
        }
    }
}

/// Checks the first words of a file, and returns the error that they cause.
pub(super) fn refuse(magic: u64, version: u32, slots: u32, room: usize) -> Result<(), LedgerError> {
    let room = u32::try_from(room).unwrap_or(0);
    header::check(magic, version, slots, room).map_err(LedgerError::from)
}

impl From<Foreign> for LedgerError {
    fn from(foreign: Foreign) -> LedgerError {
        match foreign {
            Foreign::Magic => LedgerError::Magic,
            Foreign::Damaged => LedgerError::Damaged,
            Foreign::Version(version) => LedgerError::Version(version),
        }
    }
}

/// Why a process has no slot. It looks for one again after a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoSlot {
    /// Every slot has a living owner, or another process has locked it.
    #[error("all of its {0} slots are taken or locked")]
    Full(u32),
    /// The file cannot be opened, so there is nothing to lock.
    #[error("it cannot be opened again: {0}")]
    Unreachable(#[source] Errno),
    /// The kernel refuses locks on its file.
    #[error("it cannot be locked: {0}{hint}", hint = .0.hint())]
    Unlockable(#[source] Errno),
    /// The file system drops locks that a mapping should keep.
    #[error("it is not on tmpfs, and its file system drops locks")]
    LocksDoNotStay,
    /// The ledger as a whole cannot be used.
    #[error("it cannot be used")]
    Closed,
    /// The ledger has no room for another device, or the device's entry is garbled.
    #[error("it has no room for another device")]
    Unlisted,
    /// The ledger was overwritten while it was in use. It grants nothing any more.
    #[error(
        "it was overwritten while it was in use (end the slice's programs and start the slice again)"
    )]
    Damaged,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shortage_passes_by_itself() {
        let shortage = Errno(libc::EMFILE);
        assert!(LedgerError::Open(shortage).is_passing());
        assert!(LedgerError::Map(Errno(libc::ENOMEM)).is_passing());
        assert!(LedgerError::Memory.is_passing());
        assert!(!LedgerError::Open(Errno(libc::ENOENT)).is_passing());
        assert!(!LedgerError::Magic.is_passing());
    }
}
