//! Log lines, to wherever they go: a program that logs nothing itself must not wait, nor end, for
//! what we write.
//! Touches: a descriptor; the calling thread's signal mask, for the length of the call.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{filters, number, syscall};

/// How long a reader is waited for that does not read, in nanoseconds.
const PATIENCE: u64 = 100_000_000;

/// Not 0: the last one was waited for in vain, and is not again before it reads.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

const SIGPIPE: u32 = 13;
const SIGXFSZ: u32 = 25;
/// What a write may end a program with: a pipe that nobody reads, a file that may not be so long.
const OF_WRITES: u64 = 1 << (SIGPIPE - 1) | 1 << (SIGXFSZ - 1);

const BLOCK: usize = 0;
const SET_MASK: usize = 2;
/// The length of the kernel's `sigset_t`.
const SET: usize = 8;

/// Writes a line to standard error.
pub(crate) fn write_stderr(line: &[u8]) {
    write(2, line);
}

/// Writes a line. One that cannot be written is lost: there is nobody to tell.
pub(super) fn write(descriptor: usize, line: &[u8]) {
    let (place, length) = (line.as_ptr() as usize, line.len());
    let write = || {
        // SAFETY: the kernel reads `length` bytes of `line`.
        unsafe { syscall(number::WRITE, [descriptor, place, length, 0, 0, 0]) }
    };
    if filters::is_filtered() {
        // A filter that lets it write may not let it do the rest.
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
    // SAFETY: `mask` is a signal set, this thread's own of a moment ago.
    let _ = unsafe { syscall(number::SIGPROCMASK, [SET_MASK, new, none, SET, 0, 0]) };
}

/// Whether a write there would be done at once.
fn takes_more(descriptor: usize) -> bool {
    const OUT: u64 = 4;
    /// `struct pollfd`: the descriptor, what is asked, and what is answered.
    const ASKED_AT: u32 = 32;
    const ANSWERED_AT: u32 = 48;
    let mut asked = descriptor as u64 | OUT << ASKED_AT;
    // Seconds and nanoseconds. The kernel writes what is left of them there.
    let mut patience = match GIVEN_UP.load(Ordering::Relaxed) {
        0 => [0, PATIENCE],
        _ => [0, 0],
    };
    let (place, time) = ((&raw mut asked) as usize, (&raw mut patience) as usize);
    // SAFETY: one `struct pollfd` and a `struct timespec`; the signal mask stays.
    let ready = unsafe { syscall(number::PPOLL, [place, 1, time, 0, SET, 0]) };
    // Where the kernel does not say, or was interrupted, nothing is known against it.
    let takes = ready.is_err() || asked >> ANSWERED_AT == OUT;
    GIVEN_UP.store(u32::from(!takes), Ordering::Relaxed);
    takes
}

/// Holds back what a write may send this thread. What was held back before, and what of it has come.
fn hold_back() -> Option<(u64, u64)> {
    let (mut mask, mut pending) = (0u64, 0u64);
    let ours = OF_WRITES;
    let (new, old) = ((&raw const ours) as usize, (&raw mut mask) as usize);
    // SAFETY: two signal sets.
    unsafe { syscall(number::SIGPROCMASK, [BLOCK, new, old, SET, 0, 0]) }.ok()?;
    let place = (&raw mut pending) as usize;
    // SAFETY: a signal set.
    let _ = unsafe { syscall(number::SIGPENDING, [place, SET, 0, 0, 0, 0]) };
    Some((mask, pending))
}

/// Takes away what has come of these signals.
fn take_back(signals: u64) {
    let at_once = [0u64; 2];
    let (set, time) = ((&raw const signals) as usize, (&raw const at_once) as usize);
    // SAFETY: a signal set and a `struct timespec`; nobody wants to know more of the signal.
    while unsafe { syscall(number::SIGTIMEDWAIT, [set, 0, time, SET, 0, 0]) }.is_ok() {}
}
