//! Physical memory: it is the slice's from its creation until its last handle and its last
//! mapping are gone.
//! Touches: the real function, then the ledger.
//!
//! Handles and mappings are counted together. Memory that was imported is charged to who has
//! exported it; a handle that comes back into the process that has it counts once more.

use core::ffi::{c_int, c_ulonglong, c_void};

use gpuslice_config::ledger::{Device, Kind};
use gpuslice_config::units::Bytes;

use crate::abi::{CUdeviceptr, CUresult, SUCCESS};
use crate::account::{self, Account, Asked, stepped};
use crate::grains::STEP;
use crate::held::{self, Found, Space};
use crate::private::Private;
use crate::real::Slot;
use crate::shapes::admit;
use crate::table::{self, Call};
use crate::{answer, device};

type MemHandle = c_ulonglong;
type Create = unsafe extern "C" fn(*mut MemHandle, usize, *const c_void, c_ulonglong) -> CUresult;
type Release = unsafe extern "C" fn(MemHandle) -> CUresult;
type Map = unsafe extern "C" fn(CUdeviceptr, usize, usize, MemHandle, c_ulonglong) -> CUresult;
type Unmap = unsafe extern "C" fn(CUdeviceptr, usize) -> CUresult;
type Retain = unsafe extern "C" fn(*mut MemHandle, *mut c_void) -> CUresult;
type Import = unsafe extern "C" fn(*mut MemHandle, *mut c_void, c_int) -> CUresult;

/// Physical memory, as it is remembered: 23 bits of steps, 18 of references.
#[derive(Clone, Copy)]
struct Physical {
    steps: u64,
    references: u64,
    device: Device,
    kind: Kind,
}

const REFERENCES: u64 = (1 << 18) - 1;
const STEPS_AT: u32 = 18;
const STEPS: u64 = (1 << 23) - 1;
const DEVICE_AT: u32 = 41;
const KIND_AT: u32 = 47;

impl Physical {
    fn pack(self) -> u64 {
        self.references & REFERENCES
            | (self.steps & STEPS) << STEPS_AT
            | u64::from(self.device.number()) << DEVICE_AT
            | (self.kind as u64) << KIND_AT
    }

    fn unpack(payload: u64) -> Physical {
        let [device, kind] = [DEVICE_AT, KIND_AT].map(|at| (payload >> at).to_le_bytes()[0]);
        let kind = Kind::ALL.get(usize::from(kind & 7)).copied();
        Physical {
            steps: payload >> STEPS_AT & STEPS,
            references: payload & REFERENCES,
            device: Device::numbered(device),
            kind: kind.unwrap_or(Kind::Vmm),
        }
    }

    fn release(self, ledger: &gpuslice_config::ledger::Ledger) {
        let bytes = Bytes::new(self.steps.wrapping_mul(STEP));
        account::give_back(ledger, self.device, bytes, self.kind);
    }
}

/// The start of `CUmemAllocationProp`.
#[repr(C)]
struct Properties {
    kind: i32,
    handles: i32,
    location: i32,
    id: i32,
}

impl Properties {
    /// Whether the driver finds no fault with them.
    fn is_valid(&self) -> bool {
        /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
        const PINNED: i32 = 1;
        /// `CU_MEM_LOCATION_TYPE_DEVICE` to `CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT`.
        const LOCATIONS: core::ops::RangeInclusive<i32> = 1..=4;
        self.kind == PINNED && LOCATIONS.contains(&self.location)
    }
}

/// `cuMemCreate`.
///
/// # Safety
/// The function's own contract: so for every shape.
pub(crate) unsafe fn create(
    call: Call<Create>,
    handle: *mut MemHandle,
    size: usize,
    properties: *const c_void,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(handle, size, properties, flags) };
    if properties.is_null() || size == 0 {
        return ask();
    }
    // SAFETY: the caller promises the struct, which begins with these.
    let wanted = unsafe { properties.cast::<Properties>().read() };
    let Some((account, kind)) = payer(call.slot, &wanted) else {
        return ask();
    };
    let bytes = stepped(size as u64);
    match account.ask_for(Bytes::new(size as u64), bytes, kind) {
        Asked::Granted => {}
        Asked::Uncounted => return ask(),
        Asked::Refused(refusal) => {
            let whole = (size as u64).is_multiple_of(STEP);
            let is_valid = !handle.is_null() && flags == 0 && whole && wanted.is_valid();
            let undo = || {
                let release = table::cuMemRelease::real(call.slot);
                // SAFETY: CUDA_SUCCESS, so the driver has written what is not null.
                if let (Some(release), Some(made)) = (release, unsafe { answer::got(handle) }) {
                    // SAFETY: a handle that the driver has just given, and that nobody else knows.
                    unsafe { release(made) };
                }
            };
            return admit::refuse(&account, bytes, refusal, is_valid, ask, undo);
        }
    }
    let code = ask();
    // SAFETY: the driver writes a handle there if it succeeds.
    let made = unsafe { answer::got(handle) }.filter(|_| code == SUCCESS);
    let Some(made) = made else {
        account.release(bytes, kind);
        return code;
    };
    let physical = Physical {
        steps: bytes.get() / STEP,
        references: 1,
        device: account.listed,
        kind,
    };
    if let Some(old) = held::find(account.private, Space::Physical, made)
        && old.take()
    {
        // The driver has given its handle again.
        Physical::unpack(old.payload()).release(account.ledger);
    }
    held::put_payload(account.private, Space::Physical, made, physical.pack());
    code
}

/// Who pays for physical memory, and as what. None: nobody.
fn payer(slot: Slot, wanted: &Properties) -> Option<(Account, Kind)> {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    const DEVICE: i32 = 1;
    if wanted.location == DEVICE {
        return Some((account::by_handle(slot, wanted.id)?, Kind::Vmm));
    }
    // The host's memory is the device's on unified memory.
    let account = account::of(slot, device::current(slot)?)?;
    account.unified().then_some((account, Kind::Pinned))
}

/// Counts a reference to physical memory that is known.
fn refer(private: &'static Private, handle: MemHandle) {
    while let Some(found) = held::find(private, Space::Physical, handle) {
        let physical = Physical::unpack(found.payload());
        let more = Physical {
            references: physical.references.saturating_add(1).min(REFERENCES),
            ..physical
        };
        if found.replace_payload(more.pack()) {
            return;
        }
    }
}

/// A reference is gone; with the last one the memory is.
fn drop_reference(mut found: Found) {
    loop {
        let physical = Physical::unpack(found.payload());
        if physical.references > 1 {
            let fewer = Physical {
                references: physical.references.wrapping_sub(1),
                ..physical
            };
            if found.replace_payload(fewer.pack()) {
                return;
            }
        } else if found.take() {
            if let Some(ledger) = account::ledger() {
                physical.release(ledger);
            }
            return;
        }
        let Some(now) = found.again() else {
            return;
        };
        found = now;
    }
}

/// `cuMemRelease`.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn release(call: Call<Release>, handle: MemHandle) -> CUresult {
    let found = account::find(Space::Physical, handle);
    // SAFETY: the caller's own argument.
    let code = unsafe { (call.real)(handle) };
    if code == SUCCESS
        && let Some(found) = found
    {
        drop_reference(found);
    }
    code
}

/// `cuMemMap`.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn map(
    call: Call<Map>,
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: MemHandle,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(ptr, size, offset, handle, flags) };
    if code == SUCCESS
        && let Some(private) = account::page()
        && held::find(private, Space::Physical, handle).is_some()
        && held::put_payload(private, Space::Mapping, ptr, handle)
    {
        refer(private, handle);
    }
    code
}

/// `cuMemUnmap`, of one mapping or of several that lie side by side.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn unmap(call: Call<Unmap>, ptr: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(ptr, size) };
    if code == SUCCESS
        && let Some(private) = account::page()
    {
        let end = ptr.saturating_add(size as u64);
        let mut at = ptr;
        while at < end {
            if let Some(found) = held::find(private, Space::Mapping, at)
                && found.take()
            {
                let physical = held::find(private, Space::Physical, found.payload());
                physical.into_iter().for_each(drop_reference);
            }
            at = at.saturating_add(STEP);
        }
    }
    code
}

/// `cuMemRetainAllocationHandle`.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn retain(
    call: Call<Retain>,
    handle: *mut MemHandle,
    addr: *mut c_void,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(handle, addr) };
    // SAFETY: the driver writes a handle there if it succeeds.
    unsafe { one_more(code, handle) };
    code
}

/// `cuMemImportFromShareableHandle`.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn import(
    call: Call<Import>,
    handle: *mut MemHandle,
    os_handle: *mut c_void,
    kind: c_int,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(handle, os_handle, kind) };
    // SAFETY: the driver writes a handle there if it succeeds.
    unsafe { one_more(code, handle) };
    code
}

/// # Safety
/// On success the driver has written a handle there, or the place is null.
unsafe fn one_more(code: CUresult, handle: *const MemHandle) {
    if code == SUCCESS
        && let Some(private) = account::page()
        // SAFETY: the caller's promise.
        && let Some(handle) = unsafe { answer::got(handle) }
    {
        refer(private, handle);
    }
}
