//! Physical memory: charged from its creation until its last handle and its last mapping are gone.
//! Touches: the real function, then the ledger.
//!
//! Handles, mappings, and arrays into which the memory was mapped (`array`) are counted together.
//! Imported memory is charged to its exporter as long as a process of the slice holds it, and then to
//! its importer (`sharing`). A handle that is imported back into its own process counts once more. No
//! call reports the size of imported memory: the exported size is assumed until a mapping goes beyond
//! it, or reveals the size where the exported one was an average of several objects.

use core::ffi::{c_int, c_ulonglong, c_void};

use gpuslice_config::ledger::{Class, Import, Kind};
use gpuslice_config::words::units::Bytes;

use crate::account::physical::{Physical, Whose, drop_reference, forget_tiles, refer};
use crate::account::sharing;
use crate::account::{self, Account, Paid, Request};
use crate::answer::device;
use crate::answer::location::{self, Location};
use crate::hooks::out;
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr, CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::allocations::STEP;
use crate::state::handles::{self, FoundEntry, Space};
use gpuslice_config::ledger::stepped;

type MemHandle = c_ulonglong;
type Create = unsafe extern "C" fn(*mut MemHandle, usize, *const c_void, c_ulonglong) -> CUresult;
type Release = unsafe extern "C" fn(MemHandle) -> CUresult;
type Map = unsafe extern "C" fn(CUdeviceptr, usize, usize, MemHandle, c_ulonglong) -> CUresult;
type Unmap = unsafe extern "C" fn(CUdeviceptr, usize) -> CUresult;
type Retain = unsafe extern "C" fn(*mut MemHandle, *mut c_void) -> CUresult;
type ImportFrom = unsafe extern "C" fn(*mut MemHandle, *mut c_void, c_int) -> CUresult;

/// The start of `CUmemAllocationProp`.
#[repr(C)]
struct AllocationProp {
    kind: i32,
    handles: i32,
    location: i32,
    id: i32,
}

impl AllocationProp {
    /// Whether the driver would accept these properties.
    fn is_valid(&self) -> bool {
        /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
        const PINNED: i32 = 1;
        self.kind == PINNED && !matches!(self.place(), Location::Unknown)
    }

    fn place(&self) -> Location {
        location::of(self.location, self.id)
    }
}

/// `cuMemCreate`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn create(
    call: Call<Create>,
    handle: *mut MemHandle,
    size: usize,
    properties: *const c_void,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(handle, size, properties, flags) };
    if properties.is_null() || size == 0 {
        return ask();
    }
    // SAFETY: the caller guarantees the vendor's struct, which begins with these fields.
    let wanted = unsafe { properties.cast::<AllocationProp>().read() };
    let Some((account, kind)) = payer(call.copy, &wanted) else {
        return ask();
    };
    let request = Request {
        bytes: Bytes::new(size as u64),
        claimed: stepped(size as u64),
        kind,
    };
    let whole = (size as u64).is_multiple_of(STEP);
    let is_valid = || !handle.is_null() && flags == 0 && whole && wanted.is_valid();
    // SAFETY: `pay` calls both closures on CUDA_SUCCESS, so the driver has written the handle to
    // `handle` if that is not null.
    let made = || unsafe { out::got(handle) };
    let record = || match made() {
        Some(made) => {
            created(&account, made, request);
            Paid::Kept
        }
        None => Paid::Released,
    };
    let undo = || {
        let release = functions::cuMemRelease::real(call.copy);
        if let (Some(release), Some(made)) = (release, made()) {
            // SAFETY: the driver has just returned this handle; no other thread knows it.
            unsafe { release(made) };
        }
    };
    account.pay(request, is_valid, ask, record, undo)
}

/// Remembers physical memory that was created.
fn created(account: &Account, handle: MemHandle, request: Request) {
    let physical = Physical {
        steps: request.claimed.get() / STEP,
        references: 1,
        device: account.listed,
        kind: request.kind,
        whose: Whose::Own,
        class: Class::numbered(0),
    };
    if let Some(old) = handles::find(account.state, Space::Physical, handle)
        && old.take()
    {
        // The driver has reused the handle.
        forget_tiles(account.state, handle);
        Physical::unpack(old.payload()).release(account.ledger);
    }
    handles::put_payload(account.state, Space::Physical, handle, physical.pack());
}

/// The account that pays for physical memory, and the kind. None: it is not charged.
fn payer(copy: CopyId, wanted: &AllocationProp) -> Option<(Account, Kind)> {
    let current = || account::by_ordinal(copy, device::current(copy)?);
    match wanted.place() {
        Location::Device(ordinal) => Some((account::by_ordinal(copy, ordinal)?, Kind::Vmm)),
        // On unified memory the host's memory is the device's.
        Location::Host => Some((account::sharing_host(copy)?.1, Kind::Pinned)),
        Location::Unknown => Some((current()?, Kind::Vmm)),
    }
}

/// `cuMemRelease`.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn release(call: Call<Release>, handle: MemHandle) -> CUresult {
    let found = account::find(Space::Physical, handle);
    // SAFETY: the caller guarantees the real function's contract for this argument.
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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(ptr, size, offset, handle, flags) };
    let found = account::find(Space::Physical, handle);
    let is_imported = |found: &FoundEntry| {
        let whose = Physical::unpack(found.payload()).whose;
        matches!(whose, Whose::Imported | Whose::Averaged)
    };
    let imported = found.filter(is_imported);
    let code = match imported {
        Some(imported) => map_imported(call.copy, imported, offset.saturating_add(size), ask),
        None => ask(),
    };
    if code == SUCCESS
        && let Some(state) = account::page()
        && found.is_some()
    {
        handles::put_payload(state, Space::Mapping, ptr, handle);
        // Without a record the mapping counts for good: its end cannot be told.
        refer(state, handle);
    }
    code
}

/// Maps imported memory up to `end`, which reveals its size.
fn map_imported(
    copy: CopyId,
    mut found: FoundEntry,
    end: usize,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let physical = Physical::unpack(found.payload());
    let end = stepped(end as u64).get() / STEP;
    let (device, class) = (physical.device, physical.class);
    let size = |steps: u64| Bytes::new(steps.saturating_mul(STEP));
    let more = size(physical.mapped(end).steps).minus(physical.bytes());
    let account = device::all(copy)
        .filter_map(|ordinal| account::by_ordinal(copy, ordinal))
        .find(|account| account.listed == device);
    if more != Bytes::ZERO
        && let Some(account) = account
        && let Import::Refused { .. } = account.import(class, more)
    {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let code = ask();
    if code != SUCCESS {
        sharing::unimport(device, class, more);
        return code;
    }
    loop {
        // Another thread may have mapped the memory meanwhile, and changed its size.
        let now = Physical::unpack(found.payload());
        let mapped = now.mapped(end);
        if found.replace_payload(mapped.pack()) {
            let counted = size(now.steps.saturating_add(more.get() / STEP));
            sharing::correct_import(device, class, counted, mapped.bytes());
            return code;
        }
        let Some(again) = found.again() else {
            sharing::unimport(device, class, more);
            return code;
        };
        found = again;
    }
}

/// `cuMemUnmap`, of one mapping or of several adjacent ones.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn unmap(call: Call<Unmap>, ptr: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(ptr, size) };
    if code == SUCCESS
        && let Some(state) = account::page()
    {
        let end = ptr.saturating_add(size as u64);
        let mut at = ptr;
        while at < end {
            if let Some(found) = handles::find(state, Space::Mapping, at)
                && found.take()
            {
                let physical = handles::find(state, Space::Physical, found.payload());
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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(handle, addr) };
    // SAFETY: on success the driver has written a handle to `handle`.
    unsafe { one_more(code, handle) };
    code
}

/// `cuMemImportFromShareableHandle`.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn import(
    call: Call<ImportFrom>,
    handle: *mut MemHandle,
    os_handle: *mut c_void,
    kind: c_int,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(handle, os_handle, kind) };
    // SAFETY: on success the driver has written a handle to `handle`.
    if unsafe { one_more(code, handle) } || code != SUCCESS || !account::counts() {
        return code;
    }
    // SAFETY: CUDA_SUCCESS, so the driver has read the handle at `os_handle`.
    let key = unsafe { sharing::key_of_shareable(kind, os_handle) };
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    if let (Some(key), Some(made)) = (key, unsafe { out::got(handle) })
        && !imported(call.copy, made, key.class())
    {
        if let Some(release) = functions::cuMemRelease::real(call.copy) {
            // SAFETY: this thread has just imported it; no other thread knows the handle.
            unsafe { release(made) };
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    code
}

/// Remembers imported memory. False: no process of the slice pays for it, and there is no room.
fn imported(copy: CopyId, handle: MemHandle, class: Class) -> bool {
    /// `CUmemAllocationProp`, with room for later fields.
    #[repr(C)]
    struct Whole {
        start: AllocationProp,
        rest: [u64; 14],
    }
    let nothing = AllocationProp {
        kind: 0,
        handles: 0,
        location: 0,
        id: 0,
    };
    let mut whole = Whole {
        start: nothing,
        rest: [0; 14],
    };
    let Some(ask) = functions::cuMemGetAllocationPropertiesFromHandle::real(copy) else {
        return true;
    };
    // SAFETY: cuMemGetAllocationPropertiesFromHandle's contract: `whole` has room for the struct.
    let code = unsafe { ask((&raw mut whole).cast(), handle) };
    let is_elsewhere = whole.start.location == location::INVISIBLE;
    let payer = (code == SUCCESS && !is_elsewhere)
        .then(|| payer(copy, &whole.start))
        .flatten();
    let Some((account, kind)) = payer else {
        return true;
    };
    let exported = account.ledger.exported(account.listed, class);
    // Records have whole steps. An average, and what Vulkan has exported, may be a part of one.
    let size = exported.map_or(Bytes::ZERO, |exported| stepped(exported.bytes.get()));
    let whose = match account.import(class, size) {
        Import::Refused { .. } => return false,
        Import::Shared if exported.is_some_and(|exported| exported.is_average) => Whose::Averaged,
        Import::Shared => Whose::Imported,
        Import::Paid => Whose::Own,
    };
    let physical = Physical {
        steps: size.get() / STEP,
        references: 1,
        device: account.listed,
        kind: if whose == Whose::Own { Kind::Vmm } else { kind },
        whose,
        class,
    };
    handles::put_payload(account.state, Space::Physical, handle, physical.pack());
    true
}

/// Adds a reference, if the memory has a record. Returns whether it has.
///
/// # Safety
/// On success the driver has written a handle to `handle`, or `handle` is null.
unsafe fn one_more(code: CUresult, handle: *const MemHandle) -> bool {
    if code == SUCCESS
        && let Some(state) = account::page()
        // SAFETY: the caller guarantees that `handle` is null or written.
        && let Some(handle) = unsafe { out::got(handle) }
        && handles::find(state, Space::Physical, handle).is_some()
    {
        refer(state, handle);
        return true;
    }
    false
}
