//! Processes, threads and the clock.
//! Touches: the kernel.

use super::{Errno, int, syscall};
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;

/// The pid of this process, in its own pid namespace.
#[must_use]
pub fn getpid() -> u32 {
    // SAFETY: no pointers.
    let pid = unsafe { syscall(libc::SYS_getpid, [0; 6]) };
    pid.ok()
        .and_then(|pid| u32::try_from(pid).ok())
        .unwrap_or(0)
}

/// The id of this thread, in its own pid namespace.
#[must_use]
pub fn gettid() -> u32 {
    // SAFETY: no pointers.
    let tid = unsafe { syscall(libc::SYS_gettid, [0; 6]) };
    tid.ok()
        .and_then(|tid| u32::try_from(tid).ok())
        .unwrap_or(0)
}

/// Whether this process has a thread with this id, even one that is just ending.
///
/// # Errors
/// [`ESRCH`](super::ESRCH): it has none. Any other: the kernel cannot be queried.
pub fn probe_thread(tid: u32) -> Result<(), Errno> {
    let arguments = [getpid() as usize, tid as usize, 0, 0, 0, 0];
    // SAFETY: no pointers; signal 0 is not sent.
    unsafe { syscall(libc::SYS_tgkill, arguments) }.map(drop)
}

/// `struct robust_list_head`: the kernel reads it when this thread ends. libc writes to it, too, in
/// this thread only.
#[repr(C)]
#[derive(Debug)]
pub struct RobustList {
    /// The first node.
    pub first: AtomicUsize,
    /// The distance from a node to its word.
    pub futex_offset: AtomicUsize,
    /// A node that is being entered or taken out.
    pub list_op_pending: AtomicUsize,
}

/// The list head of this thread; `None` where there is none.
#[must_use]
pub fn robust_list() -> Option<NonNull<RobustList>> {
    let (mut head, mut length) = (core::ptr::null_mut(), 0usize);
    let (to, size) = (&raw mut head as usize, &raw mut length as usize);
    // SAFETY: both pointers are to live words.
    unsafe { syscall(libc::SYS_get_robust_list, [0, to, size, 0, 0, 0]) }.ok()?;
    NonNull::new(head).filter(|_| length == size_of::<RobustList>())
}

/// Seconds of a monotonic clock; 0 when there is none.
#[must_use]
pub fn seconds() -> u64 {
    let mut time = [0u64; 2];
    const { assert!(size_of::<libc::timespec>() == size_of::<[u64; 2]>()) };
    let to = time.as_mut_ptr() as usize;
    let clock = int(libc::CLOCK_MONOTONIC_COARSE);
    // SAFETY: the kernel writes one struct timespec.
    let _ = unsafe { syscall(libc::SYS_clock_gettime, [clock, to, 0, 0, 0, 0]) };
    time[0]
}

/// Lets another thread run.
pub fn sched_yield() {
    // SAFETY: no pointers.
    let _ = unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}

/// Sleeps for some microseconds, less than a second.
pub fn sleep_us(microseconds: u32) {
    let time = [0u64, u64::from(microseconds).saturating_mul(1000)];
    let from = time.as_ptr() as usize;
    // SAFETY: the kernel reads one struct timespec.
    let _ = unsafe { syscall(libc::SYS_nanosleep, [from, 0, 0, 0, 0, 0]) };
}
