//! The atomics of the protocol: the machine's, or loom's when loom explores it.
//! Touches: nothing.

#[cfg(not(all(test, loom)))]
pub(super) use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Stands between publishing a claim and looking at the others'.
///
/// Every access to a claim is sequentially consistent already, which orders them by itself and
/// costs nothing more on the machines that we run on. loom knows that order only from fences.
#[inline(always)]
pub(super) fn published() {
    #[cfg(all(test, loom))]
    loom::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
