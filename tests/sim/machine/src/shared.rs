//! The layout of the mapped file: the tables of processes, of shared segments and of limits, and
//! the host's changing numbers.
//! Touches: nothing; it is only the layout.
//! Law: everything is an atomic, so a reader needs no lock; every writer holds the machine's lock.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Memories one machine can have.
pub(crate) const DOMAINS: usize = 16;
/// Processes that can hold a context at the same time.
pub(crate) const SLOTS: usize = 512;
/// Allocations shared between processes.
pub(crate) const SEGMENTS: usize = 256;
/// Processes that can hold one segment.
pub(crate) const HOLDERS: usize = 16;
/// Limits set through NVML.
pub(crate) const LIMITS: usize = 64;
/// Cgroups on which a limit for one process may be set: its own and those above it.
pub(crate) const CGROUPS: usize = 16;
/// Kinds of charges, see [`crate::Kind`].
pub(crate) const KINDS: usize = 7;

/// Changes whenever the layout does.
pub(crate) const MAGIC: u64 = 0x6770_7573_6c69_0005;

/// A short text in shared memory.
#[repr(C)]
pub(crate) struct Text<const N: usize>([AtomicU8; N]);

impl<const N: usize> Text<N> {
    pub(crate) fn set(&self, text: &str) {
        for (i, cell) in self.0.iter().enumerate() {
            let byte = if i + 1 < N {
                text.as_bytes().get(i).copied().unwrap_or(0)
            } else {
                0
            };
            cell.store(byte, Relaxed);
        }
    }

    pub(crate) fn get(&self) -> String {
        let bytes = self
            .0
            .iter()
            .map(|cell| cell.load(Relaxed))
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8(bytes).unwrap_or_default()
    }
}

/// One process that holds contexts. `image` is 0 while the slot is free.
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) image: AtomicU64,
    pub(crate) pid: AtomicU64,
    /// Bytes per domain: the sum over `kinds`, so that a query reads one word.
    pub(crate) total: [AtomicU64; DOMAINS],
    pub(crate) contexts: [AtomicU64; DOMAINS],
    pub(crate) kinds: [[AtomicU64; KINDS]; DOMAINS],
    pub(crate) cgroup: Text<256>,
    /// The numbers of that cgroup and of those above it, as far as the process sees them; the rest
    /// is 0.
    pub(crate) cgroups: [AtomicU64; CGROUPS],
}

/// An allocation that other processes may hold as well. `id` is 0 while the entry is free.
#[repr(C)]
pub(crate) struct Segment {
    pub(crate) id: AtomicU64,
    pub(crate) domain: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// The slot of the process that pays.
    pub(crate) payer: AtomicU64,
    /// Slot number + 1 in the high half, references in the low half.
    pub(crate) holders: [AtomicU64; HOLDERS],
}

/// A limit set through `nvmlDeviceSetMemoryLimits_v1`. `gpu` is the GPU's number + 1, 0 while free.
#[repr(C)]
pub(crate) struct LimitEntry {
    pub(crate) gpu: AtomicU64,
    pub(crate) soft: AtomicU64,
    /// `u64::MAX` if the entry keeps only a guarantee for cgroups below this one.
    pub(crate) hard: AtomicU64,
    /// dmem.min: the cgroup's own soft limit, and all that were ever set below it.
    pub(crate) minimum: AtomicU64,
    pub(crate) cgroup: Text<256>,
    /// The cgroup's number; 0 where cgroups cannot be seen.
    pub(crate) number: AtomicU64,
}

/// The mapped file.
#[repr(C)]
pub(crate) struct Shared {
    pub(crate) magic: AtomicU64,
    pub(crate) scenario: Text<512>,
    /// No slot at or above this number was ever used.
    pub(crate) slots_high: AtomicU64,
    pub(crate) segments_high: AtomicU64,
    pub(crate) next_segment: AtomicU64,
    /// Reclaimable page cache, and the memory that the host's programs took since the start, in
    /// bytes.
    pub(crate) cache: AtomicU64,
    pub(crate) anon: AtomicU64,
    /// Calls that named a destroyed object. A real driver may crash in them.
    pub(crate) misuses: AtomicU64,
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) segments: [Segment; SEGMENTS],
    pub(crate) limits: [LimitEntry; LIMITS],
}

impl Slot {
    pub(crate) fn clear(&self) {
        for cell in self
            .total
            .iter()
            .chain(&self.contexts)
            .chain(self.kinds.iter().flatten())
            .chain(&self.cgroups)
        {
            cell.store(0, Relaxed);
        }
        self.pid.store(0, Relaxed);
        self.cgroup.set("");
        self.image.store(0, Relaxed);
    }
}
