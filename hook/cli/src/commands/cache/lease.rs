//! Finds out, by a write lease, whether another process uses a file.
//! Touches: leases on the file, the disposition of SIGIO.

use nix::libc;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Checks whether another process has the file open or mapped: the file can then have no write
/// lease. The lease is given back at once. On a filesystem without leases this is unknown, and a
/// drop may come too early.
pub(super) fn is_in_use(file: &File) -> bool {
    match lease(file, libc::F_WRLCK) {
        Ok(()) => {
            let _ = lease(file, libc::F_UNLCK);
            false
        }
        Err(error) => error.raw_os_error() == Some(libc::EAGAIN),
    }
}

fn lease(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: fcntl(2) with F_SETLEASE takes numbers only.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ignores SIGIO. The kernel sends this signal if a process opens a file on which this daemon has a
/// lease, and the signal would otherwise end the daemon.
pub(super) fn ignore_broken_leases() {
    let ignore = nix::sys::signal::SigHandler::SigIgn;
    // SAFETY: no handler is installed, the signal is ignored.
    let _was = unsafe { nix::sys::signal::signal(nix::sys::signal::Signal::SIGIO, ignore) };
}
