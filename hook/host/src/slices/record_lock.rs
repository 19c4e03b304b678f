//! The write lock on a run's record. It shows that the run's watcher is alive.
//! Touches: the record's file.

use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::io;

/// Whether a process holds a write lock on a record. That requires the right to write the record.
#[must_use]
pub fn is_locked(file: &File) -> bool {
    let mut lock = whole(libc::F_RDLCK);
    let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock));
    asked.is_ok() && lock.l_type == kind(libc::F_WRLCK)
}

/// Holds the write lock on a record, for as long as the file is open.
///
/// # Errors
/// The kernel's.
pub fn lock(file: &File) -> io::Result<()> {
    let wanted = whole(libc::F_WRLCK);
    fcntl(file, FcntlArg::F_OFD_SETLK(&wanted))?;
    Ok(())
}

fn kind(number: i32) -> libc::c_short {
    libc::c_short::try_from(number).unwrap_or_default()
}

/// A lock of this kind on the whole file.
pub(super) fn whole(number: i32) -> libc::flock {
    libc::flock {
        l_type: kind(number),
        l_whence: kind(libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}
