//! The one view: what the driver and the host say, and what the slice allows, as one answer.
//! Touches: its arguments.
//! Law: total = used + free, free is never more than an allocation can get, and TOTAL is never
//! larger than the driver's; nor is FREE, on a card with memory of its own.

use crate::meminfo::HostMemory;
use crate::policy;
use crate::slice::{DeviceSlice, Total};
use crate::units::Bytes;

/// What the driver says of a device's memory.
///
/// CUDA's total is NVML's without the part that NVML calls reserved; facts taken from NVML
/// are stated without it, so that both are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverMemory {
    /// All that programs can use together.
    pub total: Bytes,
    /// What nobody holds.
    pub free: Bytes,
}

impl DriverMemory {
    /// What NVML says, without the part that it calls reserved.
    #[must_use]
    pub const fn of_nvml(total: Bytes, reserved: Bytes, free: Bytes) -> DriverMemory {
        DriverMemory {
            total: total.minus(reserved),
            free,
        }
    }

    /// What of it can be there on a host with this much memory.
    #[must_use]
    pub const fn within(self, host_total: Bytes) -> DriverMemory {
        DriverMemory {
            total: self.total.at_most(host_total),
            free: self.free.at_most(host_total),
        }
    }
}

/// A limit that the driver enforces by itself: the smaller of it and the slice's, never both.
#[must_use]
pub const fn limit(driver: Bytes, slice: &DeviceSlice) -> Bytes {
    driver.at_most(slice.memory)
}

/// The host of a device that shares its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its memory at this moment.
    pub memory: HostMemory,
    /// What it keeps for itself, R.
    pub reserve: Option<Bytes>,
    /// What other slices were promised and have not used yet.
    pub others_unused: Bytes,
    /// That the whole machine waits for memory. None: it does not, or nobody knows.
    pub pressed: Option<Pressed>,
}

/// A machine that waits for memory keeps more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressed {
    /// What the host keeps then.
    pub keeps: Bytes,
    /// Requests up to this are not meant, as far as the reserve allows.
    pub beyond: Bytes,
}

impl Host {
    /// What it keeps for itself, R.
    #[must_use]
    pub const fn reserve(&self) -> Bytes {
        match self.reserve {
            Some(reserve) => reserve,
            None => policy::default_reserve(self.memory.total),
        }
    }

    /// What can be had of it: MemAvailable, never MemFree, and never swap.
    #[must_use]
    pub const fn obtainable(&self) -> Bytes {
        let keeps = match self.pressed {
            Some(pressed) => pressed.keeps.at_least(self.reserve()),
            None => self.reserve(),
        };
        let rest = self.memory.available.minus(keeps);
        rest.minus(self.others_unused)
    }
}

/// All that an answer depends on, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the driver says.
    pub driver: DriverMemory,
    /// What this slice's processes hold. None where nobody counts: then everything that is used
    /// on the device is taken for ours, which promises too little, never too much.
    pub own_use: Option<Bytes>,
    /// The host, on unified memory; None on a discrete card.
    pub host: Option<Host>,
}

/// What every API is told: one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// The memory there is.
    pub total: Bytes,
    /// The memory that can be had.
    pub free: Bytes,
    /// The rest.
    pub used: Bytes,
}

impl MemoryView {
    fn new(total: Bytes, free: Bytes) -> MemoryView {
        let free = free.at_most(total);
        MemoryView {
            total,
            free,
            used: total.minus(free),
        }
    }
}

/// The answer that a slice gives.
#[must_use]
pub fn view(facts: &Facts, slice: Option<&DeviceSlice>) -> MemoryView {
    let Facts {
        driver,
        own_use,
        host,
    } = *facts;
    let Some(slice) = slice else {
        // On unified memory the driver's free is MemFree, which page cache lowers.
        let free = host.map_or(driver.free, |host| {
            host.memory.available.minus(host.reserve())
        });
        return MemoryView::new(driver.total, free);
    };
    let shown_limit = slice.memory.minus(slice.headroom).at_most(driver.total);
    let total = match slice.total {
        Total::Slice => shown_limit,
        Total::Device => driver.total,
    };
    let (in_use, obtainable) = match host {
        None => (driver.total.minus(driver.free), driver.free),
        Some(host) => {
            let memory = host.memory;
            (memory.total.minus(memory.available), host.obtainable())
        }
    };
    let unspent = shown_limit.minus(own_use.unwrap_or(in_use));
    MemoryView::new(total, unspent.at_most(obtainable))
}

/// Whether a device whose driver says so much is the host's memory, and the host's own numbers
/// are about the same machine: not those of a container's copy, nor of a device that only calls
/// itself integrated.
#[must_use]
pub fn is_the_hosts(driver_total: Bytes, host_total: Bytes) -> bool {
    let (small, large) = match driver_total < host_total {
        true => (driver_total, host_total),
        false => (host_total, driver_total),
    };
    // Within 3 %.
    large.minus(small) <= Bytes::new((large.get() / 100).saturating_mul(3))
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
