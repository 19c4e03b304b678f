//! Which blocks of a file were dropped, so that dropping stops when they are used again.
//! Touches: one bit for each block, in memory of its own for as long as the file is in use.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::behind::BLOCK;
use crate::sys;

/// What is known of one file. The helper writes it; who ends the file's use clears it.
pub(super) struct Touched {
    bits: AtomicPtr<AtomicU64>,
    /// How many blocks were dropped a second time.
    again: AtomicU64,
    /// How often others that were dropped were found mapped again.
    found: AtomicU64,
    seed: AtomicU64,
    stopped: AtomicBool,
}

/// As many bytes may be dropped twice, besides an eighth of the file: tensors may be shared.
const PATIENCE: u64 = 64 << 20;

impl Touched {
    pub(super) const fn new() -> Touched {
        Touched {
            bits: AtomicPtr::new(core::ptr::null_mut()),
            again: AtomicU64::new(0),
            found: AtomicU64::new(0),
            seed: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Whether the file's pages are no longer dropped before the end of its use.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn length(size: u64) -> Option<usize> {
        usize::try_from((size / BLOCK / 64).saturating_add(1).saturating_mul(8)).ok()
    }

    fn word(&self, block: u64, size: u64) -> Option<&AtomicU64> {
        let bits = self.bits.load(Ordering::Acquire);
        let at = usize::try_from(block / 64).ok()?;
        if bits.is_null() || at >= Touched::length(size)? / 8 {
            return None;
        }
        // SAFETY: `length` bytes are mapped there, and zeros are atomics.
        unsafe { bits.wrapping_add(at).as_ref() }
    }

    fn was_dropped(&self, block: u64, size: u64) -> bool {
        let word = self.word(block, size);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (block % 64) != 0)
    }

    /// These blocks are dropped; whether too much was dropped twice.
    pub(super) fn dropped(&self, blocks: Range<u64>, size: u64) -> bool {
        if self.bits.load(Ordering::Acquire).is_null()
            && let Some(length) = Touched::length(size)
            && let Ok(fresh) = sys::map(length)
        {
            self.bits.store(fresh.cast(), Ordering::Release);
        }
        for block in blocks {
            let bit = 1 << (block % 64);
            if let Some(word) = self.word(block, size)
                && word.fetch_or(bit, Ordering::Relaxed) & bit != 0
            {
                self.again.fetch_add(1, Ordering::Relaxed);
            }
        }
        let again = self.again.load(Ordering::Relaxed).saturating_mul(BLOCK);
        again > PATIENCE.saturating_add(size / 8)
    }

    /// Looks at a few of the blocks that were dropped, not at those about to be; whether most of
    /// them are mapped again, twice in a row.
    pub(super) fn is_again(
        &self,
        size: u64,
        next: Range<u64>,
        is_present: impl Fn(u64) -> bool,
    ) -> bool {
        let blocks = (size / BLOCK).max(1);
        let (mut looked, mut present) = (0u64, 0u64);
        for _ in 0..16 {
            let seed = self.seed.fetch_add(1, Ordering::Relaxed);
            let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
            let block = mixed.checked_rem(blocks).unwrap_or(0);
            // At the edge of what is being loaded the kernel reads ahead.
            let near = next.start.saturating_sub(2)..next.end.saturating_add(2);
            if !self.was_dropped(block, size) || near.contains(&block) {
                continue;
            }
            looked = looked.saturating_add(1);
            present = present.saturating_add(u64::from(is_present(block)));
            if looked == 4 {
                break;
            }
        }
        if looked < 2 || present.saturating_mul(2) <= looked {
            self.found.store(0, Ordering::Relaxed);
            return false;
        }
        self.found.fetch_add(1, Ordering::Relaxed) != 0
    }

    /// The file is no longer in use.
    pub(super) fn clear(&self, size: u64) {
        let bits = self.bits.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if let (false, Some(length)) = (bits.is_null(), Touched::length(size)) {
            // SAFETY: whoever used the bits has left the file.
            unsafe { sys::unmap(bits.cast(), length) };
        }
        for counter in [&self.again, &self.found, &self.seed] {
            counter.store(0, Ordering::Relaxed);
        }
        self.stopped.store(false, Ordering::Relaxed);
    }
}
