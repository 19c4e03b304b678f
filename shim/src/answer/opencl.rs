//! Finds the slice's device behind an OpenCL device, by its uuid.
//! Touches: the OpenCL driver's queries, once for each device.
//! Law: a failed query is not remembered.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gpuslice_config::ledger;
use gpuslice_config::words::device::DeviceKind;

use crate::answer::device::Device;
use crate::log::counters;
use crate::real::opencl::{
    CL_CONTEXT_DEVICES, CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_TYPE_ALL, CL_DEVICE_UUID_KHR,
    CL_SUCCESS, cl_context, cl_device_id, cl_platform_id, clGetContextInfo, clGetDeviceIDs,
    clGetDeviceInfo,
};
use crate::slice::loaded_slice::{Budget, LoadedSlice};

/// The facts about one device, in a word that is not 0:
///
/// | bits | fact |
/// |---|---|
/// | 0-7 | the number of the device's budget, or [`UNLIMITED`] |
/// | 8 | [`UNIFIED`]: the device shares the host's memory |
/// | 9 | [`HELD`]: the driver enforces the limit |
/// | 15 | [`KNOWN`] |
/// | 16-23 | the device's number in the ledger plus one, or 0 if the ledger has no row for it |
const UNLIMITED: u8 = 0xff;
const UNIFIED: u64 = 0x100;
const HELD: u64 = 0x200;
const KNOWN: u64 = 0x8000;

/// A device whose facts are cached.
struct Cached {
    device: AtomicUsize,
    facts: AtomicU64,
}

/// The number of places for cached devices. A device whose place is taken is queried each time.
const CACHED: usize = 16;
static CACHE: [Cached; CACHED] = [const {
    Cached {
        device: AtomicUsize::new(0),
        facts: AtomicU64::new(0),
    }
}; CACHED];

/// The place of a device in the cache.
fn cached(id: cl_device_id) -> Option<&'static Cached> {
    let mixed = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
    CACHE.get(usize::try_from(mixed).ok()?)
}

/// The platform's only device. 0: not known yet, 1: it has several.
static ONLY: AtomicUsize = AtomicUsize::new(0);
const SEVERAL: usize = 1;
/// The driver's only platform.
static PLATFORM: AtomicUsize = AtomicUsize::new(0);

/// Forgets the devices of a driver that was unloaded, and remembers the platform of the new one.
pub(crate) fn starts(platform: cl_platform_id) {
    for cached in &CACHE {
        cached.device.store(0, Ordering::Release);
        cached.facts.store(0, Ordering::Release);
    }
    ONLY.store(0, Ordering::Release);
    PLATFORM.store(platform as usize, Ordering::Release);
}

/// The slice's entry for a device. Without an entry, the driver's answer stands.
pub(crate) fn device(slice: &LoadedSlice, id: cl_device_id) -> Option<Device<'_>> {
    let known = cached(id)
        .filter(|cached| cached.device.load(Ordering::Acquire) == id as usize)
        .map_or(0, |cached| cached.facts.load(Ordering::Acquire));
    let facts = match known {
        0 => learn(slice, id)?,
        known => known,
    };
    let [budget, _, listed, ..] = facts.to_le_bytes();
    if budget == UNLIMITED {
        return None;
    }
    Some(Device {
        written: slice.numbers(Budget(budget))?,
        unified: Some(facts & UNIFIED != 0),
        listed: listed.checked_sub(1).map(ledger::Device::numbered),
        is_held_by_driver: facts & HELD != 0,
    })
}

#[cold]
#[inline(never)]
fn learn(slice: &LoadedSlice, id: cl_device_id) -> Option<u64> {
    let facts = ask(slice, id)?;
    // A slice that can be read only later may have other budgets.
    if let Some(cached) = cached(id).filter(|_| !slice.refuses()) {
        let (id, order) = (id as usize, Ordering::Acquire);
        let taken = cached
            .device
            .compare_exchange(0, id, Ordering::AcqRel, order);
        if taken.is_ok() || taken == Err(id) {
            cached.facts.store(facts, Ordering::Release);
        }
    }
    Some(facts)
}

fn ask(slice: &LoadedSlice, id: cl_device_id) -> Option<u64> {
    let uuid = uuid(id);
    let found = uuid.and_then(|bytes| Some((bytes, slice.budget(bytes, None)?)));
    let is_listed = found.is_some_and(|(_, budget)| Some(budget) != slice.unlisted());
    let (bytes, budget) = match (found, slice.first()) {
        // A limit is not given up because a device cannot be told from others. It is not known
        // which uuid an instance has in OpenCL.
        (_, Some((budget, listed)))
            if uuid.is_none() || !is_listed && listed.kind == DeviceKind::Mig =>
        {
            counters::UUID.warn_text(
                "an OpenCL device has no uuid that the slice lists: it has the limit of the first",
            );
            (listed.bytes, budget)
        }
        (Some(found), _) => found,
        (None, _) if uuid.is_some() => return Some(KNOWN | u64::from(UNLIMITED)),
        (None, _) => ([0; 16], slice.unlisted()?),
    };
    let configured = slice.numbers(budget)?.integrated == Some(true);
    let unified = configured || number(id, CL_DEVICE_HOST_UNIFIED_MEMORY) == Some(1u32);
    let listed = slice.listed(bytes, budget);
    let listed = listed.map_or(0, |listed| u64::from(listed.number()).saturating_add(1));
    // The driver holds no limit of memory that a device shares with the host.
    let held = !unified && slice.is_held_by_driver(budget);
    let unified = if unified { UNIFIED } else { 0 };
    let held = if held { HELD } else { 0 };
    Some(listed << 16 | KNOWN | unified | held | u64::from(budget.0))
}

fn uuid(id: cl_device_id) -> Option<[u8; 16]> {
    number(id, CL_DEVICE_UUID_KHR)
}

/// A fact about a device, in its type. None: the driver does not have it.
pub(crate) fn number<T: Copy + Default>(id: cl_device_id, name: u32) -> Option<T> {
    let mut value = T::default();
    let ask = clGetDeviceInfo::real()?;
    let place = (&raw mut value).cast();
    // SAFETY: clGetDeviceInfo's contract: the place has room for the size that is passed.
    let code = unsafe { ask(id, name, size_of::<T>(), place, core::ptr::null_mut()) };
    (code == CL_SUCCESS).then_some(value)
}

/// The most devices of a context.
const MOST: usize = 64;

/// Room for the devices of a context.
pub(crate) type Room = MaybeUninit<[cl_device_id; MOST]>;

/// The devices of a context; none, if the driver does not know the context.
pub(crate) fn devices(context: cl_context, room: &mut Room) -> &[cl_device_id] {
    let only = match ONLY.load(Ordering::Acquire) {
        0 => look(),
        known => known,
    };
    let ids = room.as_mut_ptr().cast::<cl_device_id>();
    let mut count = 1;
    if only == SEVERAL {
        count = several(context, ids);
    } else {
        // SAFETY: the array has room for its first element.
        unsafe { ids.write(only as cl_device_id) };
    }
    // SAFETY: the first `count` elements were written.
    unsafe { core::slice::from_raw_parts(ids, count) }
}

/// Writes the devices of a context, and returns their number.
#[inline(never)]
fn several(context: cl_context, ids: *mut cl_device_id) -> usize {
    let Some(ask) = clGetContextInfo::real() else {
        return 0;
    };
    let mut size = 0;
    let room = size_of::<[cl_device_id; MOST]>();
    // SAFETY: clGetContextInfo's contract: the array has the size that is passed.
    let code = unsafe { ask(context, CL_CONTEXT_DEVICES, room, ids.cast(), &raw mut size) };
    if code != CL_SUCCESS {
        return 0;
    }
    let count = size.checked_div(size_of::<cl_device_id>());
    count.unwrap_or(0).min(MOST)
}

/// The platform's only device, or [`SEVERAL`].
#[cold]
#[inline(never)]
fn look() -> usize {
    let platform = PLATFORM.load(Ordering::Acquire) as cl_platform_id;
    let (mut device, mut count) = (core::ptr::null_mut(), 0);
    let Some(ask) = clGetDeviceIDs::real() else {
        return SEVERAL;
    };
    // SAFETY: clGetDeviceIDs' contract: there is room for one device.
    let code = unsafe {
        ask(
            platform,
            CL_DEVICE_TYPE_ALL,
            1,
            &raw mut device,
            &raw mut count,
        )
    };
    if code != CL_SUCCESS || count == 0 {
        return SEVERAL;
    }
    let only = match count {
        1 => device as usize,
        _ => SEVERAL,
    };
    ONLY.store(only, Ordering::Release);
    only
}
