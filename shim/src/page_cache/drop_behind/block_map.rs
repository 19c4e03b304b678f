//! Tracks how much of each block of a file was used, so that a block is dropped only once it is
//! used up. Also tracks dropped blocks, so that dropping stops when they are used again.
//! Touches: a word for each block, in memory of its own for as long as the file is in use.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::BLOCK;
use crate::sys;

/// The state of one file's blocks. Written by the helper; cleared by the thread that ends the
/// file's use.
pub(in crate::page_cache) struct BlockMap {
    /// For each block the number of bytes used, and whether it was dropped.
    blocks: AtomicPtr<AtomicU32>,
    /// The number of blocks dropped a second time.
    redropped: AtomicU64,
    /// The number of samples in a row in which dropped blocks were found mapped again.
    remapped: AtomicU64,
    seed: AtomicU64,
    stopped: AtomicBool,
}

/// A block was dropped.
const DROPPED: u32 = 1 << 31;
/// The number of bytes that may stay unused in a block that counts as used up: files have gaps.
const GAPS: u64 = 64 << 10;

/// The number of bytes that may be dropped twice, besides an eighth of the file: tensors may be
/// shared.
const PATIENCE: u64 = 64 << 20;

impl BlockMap {
    pub(in crate::page_cache) const fn new() -> BlockMap {
        BlockMap {
            blocks: AtomicPtr::new(core::ptr::null_mut()),
            redropped: AtomicU64::new(0),
            remapped: AtomicU64::new(0),
            seed: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Whether the file's pages are kept until the end of its use.
    pub(in crate::page_cache) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(in crate::page_cache) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn length(size: u64) -> Option<usize> {
        usize::try_from((size / BLOCK).saturating_add(1).saturating_mul(4)).ok()
    }

    fn word(&self, block: u64, size: u64) -> Option<&AtomicU32> {
        let blocks = self.blocks.load(Ordering::Acquire);
        let at = usize::try_from(block).ok()?;
        if blocks.is_null() || at >= BlockMap::length(size)? / 4 {
            return None;
        }
        // SAFETY: `length` bytes are mapped there, and all zeros are valid atomics.
        unsafe { blocks.wrapping_add(at).as_ref() }
    }

    fn value(&self, block: u64, size: u64) -> u32 {
        let word = self.word(block, size);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn was_dropped(&self, block: u64, size: u64) -> bool {
        self.value(block, size) & DROPPED != 0
    }

    /// Whether a block is used up.
    pub(in crate::page_cache) fn is_used(&self, block: u64, size: u64) -> bool {
        u64::from(self.value(block, size) & !DROPPED) >= BLOCK - GAPS
    }

    /// Records that these bytes were used.
    pub(in crate::page_cache) fn used(&self, bytes: Range<u64>, size: u64) {
        if self.blocks.load(Ordering::Acquire).is_null()
            && let Some(length) = BlockMap::length(size)
            && let Ok(fresh) = sys::map(length)
        {
            self.blocks.store(fresh.cast(), Ordering::Release);
        }
        let mut at = bytes.start;
        while at < bytes.end {
            let block = at / BLOCK;
            let next = block.saturating_add(1).saturating_mul(BLOCK).min(bytes.end);
            if let Some(word) = self.word(block, size)
                // A used-up block need not be counted further.
                && !self.is_used(block, size)
                && let Ok(length) = u32::try_from(next.saturating_sub(at))
            {
                word.fetch_add(length, Ordering::Relaxed);
            }
            at = next;
        }
    }

    /// Records that these blocks are dropped. Returns whether too many were dropped twice.
    pub(in crate::page_cache) fn dropped(&self, blocks: Range<u64>, size: u64) -> bool {
        for block in blocks {
            if let Some(word) = self.word(block, size)
                && word.fetch_or(DROPPED, Ordering::Relaxed) & DROPPED != 0
            {
                self.redropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        let redropped = self.redropped.load(Ordering::Relaxed).saturating_mul(BLOCK);
        redropped > PATIENCE.saturating_add(size / 8)
    }

    /// Samples a few dropped blocks, not those about to be dropped. Returns whether most of them
    /// are mapped again, twice in a row.
    pub(in crate::page_cache) fn is_remapped(
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
            // Near the blocks being loaded the kernel reads ahead.
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
            self.remapped.store(0, Ordering::Relaxed);
            return false;
        }
        self.remapped.fetch_add(1, Ordering::Relaxed) != 0
    }

    /// Clears the state: the file is no longer in use.
    pub(in crate::page_cache) fn clear(&self, size: u64) {
        let blocks = self.blocks.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if let (false, Some(length)) = (blocks.is_null(), BlockMap::length(size)) {
            // SAFETY: all threads that used the blocks have left the file.
            unsafe { sys::unmap(blocks.cast(), length) };
        }
        for counter in [&self.redropped, &self.remapped, &self.seed] {
            counter.store(0, Ordering::Relaxed);
        }
        self.stopped.store(false, Ordering::Relaxed);
    }
}
