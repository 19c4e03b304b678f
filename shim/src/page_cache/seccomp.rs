//! Tracks whether this process has put itself under seccomp. A filter knows the program's system
//! calls and not the library's, and may end the program for one that it does not know.
//! Touches: one number.
//! Law: from the moment a filter is about to be installed nothing is begun that the program has not
//! asked for. One that was there before the program began, as a container's, is not looked at.

use core::sync::atomic::Ordering;

use gpuslice_config::ledger;

use crate::page_cache;
use crate::sys::filters::{FILTERS, is_filtered};

/// A filter is about to be installed: what is being done is finished first. False in a vfork child,
/// whose filter is not its parent's.
pub(crate) fn begins() -> bool {
    if !is_filtered() && page_cache::is_another_process() {
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
