//! Tracks whether this process has installed a seccomp filter. A filter allows the program's system
//! calls, not the library's, and may kill the program for an unknown one.
//! Touches: one number.
//! Law: once a filter is about to be installed, the library begins no work that the program has not
//! asked for. Filters older than the program, such as a container's, do not count.

use core::sync::atomic::Ordering;

use gpuslice_config::ledger;

use crate::page_cache;
use crate::sys::filters::{FILTERS, is_filtered};

/// Finishes all work before a filter is installed. False in a vfork child, whose filter is not its
/// parent's.
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

/// Records that the filter was not installed after all.
pub(crate) fn failed() {
    if FILTERS.fetch_sub(1, Ordering::SeqCst) == 1 {
        ledger::set_quiet(false);
    }
}
