//! Turns the facts (the driver's numbers, the ledger, the host) into an answer with `view`.
//! Touches: the slice's ledger; the host's meminfo on unified memory; the caller's out-parameters.
//! Law: decides nothing itself; writes only where the caller has a place.

pub(crate) mod device;
pub(crate) mod host;
pub(crate) mod meminfo_file;
pub(crate) mod promises;

use gpuslice_config::ledger;
use gpuslice_config::units::Bytes;
use gpuslice_config::view::{DriverMemory, Facts, MemoryView, is_the_hosts, view};

use crate::answer::device::Device;
use crate::answer::host::Reading;
use crate::log::counters;
use crate::log::{self, Level, Piece::Dec, Piece::Str};
use crate::slice::runtime::{self, Runtime};
use crate::slice::slice_ledger;

/// What the slice's processes hold on a device. None: nobody counts, and everything that is used on
/// the device is taken for ours. More than there is: a limit is enforced and this process cannot be
/// counted, so nothing is given and nothing is free.
#[inline]
fn held(runtime: &Runtime, device: &Device<'_>) -> Option<Bytes> {
    let ledger = runtime.ledger()?;
    let listed = device.listed?;
    if ledger.counts(listed) {
        let sum = ledger.sum(listed);
        if sum != Bytes::MAX {
            return Some(sum);
        }
    }
    uncounted(runtime, listed)
}

/// The same for a process that cannot be counted, if it still cannot.
#[cold]
#[inline(never)]
fn uncounted(runtime: &Runtime, listed: ledger::Device) -> Option<Bytes> {
    runtime.ledger_again();
    let ledger = runtime.ledger()?;
    if ledger.is_damaged() {
        slice_ledger::say_damaged(runtime.enforces());
    }
    match ledger {
        ledger if ledger.counts(listed) => Some(ledger.sum(listed)),
        _ => runtime.enforces().then_some(Bytes::MAX),
    }
}

/// How much a request is told of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// What was so less than a millisecond ago; nothing, if nobody has looked.
    Lately,
    /// What is so now.
    Now,
}

/// The facts on which an allocation of unified memory depends, and what of the host's memory is
/// charged to the slice. None: the host says nothing.
pub(crate) fn host_facts(
    runtime: &Runtime,
    device: &Device<'_>,
    moment: Moment,
) -> Option<(Facts, Bytes)> {
    let held = held(runtime, device);
    let reading = match moment {
        Moment::Lately => host::lately(runtime, held),
        Moment::Now => host::just_now(runtime, device, held),
    }?;
    let everything = DriverMemory {
        total: Bytes::MAX,
        free: Bytes::MAX,
    };
    Some((shared(device, &reading, held, everything), reading.charge))
}

/// The facts of memory that host and device share: the host's, within what the driver has.
#[inline]
fn shared(
    device: &Device<'_>,
    reading: &Reading,
    held: Option<Bytes>,
    driver: DriverMemory,
) -> Facts {
    let own_use = held.map(|held| held.plus(reading.charge));
    Facts {
        driver: driver.within(reading.host.memory.total),
        own_use: own_use.map(|held| ledger::spoken_for(held, device.budget.memory)),
        host: Some(reading.host),
    }
}

/// The one answer of a device, as its driver reports it.
#[inline]
pub(crate) fn of(runtime: &Runtime, device: &Device<'_>, driver: DriverMemory) -> MemoryView {
    of_card(runtime, device, driver, &[])
}

/// The same of a card: what is held on its instances is held on it too.
#[inline]
pub(crate) fn of_card(
    runtime: &Runtime,
    device: &Device<'_>,
    driver: DriverMemory,
    instances: &[ledger::Device],
) -> MemoryView {
    let sums = |held: Bytes| match runtime.ledger() {
        Some(ledger) => instances
            .iter()
            .fold(held, |held, instance| held.plus(ledger.sum(*instance))),
        None => held,
    };
    let held = held(runtime, device).map(sums);
    let reading = match device.unified {
        Some(true) => host::now(runtime, device, held, Some(driver.free)),
        _ => None,
    };
    let facts = match reading {
        Some(reading) => shared(device, &reading, held, driver),
        None => Facts {
            driver,
            own_use: held.map(|held| ledger::spoken_for(held, device.budget.memory)),
            host: None,
        },
    };
    let answer = view(&facts, Some(device.budget));
    if log::enabled(Level::Debug) {
        tell(&answer);
    }
    answer
}

/// The answer of a device of unified memory of which NVML says nothing; `total` is CUDA's, where
/// it is known. None: nor does the host.
pub(crate) fn of_host(
    runtime: &Runtime,
    device: &Device<'_>,
    total: Option<u64>,
) -> Option<MemoryView> {
    let driver = DriverMemory {
        total: total.map_or(Bytes::MAX, Bytes::new),
        free: Bytes::MAX,
    };
    let held = held(runtime, device);
    let reading = host::now(runtime, device, held, None)?;
    let facts = shared(device, &reading, held, driver);
    let answer = view(&facts, Some(device.budget));
    if log::enabled(Level::Debug) {
        tell(&answer);
    }
    Some(answer)
}

/// The answer of a device of unified memory where there is no slice: page cache is not used, and
/// the host keeps its reserve. None: what the host says is not of the memory that the driver
/// speaks of, and the driver's answer stands.
pub(crate) fn unsliced(driver: DriverMemory) -> Option<MemoryView> {
    seen_unsliced(driver, Some(driver.free))
}

fn seen_unsliced(driver: DriverMemory, free: Option<Bytes>) -> Option<MemoryView> {
    let host = host::unsliced(runtime::unsliced()?, free)?;
    if !is_the_hosts(driver.total, host.memory.total) {
        let line = [
            Str("the driver's total is "),
            Dec(driver.total.get()),
            Str(", the host's "),
            Dec(host.memory.total.get()),
            Str(": the driver's answers stand"),
        ];
        counters::COPY.say("meminfo", &line);
        return None;
    }
    let facts = Facts {
        driver,
        own_use: None,
        host: Some(host),
    };
    Some(view(&facts, None))
}

/// The same for NVML, which has nothing to say of such a device.
pub(crate) fn unsliced_host(total: Option<u64>) -> Option<MemoryView> {
    if let Some(total) = total {
        return seen_unsliced(driver(total, 0), None);
    }
    let host = host::unsliced(runtime::unsliced()?, None)?;
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
fn tell(answer: &MemoryView) {
    let line = [
        Str("total "),
        Dec(answer.total.get()),
        Str(" free "),
        Dec(answer.free.get()),
        Str(" used "),
        Dec(answer.used.get()),
    ];
    log::say(Level::Debug, "answer", &line, None);
}

/// Facts that the driver has just reported.
pub(crate) fn driver(total: u64, free: u64) -> DriverMemory {
    DriverMemory {
        total: Bytes::new(total),
        free: Bytes::new(free),
    }
}
