//! Finds a device's budget, and whether the device shares the host's memory.
//! Touches: the driver's identity functions, once for each ordinal.
//! Law: a failed query is not remembered.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use gpuslice_config::ledger::{self, Ledger, SetLimit};
use gpuslice_config::slice::DeviceSlice;
use gpuslice_config::words::device::{CudaOrdinal, DeviceKind, DeviceUuid};

use crate::log::Piece::{Dec, Str};
use crate::log::counters;
use crate::real::abi::{
    ATTRIBUTE_INTEGRATED, CUcontext, CUdevice, CUstream, CUuuid, NVML_UUID_LENGTH, SUCCESS,
    nvmlDevice_t,
};
use crate::real::copies::{self, CopyId};
use crate::real::functions;
use crate::slice::loaded_slice::{Budget, LoadedSlice};

/// A device that the slice limits.
#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    /// Its budget in the slice file. The ledger may have another limit: see `Device::budget`.
    pub(super) written: &'a DeviceSlice,
    /// Whether it shares the host's memory. None: unknown.
    pub(crate) unified: Option<bool>,
    /// The device's number in the slice's ledger. None: there is no ledger, or it has no row for
    /// the device.
    pub(crate) listed: Option<ledger::Device>,
    /// Whether the driver enforces the limit for this process.
    pub(crate) is_held_by_driver: bool,
}

/// The budget of a device at one moment. One answer, and one try of a claim, use one reading.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// The budget, with the limit in force.
    pub(crate) budget: DeviceSlice,
    /// The ledger's limit when it was read.
    pub(crate) set: SetLimit,
}

impl<'a> Device<'a> {
    /// The device, as one that shares the host's memory.
    pub(crate) fn sharing_host(self) -> Device<'a> {
        Device {
            unified: Some(true),
            ..self
        }
    }

    /// The budget in force now: the slice file's, with the limit that the ledger has for the device.
    #[inline(always)]
    pub(crate) fn budget(&self, ledger: Option<&Ledger>) -> Reading {
        let mut budget = *self.written;
        let mut set = SetLimit::NONE;
        if let (Some(ledger), Some(listed)) = (ledger, self.listed) {
            set = ledger.limit(listed);
            if let Some(limit) = set.bytes() {
                budget.memory = limit;
            }
        }
        Reading { budget, set }
    }
}

/// Cached device facts by ordinal, packed into 32 bits; 0 is an empty entry.
///
/// | bits | fact |
/// |---|---|
/// | 0-7 | the number of the device's budget, or [`UNLIMITED`] |
/// | 8 | [`UNIFIED`]: the device shares the host's memory |
/// | 9 | [`HELD`]: the driver enforces the limit |
/// | 15 | [`KNOWN`]: the entry is not empty |
/// | 16-23 | the device's number in the ledger plus one, or 0 if the ledger has no row for it |
const KNOWN: u32 = 0x8000;
const UNIFIED: u32 = 0x100;
const HELD: u32 = 0x200;
const UNLIMITED: u8 = 0xff;

/// Returns the device of the calling thread's current context, or the only device. `alone` caches
/// whether the driver has only one device: 0 unknown, 1 yes, 2 no.
#[inline(always)]
pub(crate) fn current(copy: CopyId) -> Option<CudaOrdinal> {
    let alone = &copies::devices(copy)?.alone;
    match alone.load(Ordering::Relaxed) {
        1 => Some(CudaOrdinal(0)),
        2 => context_device(copy),
        _ => first(copy, alone),
    }
}

#[cold]
#[inline(never)]
fn first(copy: CopyId, alone: &AtomicU8) -> Option<CudaOrdinal> {
    let mut devices = 0;
    let count = functions::cuDeviceGetCount::real(copy)?;
    // SAFETY: cuDeviceGetCount's contract: it writes to locals of its types.
    if unsafe { count(&raw mut devices) } == SUCCESS {
        alone.store(if devices == 1 { 1 } else { 2 }, Ordering::Relaxed);
    }
    let only = (devices == 1).then_some(CudaOrdinal(0));
    only.or_else(|| context_device(copy))
}

#[inline(never)]
fn context_device(copy: CopyId) -> Option<CudaOrdinal> {
    let mut device: CUdevice = 0;
    let ask = functions::cuCtxGetDevice::real(copy)?;
    // SAFETY: cuCtxGetDevice's contract: it writes to locals of its types.
    let code = unsafe { ask(&raw mut device) };
    (code == SUCCESS).then(|| ordinal(device))?
}

/// Returns the device that a stream runs on, or None if the driver does not know the stream or there
/// is no context.
pub(crate) fn of_stream(copy: CopyId, stream: CUstream) -> Option<CudaOrdinal> {
    /// `CU_STREAM_PER_THREAD`: up to this value a stream is one of the current context's own.
    const PER_THREAD: usize = 2;
    let devices = copies::devices(copy)?;
    if devices.alone.load(Ordering::Relaxed) == 1 || stream as usize <= PER_THREAD {
        return current(copy);
    }
    let mut device: CUdevice = 0;
    if let Some(ask) = devices.stream_device(copy) {
        // SAFETY: cuStreamGetDevice's contract; the stream is the caller's own.
        let code = unsafe { ask(stream, &raw mut device) };
        if code == SUCCESS {
            return ordinal(device);
        }
    }
    let mut context = core::ptr::null_mut();
    let ask = functions::cuStreamGetCtx::real(copy)?;
    // SAFETY: cuStreamGetCtx's contract; the stream is the caller's own.
    let code = unsafe { ask(stream, &raw mut context) };
    (code == SUCCESS).then_some(())?;
    within(copy, context, || context_device(copy)).flatten()
}

/// Returns the ordinal of a device of the slice's ledger, if this process has queried it.
#[cold]
pub(crate) fn ordinal_of(copy: CopyId, listed: ledger::Device) -> Option<CudaOrdinal> {
    let wanted = u32::from(listed.number()).saturating_add(1);
    let known = |cell: &AtomicU32| cell.load(Ordering::Relaxed) >> 16 == wanted;
    let place = copies::devices(copy)?.ordinals.iter().position(known)?;
    u32::try_from(place).ok().map(CudaOrdinal)
}

/// Calls `ask` with a context made current for the duration of the call.
pub(crate) fn within<T>(copy: CopyId, context: CUcontext, ask: impl FnOnce() -> T) -> Option<T> {
    let push = functions::cuCtxPushCurrent_v2::real(copy)?;
    let pop = functions::cuCtxPopCurrent_v2::real(copy)?;
    // SAFETY: cuCtxPushCurrent_v2's contract: the driver has just returned this context.
    let code = unsafe { push(context) };
    (code == SUCCESS).then_some(())?;
    let answer = ask();
    let mut popped = core::ptr::null_mut();
    // SAFETY: this thread has just pushed the context that it pops.
    unsafe { pop(&raw mut popped) };
    Some(answer)
}

/// Returns all devices of a driver.
pub(crate) fn all(copy: CopyId) -> impl Iterator<Item = CudaOrdinal> {
    let mut devices = 0;
    if let Some(count) = functions::cuDeviceGetCount::real(copy) {
        // SAFETY: cuDeviceGetCount's contract: it writes to locals of its types.
        unsafe { count(&raw mut devices) };
    }
    (0..u32::try_from(devices).unwrap_or(0)).map(CudaOrdinal)
}

/// Returns whether the calling thread has a current context that is alive.
pub(crate) fn has_context(copy: CopyId) -> bool {
    context_device(copy).is_some()
}

/// Returns the ordinal of a device handle of the driver API.
pub(crate) fn ordinal(device: CUdevice) -> Option<CudaOrdinal> {
    u32::try_from(device).ok().map(CudaOrdinal)
}

/// Returns the slice's entry for a CUDA device. Without an entry, the driver's answer stands.
#[inline(always)]
pub(crate) fn cuda(slice: &LoadedSlice, copy: CopyId, ordinal: CudaOrdinal) -> Option<Device<'_>> {
    let cell = copies::devices(copy)?.ordinals.get(ordinal.0 as usize);
    let mut known = cell.map_or(0, |cell| cell.load(Ordering::Relaxed));
    if known & KNOWN == 0 {
        known = learn(slice, copy, ordinal, cell)?;
    }
    let [_, listed, _, budget] = known.to_be_bytes();
    match budget {
        UNLIMITED => None,
        budget => Some(Device {
            written: slice.numbers(Budget(budget))?,
            unified: Some(known & UNIFIED != 0),
            listed: listed.checked_sub(1).map(ledger::Device::numbered),
            is_held_by_driver: known & HELD != 0,
        }),
    }
}

#[cold]
#[inline(never)]
fn learn(
    slice: &LoadedSlice,
    copy: CopyId,
    ordinal: CudaOrdinal,
    cell: Option<&AtomicU32>,
) -> Option<u32> {
    let known = ask(slice, copy, ordinal)?;
    // A slice that can be read only later may have other budgets.
    if let Some(cell) = cell.filter(|_| !slice.refuses()) {
        cell.store(known, Ordering::Relaxed);
    }
    Some(known)
}

fn ask(slice: &LoadedSlice, copy: CopyId, ordinal: CudaOrdinal) -> Option<u32> {
    let which = Dec(u64::from(ordinal.0));
    let uuid = uuid(copy, ordinal);
    let budget = match uuid {
        Some(bytes) => slice.budget(bytes, None),
        None if slice.treats_all_alike() => slice.unlisted(),
        None => {
            counters::UUID.warn(&[Str("the driver reports no uuid of GPU "), which]);
            return None;
        }
    };
    let Some(budget) = budget else {
        return Some(KNOWN | u32::from(UNLIMITED));
    };
    let configured = slice.numbers(budget)?.integrated == Some(true);
    let asked = if configured {
        Some(true)
    } else {
        integrated(copy, ordinal)
    };
    let Some(unified) = asked else {
        let line = [
            Str("whether GPU "),
            which,
            Str(" is integrated is not known"),
        ];
        counters::FACTS.warn(&line);
        return None;
    };
    let unified_bit = if unified { UNIFIED } else { 0 };
    let listed = uuid.and_then(|bytes| slice.listed(bytes, budget));
    let listed = listed.map_or(0, |listed| u32::from(listed.number()).saturating_add(1));
    // The driver holds no limit of memory that a device shares with the host.
    let is_held = !unified && slice.is_held_by_driver(budget);
    let held = if is_held { HELD } else { 0 };
    Some(listed << 16 | KNOWN | unified_bit | held | u32::from(budget.0))
}

/// Returns the uuid of a CUDA device.
fn uuid(copy: CopyId, ordinal: CudaOrdinal) -> Option<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let device = CUdevice::try_from(ordinal.0).ok()?;
    for ask in [
        functions::cuDeviceGetUuid_v2::real(copy),
        functions::cuDeviceGetUuid::real(copy),
    ]
    .into_iter()
    .flatten()
    {
        // SAFETY: cuDeviceGetUuid's contract: it writes to locals of its types.
        if unsafe { ask(&raw mut uuid, device) } == SUCCESS {
            return Some(uuid.bytes);
        }
    }
    None
}

/// Returns whether the current device shares the host's memory, for processes without a slice. On a
/// machine without such a device, every call after the first costs one load.
#[inline]
pub(crate) fn shares(copy: CopyId) -> bool {
    let Some(shared) = copies::devices(copy).map(|devices| &devices.shared) else {
        return false;
    };
    let known = match shared.load(Ordering::Relaxed) {
        0 => look_at_all(copy, shared),
        known => known,
    };
    known == 1 && current(copy).and_then(|ordinal| integrated(copy, ordinal)) == Some(true)
}

/// Returns whether any device of this driver shares the host's memory: 1 yes, 2 no.
#[cold]
fn look_at_all(copy: CopyId, shared: &AtomicU8) -> u8 {
    let mut devices = 0;
    let Some(count) = functions::cuDeviceGetCount::real(copy) else {
        return 2;
    };
    // SAFETY: cuDeviceGetCount's contract: it writes to locals of its types.
    if unsafe { count(&raw mut devices) } != SUCCESS {
        return 2;
    }
    let mut ordinals = (0..u32::try_from(devices).unwrap_or(0)).map(CudaOrdinal);
    let known = match ordinals.any(|ordinal| integrated(copy, ordinal) == Some(true)) {
        true => 1,
        false => 2,
    };
    shared.store(known, Ordering::Relaxed);
    known
}

/// Returns the driver's value of CU_DEVICE_ATTRIBUTE_INTEGRATED.
pub(crate) fn integrated(copy: CopyId, ordinal: CudaOrdinal) -> Option<bool> {
    let mut integrated = 0;
    let device = CUdevice::try_from(ordinal.0).ok()?;
    let ask = functions::cuDeviceGetAttribute::real(copy)?;
    // SAFETY: cuDeviceGetAttribute's contract: it writes to locals of its types.
    let code = unsafe { ask(&raw mut integrated, ATTRIBUTE_INTEGRATED, device) };
    (code == SUCCESS).then_some(integrated == 1)
}

/// Returns the CUDA device with the uuid of an NVML device, if its driver is loaded and initialised.
pub(crate) fn cuda_twin(bytes: [u8; 16]) -> Option<(CopyId, CudaOrdinal)> {
    let copy = copies::any_driver()?;
    let mut devices = 0;
    let count = functions::cuDeviceGetCount::real(copy)?;
    // SAFETY: cuDeviceGetCount's contract: it writes to locals of its types.
    if unsafe { count(&raw mut devices) } != SUCCESS {
        return None;
    }
    (0..u32::try_from(devices).ok()?)
        .map(CudaOrdinal)
        .find(|ordinal| uuid(copy, *ordinal) == Some(bytes))
        .map(|ordinal| (copy, ordinal))
}

/// Returns the uuid of a device, with the kind that the slice gives it.
pub(crate) fn identity(
    slice: &LoadedSlice,
    copy: CopyId,
    ordinal: CudaOrdinal,
) -> Option<DeviceUuid> {
    let bytes = uuid(copy, ordinal)?;
    Some(slice.identity(bytes, slice.budget(bytes, None)?))
}

/// Returns the identity of an NVML device.
pub(crate) fn nvml_uuid(copy: CopyId, device: nvmlDevice_t) -> Option<DeviceUuid> {
    let mut text = [0u8; NVML_UUID_LENGTH as usize];
    let ask = functions::nvmlDeviceGetUUID::real(copy)?;
    // SAFETY: nvmlDeviceGetUUID's contract; the handle is the caller's own.
    let code = unsafe { ask(device, text.as_mut_ptr().cast(), NVML_UUID_LENGTH) };
    (code == SUCCESS).then_some(())?;
    let text = core::ffi::CStr::from_bytes_until_nul(&text).ok()?;
    text.to_str().ok()?.parse().ok()
}

/// Returns the slice's device that shares the host's memory: the first that the slice lists as
/// integrated, or else one that this process has already queried. Calls no driver.
pub(crate) fn unified(slice: &LoadedSlice) -> Option<Device<'_>> {
    if let Some((budget, uuid)) = slice.integrated() {
        return Some(Device {
            written: slice.numbers(budget)?,
            unified: Some(true),
            listed: slice.listed(uuid.bytes, budget),
            is_held_by_driver: false,
        });
    }
    let known = copies::all_devices()
        .flat_map(|devices| &devices.ordinals)
        .map(|known| known.load(Ordering::Relaxed))
        .find(|known| known & (KNOWN | UNIFIED) == KNOWN | UNIFIED)?;
    let [_, listed, _, budget] = known.to_be_bytes();
    Some(Device {
        written: slice.numbers(Budget(budget))?,
        unified: Some(true),
        listed: listed.checked_sub(1).map(ledger::Device::numbered),
        is_held_by_driver: false,
    })
}

/// The slice's entry for an NVML device. None: there is no entry, and the driver's answer stands.
pub(crate) fn nvml(slice: &LoadedSlice, uuid: DeviceUuid) -> Option<Device<'_>> {
    let place = slice.budget(uuid.bytes, Some(uuid.kind))?;
    let budget = slice.numbers(place)?;
    let unified = match (uuid.kind, budget.integrated) {
        // A MIG instance has memory of its own.
        (DeviceKind::Mig, _) => Some(false),
        (DeviceKind::Gpu, Some(integrated)) => Some(integrated),
        (DeviceKind::Gpu, None) => {
            cuda_twin(uuid.bytes).and_then(|(copy, ordinal)| integrated(copy, ordinal))
        }
    };
    let listed = slice.listed(uuid.bytes, place);
    Some(Device {
        written: budget,
        unified,
        listed,
        is_held_by_driver: unified == Some(false) && slice.is_held_by_driver(place),
    })
}
