//! Charges: the cost of an allocation, and when it is refused.
//! Touches: this process's slot, the page cache's size, the live meminfo file.
//! Law: a refusal changes nothing; every process sees a granted charge at its next query.

use crate::map::Machine;
use crate::shared::SLOTS;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The driver hands out memory in steps of this size.
pub const STEP: u64 = 2 << 20;

/// The purpose of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// A context's own memory.
    Context = 0,
    /// `cuMemAlloc` and its relatives.
    Alloc = 1,
    /// The memory that pools reserve.
    Pool = 2,
    /// `cuMemCreate`.
    Vmm = 3,
    /// CUDA arrays.
    Array = 4,
    /// Managed memory that was moved to the device.
    Managed = 5,
    /// Pinned host memory; it costs device memory only on unified memory.
    Host = 6,
}

/// The machine refused the charge: out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

impl Machine {
    /// Charges this process with `bytes`, which the caller has rounded.
    pub fn charge(&self, domain: usize, kind: Kind, bytes: u64) -> Result<(), Refused> {
        self.locked(|| {
            self.reap();
            let slot = self.own_slot()?;
            self.admit(domain, bytes)?;
            self.add(slot, domain, kind, bytes);
            self.write_meminfo();
            Ok(())
        })
    }

    /// Charges as much of `bytes` as is left, in whole steps, and returns the amount. It serves
    /// managed memory, whose rest spills to the host.
    pub fn charge_up_to(&self, domain: usize, kind: Kind, bytes: u64) -> u64 {
        self.locked(|| {
            self.reap();
            let Ok(slot) = self.own_slot() else { return 0 };
            let granted = bytes.min(self.allocatable(domain) / STEP * STEP);
            if self.admit(domain, granted).is_err() {
                return 0;
            }
            self.add(slot, domain, kind, granted);
            self.write_meminfo();
            granted
        })
    }

    /// Releases a charge of `bytes`.
    pub fn discharge(&self, domain: usize, kind: Kind, bytes: u64) {
        self.locked(|| {
            let slot = self.slot.load(Relaxed);
            if slot < SLOTS {
                self.subtract(slot, domain, kind, bytes);
                self.write_meminfo();
            }
        });
    }

    /// Charges a context and counts it.
    pub fn context_created(&self, domain: usize) -> Result<(), Refused> {
        let bytes = self.gpu(domain).context;
        self.charge(domain, Kind::Context, bytes)?;
        self.shared.slots[self.slot.load(Relaxed)].contexts[domain].fetch_add(1, Relaxed);
        Ok(())
    }

    /// Releases the charge of a context.
    pub fn context_destroyed(&self, domain: usize) {
        let slot = self.slot.load(Relaxed);
        if slot < SLOTS {
            let contexts = &self.shared.slots[slot].contexts[domain];
            contexts.store(contexts.load(Relaxed).saturating_sub(1), Relaxed);
        }
        self.discharge(domain, Kind::Context, self.gpu(domain).context);
    }

    /// The most that one more allocation could get, page cache included.
    pub(crate) fn allocatable(&self, domain: usize) -> u64 {
        let gpu = self.gpu(domain);
        if gpu.integrated {
            return self.host_memory().map_or(0, |host| host.mem_available);
        }
        self.cuda_total(domain)
            .saturating_sub(gpu.baseline + self.used_now(domain))
    }

    /// Makes room for `bytes`, or refuses. On unified memory free pages go first, then page cache
    /// shrinks.
    pub(crate) fn admit(&self, domain: usize, bytes: u64) -> Result<(), Refused> {
        if bytes > self.allocatable(domain) || bytes > self.below_limits(domain) {
            return Err(Refused);
        }
        if self.gpu(domain).integrated
            && let Some(host) = self.host_memory()
        {
            let missing = bytes.saturating_sub(host.mem_free);
            self.shared
                .cache
                .store(host.cache.saturating_sub(missing), Relaxed);
        }
        Ok(())
    }

    pub(crate) fn add(&self, slot: usize, domain: usize, kind: Kind, bytes: u64) {
        let slot = &self.shared.slots[slot];
        slot.kinds[domain][kind as usize].fetch_add(bytes, Relaxed);
        slot.total[domain].fetch_add(bytes, Relaxed);
    }

    pub(crate) fn subtract(&self, slot: usize, domain: usize, kind: Kind, bytes: u64) {
        let slot = &self.shared.slots[slot];
        let cell = &slot.kinds[domain][kind as usize];
        let bytes = bytes.min(cell.load(Relaxed));
        cell.fetch_sub(bytes, Relaxed);
        slot.total[domain].fetch_sub(bytes, Relaxed);
    }

    /// This process's slot, taken at its first charge.
    pub(crate) fn own_slot(&self) -> Result<usize, Refused> {
        let own = self.slot.load(Relaxed);
        if own < SLOTS {
            return Ok(own);
        }
        for (i, slot) in self.shared.slots.iter().enumerate() {
            if slot.image.load(Acquire) == 0 && crate::alive::hold(self.alive, i) {
                slot.clear();
                slot.pid.store(u64::from(std::process::id()), Relaxed);
                crate::limits::Cgroup::own().put(slot);
                slot.image.store(self.image, Release);
                self.shared.slots_high.fetch_max(i as u64 + 1, Release);
                self.slot.store(i, Relaxed);
                return Ok(i);
            }
        }
        Err(Refused)
    }

    /// Frees the memory of dead processes. The caller holds the lock.
    pub(crate) fn reap(&self) {
        let mut someone_died = false;
        for i in 0..self.slots_high() {
            if !self.slot_is_alive(i) {
                crate::alive::release(self.alive, i);
                self.shared.slots[i].clear();
                self.forget_holder(i);
                someone_died = true;
            }
        }
        if someone_died {
            self.write_meminfo();
        }
    }

    /// Is the slot free, this program's, or held by a process that still runs?
    pub(crate) fn slot_is_alive(&self, i: usize) -> bool {
        let image = self.shared.slots[i].image.load(Acquire);
        image == 0 || image == self.image || crate::alive::held(self.alive, i)
    }
}
