//! Turns the facts (the driver's numbers, the ledger, the host) into an answer with `view`.
//! Touches: the slice's ledger; the host's meminfo on unified memory; the caller's out-parameters.
//! Law: decides nothing itself; writes only where the caller passes a place.

pub(crate) mod device;
pub(crate) mod driver_memory;
pub(crate) mod host;
mod host_charge;
pub(crate) mod location;
pub(crate) mod meminfo_file;
pub(crate) mod opencl;
pub(crate) mod promises;
pub(crate) mod vulkan;

use gpuslice_config::answer::view::{DriverMemory, Facts, MemoryView, is_the_hosts, view};
use gpuslice_config::ledger;
use gpuslice_config::slice::DeviceSlice;
use gpuslice_config::words::units::Bytes;

use crate::answer::device::Device;
use crate::answer::host::Reading;
use crate::log::counters;
use crate::log::{self, Level, Piece::Size, Piece::SizeBeside, Piece::Str};
use crate::slice::slice_ledger;
use crate::slice::{self, loaded_slice::LoadedSlice};

/// The memory that the slice's processes hold on a device. None: it is not counted, and all memory
/// in use on the device is taken to be the slice's. `Bytes::MAX`: a limit is enforced and this
/// process cannot be counted, so that no memory is granted or free.
#[inline]
fn held(slice: &LoadedSlice, device: &Device<'_>) -> Option<Bytes> {
    let ledger = slice.ledger()?;
    let listed = device.listed?;
    if ledger.counts(listed) {
        let sum = ledger.sum(listed);
        if sum != Bytes::MAX {
            return Some(sum);
        }
    }
    match device.is_held_by_driver {
        // Where the driver enforces the limit, its numbers are the slice's.
        true => None,
        false => uncounted(slice, listed),
    }
}

/// `held` for a process without a slot: looks for one again first.
#[cold]
#[inline(never)]
fn uncounted(slice: &LoadedSlice, listed: ledger::Device) -> Option<Bytes> {
    slice.ledger_again();
    let ledger = slice.ledger()?;
    if ledger.is_damaged() {
        slice_ledger::say_damaged(slice.enforces());
    }
    match ledger {
        ledger if ledger.counts(listed) => Some(ledger.sum(listed)),
        _ => slice.enforces().then_some(Bytes::MAX),
    }
}

/// How fresh a reading of the host must be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Less than a millisecond old; none, if there is no such reading.
    Lately,
    /// Taken now.
    Now,
}

/// The facts that decide an allocation of unified memory, and the part of the host's memory that is
/// charged to the slice. None: the host cannot be read.
pub(crate) fn host_facts(
    slice: &LoadedSlice,
    device: &Device<'_>,
    budget: &DeviceSlice,
    moment: Moment,
) -> Option<(Facts, Bytes)> {
    let held = held(slice, device);
    let reading = match moment {
        Moment::Lately => host::lately(slice, held),
        Moment::Now => host::just_now(slice, device, budget, held),
    }?;
    let everything = DriverMemory {
        total: Bytes::MAX,
        free: Bytes::MAX,
    };
    Some((shared(budget, &reading, held, everything), reading.charge))
}

/// The facts of memory that host and device share: the host's, limited by the driver's.
#[inline]
fn shared(
    budget: &DeviceSlice,
    reading: &Reading,
    held: Option<Bytes>,
    driver: DriverMemory,
) -> Facts {
    let held = held.map(|held| held.plus(reading.charge));
    Facts::of_shared(driver, reading.host, held, budget)
}

/// The answer for a device, from the memory that its driver reports.
#[inline]
pub(crate) fn view_of_device(
    slice: &LoadedSlice,
    device: &Device<'_>,
    driver: DriverMemory,
) -> MemoryView {
    view_of_card(slice, device, driver, &[])
}

/// The answer for a card: memory held on its instances counts as held on the card, too.
#[inline]
pub(crate) fn view_of_card(
    slice: &LoadedSlice,
    device: &Device<'_>,
    driver: DriverMemory,
    instances: &[ledger::Device],
) -> MemoryView {
    let sums = |held: Bytes| match slice.ledger() {
        Some(ledger) => instances
            .iter()
            .fold(held, |held, instance| held.plus(ledger.sum(*instance))),
        None => held,
    };
    let budget = &device.budget(slice.ledger()).budget;
    let held = held(slice, device).map(sums);
    let reading = match device.unified {
        Some(true) => host::now(slice, device, budget, held, Some(driver.free)),
        _ => None,
    };
    let facts = match reading {
        Some(reading) => shared(budget, &reading, held, driver),
        None => Facts {
            driver,
            own_use: held.map(|held| ledger::spoken_for(held, budget.memory)),
            host: None,
        },
    };
    let answer = view(&facts, Some(budget));
    if log::enabled(Level::Debug) {
        log_answer(&answer);
    }
    answer
}

/// The answer for a device of unified memory for which NVML reports no memory; `total` is CUDA's,
/// where it is known. None: the host cannot be read either, or its total is not known.
pub(crate) fn of_host(
    slice: &LoadedSlice,
    device: &Device<'_>,
    total: Option<u64>,
) -> Option<MemoryView> {
    let driver = DriverMemory {
        total: total.map_or(Bytes::MAX, Bytes::new),
        free: Bytes::MAX,
    };
    let budget = &device.budget(slice.ledger()).budget;
    let held = held(slice, device);
    let reading = host::now(slice, device, budget, held, None)?;
    if total.is_none() && !reading.has_total() {
        return None;
    }
    let facts = shared(budget, &reading, held, driver);
    let answer = view(&facts, Some(budget));
    if log::enabled(Level::Debug) {
        log_answer(&answer);
    }
    Some(answer)
}

/// The answer for a device of unified memory without a slice: page cache does not count as used,
/// and the host keeps its reserve. None: the host's memory is not the memory that the driver
/// reports on, and the driver's answer stands.
pub(crate) fn unsliced(driver: DriverMemory) -> Option<MemoryView> {
    seen_unsliced(driver, Some(driver.free))
}

fn seen_unsliced(driver: DriverMemory, free: Option<Bytes>) -> Option<MemoryView> {
    let host = host::unsliced(slice::unsliced()?, free)?;
    if !is_the_hosts(driver.total, host.memory.total) {
        let line = [
            Str("the driver's total is "),
            SizeBeside(driver.total, host.memory.total),
            Str(", the host's "),
            SizeBeside(host.memory.total, driver.total),
            Str(": the driver's answers stand"),
        ];
        counters::COPY.warn(&line);
        return None;
    }
    let facts = Facts {
        driver,
        own_use: None,
        host: Some(host),
    };
    Some(view(&facts, None))
}

/// `unsliced` for NVML, which reports no memory for such a device.
pub(crate) fn unsliced_host(total: Option<u64>) -> Option<MemoryView> {
    if let Some(total) = total {
        return seen_unsliced(driver(total, 0), None);
    }
    let host = host::unsliced(slice::unsliced()?, None)?;
    let facts = Facts {
        driver: DriverMemory {
            total: host.memory.total,
            free: Bytes::ZERO,
        },
        own_use: None,
        host: Some(host),
    };
    Some(view(&facts, None))
}

#[cold]
fn log_answer(answer: &MemoryView) {
    let line = [
        Str("answered: total "),
        Size(answer.total),
        Str(", free "),
        Size(answer.free),
        Str(", used "),
        Size(answer.used),
    ];
    log::say(Level::Debug, &line, None);
}

/// Facts that the driver has just reported.
pub(crate) fn driver(total: u64, free: u64) -> DriverMemory {
    DriverMemory {
        total: Bytes::new(total),
        free: Bytes::new(free),
    }
}
