//! From facts to an answer: what the driver said, seen through `view`.
//! Touches: the slice's ledger; the host's meminfo on unified memory; the caller's out-parameters.
//! Law: decides nothing itself; writes only where the caller has a place.

use gpuslice_config::ledger;
use gpuslice_config::units::Bytes;
use gpuslice_config::view::{DriverMemory, Facts, Host, MemoryView, view};

use crate::account;
use crate::device::Device;
use crate::log::{self, Level, Piece::Dec, Piece::Str};
use crate::runtime::Runtime;

/// What the slice's processes hold on a device. None: nobody counts, or something could not be
/// counted, and everything that is used on the device is taken for ours.
#[inline]
fn own_use(runtime: &Runtime, device: &Device<'_>) -> Option<Bytes> {
    let ledger = runtime.ledger()?;
    if ledger.uncounted() != 0 {
        return None;
    }
    let held = ledger.sum(device.listed?);
    Some(account::spoken_for(held, device.budget.memory))
}

/// The same of a card that is cut into instances: what is held there is held on these.
fn own_use_of(
    runtime: &Runtime,
    device: &Device<'_>,
    instances: &[ledger::Device],
) -> Option<Bytes> {
    let own = own_use(runtime, device)?;
    let ledger = runtime.ledger()?;
    let sums = instances.iter().map(|instance| ledger.sum(*instance));
    Some(sums.fold(own, Bytes::plus))
}

/// The facts on which an allocation of unified memory depends. None: the host says nothing.
pub(crate) fn host_facts(runtime: &Runtime, device: &Device<'_>) -> Option<Facts> {
    let driver = DriverMemory {
        total: Bytes::MAX,
        free: Bytes::MAX,
    };
    Some(Facts {
        own_use: own_use(runtime, device),
        ..shared(runtime, driver)?
    })
}

/// What the other slices of this machine were promised and have not used. The promises will
/// be read here.
fn others_unused() -> Bytes {
    Bytes::ZERO
}

/// The one answer of a device, as its driver reports it. None: the driver's answer stands.
#[inline]
pub(crate) fn of(runtime: &Runtime, device: &Device<'_>, driver: DriverMemory) -> MemoryView {
    of_card(runtime, device, driver, &[])
}

/// The same of a card, some of which are cut into instances.
#[inline]
pub(crate) fn of_card(
    runtime: &Runtime,
    device: &Device<'_>,
    driver: DriverMemory,
    instances: &[ledger::Device],
) -> MemoryView {
    let facts = match device.unified {
        Some(true) => shared(runtime, driver),
        _ => None,
    };
    let facts = facts.unwrap_or(Facts {
        driver,
        own_use: None,
        host: None,
    });
    let facts = Facts {
        own_use: own_use_of(runtime, device, instances),
        ..facts
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
    let facts = Facts {
        own_use: own_use(runtime, device),
        ..shared(runtime, driver)?
    };
    let answer = view(&facts, Some(device.budget));
    if log::enabled(Level::Debug) {
        tell(&answer);
    }
    Some(answer)
}

/// The facts of memory that host and device share: the host's, within what the driver has.
fn shared(runtime: &Runtime, driver: DriverMemory) -> Option<Facts> {
    let memory = runtime.host()?;
    Some(Facts {
        driver: driver.within(memory.total),
        own_use: None,
        host: Some(Host {
            memory,
            reserve: runtime.reserve(),
            others_unused: others_unused(),
        }),
    })
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

/// Writes an amount where the caller wants it, as far as it fits there.
///
/// # Safety
/// The place is null, or the driver has just written a T there.
#[inline]
pub(crate) unsafe fn put<T: Amount>(place: *mut T, amount: Bytes) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(T::at_most(amount)) };
    }
}

/// Reads what the driver has written. None where the caller did not want it.
///
/// # Safety
/// The place is null, or the driver has just written a T there.
#[inline]
pub(crate) unsafe fn got<T: Amount>(place: *const T) -> Option<u64> {
    if place.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { place.read() }.into_u64())
}

/// Reads a handle that the driver has written. None where the caller did not want it.
///
/// # Safety
/// The place is null, or the driver has just written a handle there.
pub(crate) unsafe fn got_handle(place: *const *mut core::ffi::c_void) -> Option<u64> {
    if place.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let handle = unsafe { place.read() };
    (!handle.is_null()).then_some(handle as u64)
}

/// An integer in which an API reports an amount.
pub(crate) trait Amount: Copy {
    /// The amount, or the largest that fits.
    fn at_most(amount: Bytes) -> Self;
    /// The amount.
    fn into_u64(self) -> u64;
}

impl Amount for u32 {
    fn at_most(amount: Bytes) -> u32 {
        u32::try_from(amount.get()).unwrap_or(u32::MAX)
    }
    fn into_u64(self) -> u64 {
        u64::from(self)
    }
}

impl Amount for u64 {
    fn at_most(amount: Bytes) -> u64 {
        amount.get()
    }
    fn into_u64(self) -> u64 {
        self
    }
}

impl Amount for usize {
    fn at_most(amount: Bytes) -> usize {
        usize::try_from(amount.get()).unwrap_or(usize::MAX)
    }
    fn into_u64(self) -> u64 {
        self as u64
    }
}
