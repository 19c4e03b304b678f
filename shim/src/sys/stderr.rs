//! Writes log lines to any descriptor: a program must neither wait nor be killed because of the
//! library's lines.
//! Touches: a descriptor; the calling thread's signal mask, for the length of the call.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{filters, int, syscall};

/// How long a line waits for a blocked reader, in nanoseconds.
const PATIENCE: u64 = 100_000_000;

/// Not 0: the last wait was in vain. No further line waits until the reader reads again.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

/// The signals by which a write may kill a program: for a pipe without a reader, and for a file
/// over its length limit.
const OF_WRITES: u64 = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);

/// The length of the kernel's `sigset_t`.
const SET: usize = 8;

/// Writes a line to standard error.
pub(crate) fn write_stderr(line: &[u8]) {
    write(2, line);
}

/// Writes a line. A line that cannot be written is lost.
pub(super) fn write(descriptor: usize, line: &[u8]) {
    let (place, length) = (line.as_ptr() as usize, line.len());
    let write = || {
        // SAFETY: the kernel reads `length` bytes of `line`.
        unsafe { syscall(libc::SYS_write, [descriptor, place, length, 0, 0, 0]) }
    };
    if filters::is_filtered() {
        // A seccomp filter may allow the write but not the other calls.
        let _ = write();
        return;
    }
    if !takes_more(descriptor) {
        return;
    }
    let Some((mask, pending)) = hold_back() else {
        return;
    };
    if write().is_err() {
        take_back(OF_WRITES & !pending);
    }
    let (new, none) = ((&raw const mask) as usize, 0);
    // SAFETY: `mask` is a signal set: the one that this thread had before.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [int(libc::SIG_SETMASK), new, none, SET, 0, 0],
        )
    };
}

/// Whether a write to the descriptor would succeed at once.
fn takes_more(descriptor: usize) -> bool {
    let Ok(fd) = c_int::try_from(descriptor) else {
        return true;
    };
    let mut asked = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // Seconds and nanoseconds. The kernel writes the remaining time there.
    let mut patience = match GIVEN_UP.load(Ordering::Relaxed) {
        0 => [0, PATIENCE],
        _ => [0, 0],
    };
    let (place, time) = ((&raw mut asked) as usize, (&raw mut patience) as usize);
    // SAFETY: one `struct pollfd` and a `struct timespec`; the signal mask stays.
    let ready = unsafe { syscall(libc::SYS_ppoll, [place, 1, time, 0, SET, 0]) };
    // On an error or an interruption, the descriptor counts as ready.
    let takes = ready.is_err() || asked.revents == libc::POLLOUT;
    GIVEN_UP.store(u32::from(!takes), Ordering::Relaxed);
    takes
}

/// Blocks the signals that a write may send this thread. Returns the mask before, and the signals
/// already pending.
fn hold_back() -> Option<(u64, u64)> {
    let (mut mask, mut pending) = (0u64, 0u64);
    let ours = OF_WRITES;
    let (new, old) = ((&raw const ours) as usize, (&raw mut mask) as usize);
    // SAFETY: the kernel reads one signal set and writes the other.
    unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [int(libc::SIG_BLOCK), new, old, SET, 0, 0],
        )
    }
    .ok()?;
    let place = (&raw mut pending) as usize;
    // SAFETY: the kernel writes one signal set.
    let _ = unsafe { syscall(libc::SYS_rt_sigpending, [place, SET, 0, 0, 0, 0]) };
    Some((mask, pending))
}

/// Consumes pending signals of this set.
fn take_back(signals: u64) {
    let at_once = [0u64; 2];
    let (set, time) = ((&raw const signals) as usize, (&raw const at_once) as usize);
    // SAFETY: a signal set and a `struct timespec`; the null pointer means that no details are
    // reported.
    while unsafe { syscall(libc::SYS_rt_sigtimedwait, [set, 0, time, SET, 0, 0]) }.is_ok() {}
}
