//! Locks ranges of bytes for an open file description.
//! Touches: the kernel.

use super::{EINVAL, Errno, int, syscall};
use core::ffi::{c_int, c_short};

/// The lock of an open file description on a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Shared with other descriptions.
    Read,
    /// Of one description.
    Write,
    /// No lock.
    None,
}

impl Lock {
    fn kind(self) -> c_short {
        let kind = match self {
            Lock::Read => libc::F_RDLCK,
            Lock::Write => libc::F_WRLCK,
            Lock::None => libc::F_UNLCK,
        };
        // The lock types are 0, 1 and 2.
        c_short::try_from(kind).unwrap_or(c_short::MAX)
    }
}

/// Sets or removes the lock on a range; never waits.
///
/// # Errors
/// The kernel's, EAGAIN for another description's lock; EINVAL beyond the end of any file.
pub fn set_lock(fd: usize, lock: Lock, start: u64, length: u64) -> Result<(), Errno> {
    fcntl(fd, libc::F_OFD_SETLK, lock, start, length).map(drop)
}

/// Whether another description has locked a part of the range.
///
/// # Errors
/// As [`set_lock`].
pub fn is_locked(fd: usize, start: u64, length: u64) -> Result<bool, Errno> {
    let found = fcntl(fd, libc::F_OFD_GETLK, Lock::Write, start, length)?;
    Ok(found.l_type != Lock::None.kind())
}

fn fcntl(
    fd: usize,
    command: c_int,
    lock: Lock,
    start: u64,
    length: u64,
) -> Result<libc::flock, Errno> {
    let mut lock = libc::flock {
        l_type: lock.kind(),
        l_whence: 0,
        l_start: i64::try_from(start).map_err(|_| EINVAL)?,
        l_len: i64::try_from(length).map_err(|_| EINVAL)?,
        l_pid: 0,
    };
    let at = &raw mut lock as usize;
    // SAFETY: the kernel reads and writes one struct flock.
    unsafe { syscall(libc::SYS_fcntl, [fd, int(command), at, 0, 0, 0]) }?;
    Ok(lock)
}
