//! The state of `pressure: release` in this process: the requests to its allocator to free memory.
//! Touches: atomics of this process's page.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gpuslice_config::answer::reclaim::Release;
use gpuslice_config::words::units::Bytes;

/// The requests to this process to free memory. All zeros: none yet.
#[repr(C)]
pub(crate) struct Reclaim {
    /// Not 0 while a thread decides.
    pub(crate) busy: AtomicU32,
    /// The number of streams being captured.
    pub(crate) captures: AtomicU32,
    /// The memory held at the last request, plus one.
    asked_at: AtomicU64,
    low: AtomicU64,
    not_before: AtomicU64,
    in_vain: AtomicU32,
    /// The time of the last request to malloc.
    pub(crate) trimmed: AtomicU64,
}

impl Reclaim {
    pub(crate) fn load(&self) -> Release {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Release {
            asked_at: word(&self.asked_at).checked_sub(1).map(Bytes::new),
            low: Bytes::new(word(&self.low)),
            not_before: Bytes::new(word(&self.not_before)),
            in_vain: self.in_vain.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn store(&self, release: &Release) {
        let asked_at = release.asked_at.map_or(0, |at| at.get().saturating_add(1));
        self.asked_at.store(asked_at, Ordering::Relaxed);
        self.low.store(release.low.get(), Ordering::Relaxed);
        let not_before = release.not_before.get();
        self.not_before.store(not_before, Ordering::Relaxed);
        self.in_vain.store(release.in_vain, Ordering::Relaxed);
    }
}
