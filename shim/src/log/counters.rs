//! Failure counters. Each logs its 1st, 10th, 100th ... occurrence.
//! Touches: atomics and the log.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::log::Piece::Str;
use crate::log::{self, Level, Piece};

/// A counter of an event that a program can cause in a loop.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Counts the event, and logs it when the count is a power of ten.
    #[cold]
    pub(crate) fn warn(&self, pieces: &[Piece<'_>]) {
        let count = self.0.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let mut power = 1u64;
        while power < count {
            power = power.saturating_mul(10);
        }
        if power == count {
            log::say(Level::Warn, pieces, Some(count));
        }
    }

    /// As [`Counter::warn`], for a constant text. A constant list of pieces would be relocated at the
    /// start of every process.
    #[cold]
    #[inline(never)]
    pub(crate) fn warn_text(&self, text: &str) {
        self.warn(&[Str(text)]);
    }
}

/// The slice file cannot be used.
pub(crate) static SLICE: Counter = Counter::new();
/// The host's meminfo cannot be read.
pub(crate) static MEMINFO: Counter = Counter::new();
/// The slice's meminfo could not be substituted.
pub(crate) static MEMINFO_SHOWN: Counter = Counter::new();
/// An allocator was asked to free its cache.
pub(crate) static RELEASED: Counter = Counter::new();
/// malloc's cached memory was trimmed.
pub(crate) static TRIMMED: Counter = Counter::new();
/// The host's memory is not the memory that the driver reports on.
pub(crate) static COPY: Counter = Counter::new();
/// The promises of the machine's slices cannot be read, or ours cannot be written.
pub(crate) static PROMISES: Counter = Counter::new();
/// The slice's cgroup cannot be read.
pub(crate) static CGROUP: Counter = Counter::new();
/// The machine is under memory pressure.
pub(crate) static PRESSED: Counter = Counter::new();
/// An allocation would leave the host less than its reserve.
pub(crate) static REFUSED_BY_HOST: Counter = Counter::new();
/// A function is called that no loaded library defines.
pub(crate) static ABSENT: Counter = Counter::new();
/// More copies of a library are loaded than can be hooked.
pub(crate) static COPIES: Counter = Counter::new();
/// The address of a real function belongs to no loaded library.
pub(crate) static UNPLACED: Counter = Counter::new();
/// cuGetProcAddress has returned an unknown function.
pub(crate) static UNKNOWN: Counter = Counter::new();
/// A device's uuid cannot be queried.
pub(crate) static UUID: Counter = Counter::new();
/// A driver's answer stands because facts were missing.
pub(crate) static FACTS: Counter = Counter::new();
/// A struct has an unknown layout.
pub(crate) static LAYOUT: Counter = Counter::new();
/// A new namespace could not get this library.
pub(crate) static NAMESPACE: Counter = Counter::new();
/// The slice's ledger cannot be used.
pub(crate) static LEDGER: Counter = Counter::new();
/// An allocation that the ledger has not counted, or cannot release.
pub(crate) static UNCOUNTED: Counter = Counter::new();
/// An allocation over the limit.
pub(crate) static REFUSED: Counter = Counter::new();
/// A context's size could not be measured, or is implausible.
pub(crate) static CONTEXT: Counter = Counter::new();
