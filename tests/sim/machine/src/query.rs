//! Queries of free memory. They do not take the lock, because benchmarks measure them.
//! Touches: the mapped state; the lock only when a process died.

use crate::map::Machine;
use crate::scenario::Gpu;
use crate::shared::SLOTS;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// One process on one GPU, as NVML lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUse {
    /// The process.
    pub pid: u32,
    /// The bytes that it holds.
    pub used: u64,
    /// The memory in which it holds them.
    pub domain: usize,
}

/// A device's memory at one moment, as CUDA reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// The size of the memory.
    pub total: u64,
    /// The memory that the driver reports as free. On unified memory that is MemFree.
    pub free: u64,
}

impl Machine {
    /// The GPU to which a memory belongs.
    #[must_use]
    pub fn gpu(&self, domain: usize) -> &Gpu {
        &self.scenario.gpu[self.domains[domain].gpu]
    }

    /// CUDA's total.
    #[must_use]
    pub fn cuda_total(&self, domain: usize) -> u64 {
        let gpu = self.gpu(domain);
        self.domains[domain]
            .mig
            .map_or(gpu.cuda_total, |mig| gpu.mig[mig].cuda_total)
    }

    /// NVML's total. The part beyond CUDA's total is reserved.
    #[must_use]
    pub fn nvml_total(&self, domain: usize) -> u64 {
        let gpu = self.gpu(domain);
        self.domains[domain]
            .mig
            .map_or(gpu.nvml_total, |mig| gpu.mig[mig].nvml_total)
    }

    /// Total and free right now. A process that was killed no longer counts.
    #[must_use]
    pub fn query(&self, domain: usize) -> Use {
        self.reap_if_needed();
        let gpu = self.gpu(domain);
        let moving = self.faults.free_moves();
        let total = self.cuda_total(domain);
        let free = if gpu.integrated {
            self.host_memory().map_or(0, |host| host.mem_free)
        } else {
            total.saturating_sub(gpu.baseline + self.used_now(domain))
        };
        Use {
            total,
            free: free.saturating_sub(moving),
        }
    }

    /// The processes that have a context on the memory, and the bytes that each holds.
    #[must_use]
    pub fn processes(&self, domain: usize) -> Vec<ProcessUse> {
        self.reap_if_needed();
        (0..self.slots_high())
            .filter(|i| {
                let slot = &self.shared.slots[*i];
                slot.image.load(Acquire) != 0 && slot.contexts[domain].load(Relaxed) != 0
            })
            .map(|i| ProcessUse {
                pid: u32::try_from(self.shared.slots[i].pid.load(Relaxed)).unwrap_or(0),
                used: self.slot_use(i, domain),
                domain,
            })
            .collect()
    }

    /// The bytes that one process holds, including the segments for which it pays.
    pub(crate) fn slot_use(&self, slot: usize, domain: usize) -> u64 {
        self.shared.slots[slot].total[domain].load(Relaxed) + self.paid_segments(slot, domain)
    }

    /// The bytes that all processes hold.
    #[inline]
    pub(crate) fn used_now(&self, domain: usize) -> u64 {
        let slots: u64 = self.shared.slots[..self.slots_high()]
            .iter()
            .map(|slot| slot.total[domain].load(Relaxed))
            .sum();
        slots + self.segment_bytes(domain)
    }

    #[inline]
    pub(crate) fn slots_high(&self) -> usize {
        usize::try_from(self.shared.slots_high.load(Acquire))
            .unwrap_or(0)
            .min(SLOTS)
    }

    #[inline]
    fn reap_if_needed(&self) {
        // A process that is alone on the machine makes one comparison only.
        let own = self.slot.load(Relaxed);
        let high = self.slots_high();
        if (0..high).any(|i| i != own && !self.slot_is_alive(i)) {
            self.locked(|| self.reap());
        }
    }
}
