//! Computes one consistent view of memory from the driver, the host and the slice.
//! Touches: its arguments.
//! Law: total = used + free, free is never more than an allocation can get, and TOTAL is never
//! larger than the driver's. On a card with memory of its own, neither is FREE.

use crate::answer::room::HostRoom;
use crate::host::meminfo::HostMemory;
use crate::ledger;
use crate::slice::host_reserve;
use crate::slice::thresholds::Thresholds;
use crate::slice::{DeviceSlice, Total};
use crate::words::units::Bytes;

/// A device's memory, as the driver reports it.
///
/// CUDA's total is NVML's total without the memory that NVML reports as reserved. Facts from NVML
/// are converted in the same way, so that both agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverMemory {
    /// The memory that all programs together can use.
    pub total: Bytes,
    /// The memory that no program holds.
    pub free: Bytes,
}

impl DriverMemory {
    /// Converts NVML's figures: subtracts the memory that it reports as reserved.
    #[must_use]
    pub const fn of_nvml(total: Bytes, reserved: Bytes, free: Bytes) -> DriverMemory {
        DriverMemory {
            total: total.minus(reserved),
            free,
        }
    }

    /// Limits the figures to a host with this much memory.
    #[must_use]
    pub const fn within(self, host_total: Bytes) -> DriverMemory {
        DriverMemory {
            total: self.total.at_most(host_total),
            free: self.free.at_most(host_total),
        }
    }
}

/// The smaller of the limit that the driver itself enforces and the slice's limit. Only one of the
/// two applies.
#[must_use]
pub const fn limit(driver: Bytes, slice: &DeviceSlice) -> Bytes {
    driver.at_most(slice.memory)
}

/// The host of a device that shares its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its memory at the time of the reading.
    pub memory: HostMemory,
    /// The memory that it keeps for itself, R.
    pub reserve: Option<Bytes>,
    /// The unused part of the promises to other slices.
    pub others_unused: Bytes,
    /// Set while the whole machine waits for memory; `None` if it does not, or if this is unknown.
    pub pressed: Option<Pressed>,
}

/// The larger reserve of a machine that waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressed {
    /// The memory that the host then keeps.
    pub keeps: Bytes,
    /// Requests up to this size are exempt from pressure; the reserve still applies.
    pub beyond: Bytes,
}

impl Host {
    /// The memory that it keeps for itself, R.
    #[must_use]
    pub const fn reserve(&self) -> Bytes {
        match self.reserve {
            Some(reserve) => reserve,
            None => host_reserve::default_reserve(self.memory.total),
        }
    }

    /// The memory that can still be allocated.
    #[must_use]
    pub const fn obtainable(&self) -> Bytes {
        let keeps = match self.pressed {
            Some(pressed) => pressed.keeps.at_least(self.reserve()),
            None => self.reserve(),
        };
        let room = HostRoom {
            available: self.memory.available,
            reserve: keeps,
            promised: self.others_unused,
        };
        room.left()
    }

    /// The host as it would be under memory pressure.
    #[must_use]
    pub const fn under_pressure(&self, thresholds: &Thresholds) -> Host {
        Host {
            pressed: Some(Pressed {
                keeps: thresholds.available(self.reserve()),
                beyond: thresholds.request(),
            }),
            ..*self
        }
    }
}

/// The facts that a view depends on, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The driver's figures.
    pub driver: DriverMemory,
    /// The memory that this slice's processes hold. `None` if there is no count. Then all memory in
    /// use on the device is assumed to be ours, which promises too little, never too much.
    pub own_use: Option<Bytes>,
    /// The host, on unified memory; None on a discrete card.
    pub host: Option<Host>,
}

impl Facts {
    /// The facts of memory that host and device share: the host's, limited by the driver's. `held` is
    /// the memory that the slice's processes hold, with the host memory that is charged to them.
    #[inline]
    #[must_use]
    pub fn of_shared(
        driver: DriverMemory,
        host: Host,
        held: Option<Bytes>,
        budget: &DeviceSlice,
    ) -> Facts {
        Facts {
            driver: driver.within(host.memory.total),
            own_use: held.map(|held| ledger::spoken_for(held, budget.memory)),
            host: Some(host),
        }
    }
}

/// The memory figures that every API reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// The reported total.
    pub total: Bytes,
    /// The memory that can be allocated.
    pub free: Bytes,
    /// The rest: `total` minus `free`.
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

/// The view of a program in the slice.
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
        // What lies between the limit in force and the largest one reads as used.
        Total::Slice => match slice.maximum {
            Some(maximum) => maximum.minus(slice.headroom).at_most(driver.total),
            None => shown_limit,
        }
        .at_least(shown_limit),
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

/// Whether a device's memory is the host's, and both totals describe one machine. That excludes a
/// container's copy of meminfo, and a device that only reports itself as integrated.
#[must_use]
pub fn is_the_hosts(driver_total: Bytes, host_total: Bytes) -> bool {
    let small = driver_total.at_most(host_total);
    let large = driver_total.at_least(host_total);
    // Within 3 %.
    large.minus(small) <= Bytes::new((large.get() / 100).saturating_mul(3))
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
