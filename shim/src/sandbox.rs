//! Whether this process has put itself under seccomp: a filter knows the program's system calls and
//! not ours, and one that it does not know may be the end of the program.
//! Touches: one number.
//! Law: from the moment a filter is about to be installed nothing is begun that the program has not
//! asked for. One that was there before the program began, as a container's, is not looked at.

use core::sync::atomic::{AtomicU32, Ordering};

use gpuslice_config::ledger;

use crate::page_cache;

/// How many filters this process has, or is about to have. A forked child has its parent's.
static FILTERS: AtomicU32 = AtomicU32::new(0);

/// Whether the library makes no system calls that the program has not asked for.
#[inline]
pub(crate) fn is_on() -> bool {
    // Ordered with `page_cache::enter`: either that sees the filter, or the filter waits for it.
    FILTERS.load(Ordering::SeqCst) != 0
}

/// A filter is about to be installed: what is being done is finished first. False in a vfork child,
/// whose filter is not its parent's.
pub(crate) fn begins() -> bool {
    if !is_on() && page_cache::is_another_process() {
        return false;
    }
    if FILTERS.fetch_add(1, Ordering::SeqCst) == 0 {
        page_cache::finish();
        ledger::set_quiet(true);
    }
    true
}

/// It was not installed after all.
pub(crate) fn failed() {
    if FILTERS.fetch_sub(1, Ordering::SeqCst) == 1 {
        ledger::set_quiet(false);
    }
}
