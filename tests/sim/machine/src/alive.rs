//! The kernel decides which processes are alive: a process holds a record lock on its slot's byte
//! for as long as it lives.
//! Touches: the lock file. A record lock belongs to the process, is not inherited by fork children,
//! and is gone after exec, exit and SIGKILL alike, also across pid namespaces, exactly like the
//! real driver's open device file.

use std::fs::File;
use std::os::fd::AsRawFd;

/// A number that differs between any two programs that ever run: the kernel's 16 random bytes per
/// exec, and the pid.
pub(crate) fn image() -> u64 {
    // SAFETY: getauxval only reads the vector the kernel left on this process's stack.
    let address = unsafe { libc::getauxval(libc::AT_RANDOM) };
    let random = if address == 0 {
        1
    } else {
        // SAFETY: the kernel guarantees 16 readable bytes at AT_RANDOM for the life of the process.
        unsafe { ((address + 8) as *const u64).read_unaligned() }
    };
    // Mixed, because the C library keeps its pointer guard there.
    let mixed = (random ^ u64::from(std::process::id())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
}

fn record(kind: libc::c_int, slot: usize) -> libc::flock {
    // SAFETY: flock is plain data for which all zeroes is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(kind).unwrap_or(0);
    lock.l_whence = 0;
    lock.l_start = i64::try_from(slot).unwrap_or(0);
    lock.l_len = 1;
    lock
}

/// Takes the slot's byte for this process.
pub(crate) fn hold(file: &File, slot: usize) -> bool {
    let lock = record(libc::F_WRLCK, slot);
    // SAFETY: the descriptor is open and `lock` outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) == 0 }
}

/// Releases the slot's byte.
pub(crate) fn release(file: &File, slot: usize) {
    let lock = record(libc::F_UNLCK, slot);
    // SAFETY: the descriptor is open and `lock` outlives the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
}

/// Is the slot's byte held by some other process?
pub(crate) fn held(file: &File, slot: usize) -> bool {
    let mut lock = record(libc::F_WRLCK, slot);
    // SAFETY: the descriptor is open and `lock` outlives the call.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    // If the kernel cannot tell, the process counts as alive, so that it keeps its memory.
    rc != 0 || i32::from(lock.l_type) != libc::F_UNLCK
}
