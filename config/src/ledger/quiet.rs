//! Whether this process has put itself under seccomp: then a slot is looked at, and the kernel not
//! asked about its owner. A neighbour that has ended stays counted here until another process of the
//! slice clears its slot; a filter that knows the program's system calls alone would end the program.
//! Touches: one word of this process.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on the kernel is asked about no neighbour; or is again.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Relaxed);
}

#[inline]
pub(super) fn is_on() -> bool {
    QUIET.load(Relaxed)
}
