//! The atomics of the protocol: the machine's, or loom's when loom explores it.
//! Touches: nothing.

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};

/// A barrier between publishing a claim and reading the others' claims.
///
/// Every access to a claim is already sequentially consistent, which orders them without further
/// cost on the machines that we run on. loom derives that order only from fences.
#[inline(always)]
pub(crate) fn published() {
    #[cfg(all(test, loom))]
    loom::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
