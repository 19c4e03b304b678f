//! Counts the seccomp filters that this process has installed itself.
//! Touches: one number. `page_cache::seccomp` changes it.

use core::sync::atomic::{AtomicU32, Ordering};

/// The number of filters that this process has, or is about to have. A forked child has its
/// parent's.
pub(crate) static FILTERS: AtomicU32 = AtomicU32::new(0);

/// Whether the library must make no system calls that the program has not asked for.
#[inline]
pub(crate) fn is_filtered() -> bool {
    // Ordered with `InFlight::begin` of `page_cache`: either that sees the filter, or the filter
    // waits for it.
    FILTERS.load(Ordering::SeqCst) != 0
}
