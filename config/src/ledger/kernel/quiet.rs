//! Quiet mode, after the process has put itself under seccomp: slots are read, but the kernel is
//! not queried whether their owners are alive. A neighbour that has ended stays counted here until
//! another process of the slice clears its slot. Otherwise a filter that allows only the program's
//! own system calls would end the program.
//! Touches: one word of this process.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Turns quiet mode on or off.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Relaxed);
}

#[inline]
pub(crate) fn is_on() -> bool {
    QUIET.load(Relaxed)
}
