//! NVML's lists of processes: in a slice they show only its own processes, with the memory in the
//! ledger.
//! Touches: the ledger; the real function, which is called for its return code, never for its list.
//! Law: no neighbour's process is revealed, not even in the array behind the end of the list.

use core::ptr::null_mut;

use gpuslice_config::ledger::{Ledger, Record};
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};

use crate::answer::device;
use crate::real::abi::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_NOT_FOUND, NVML_ERROR_NOT_SUPPORTED,
    NVML_PROCESS_DETAIL_LIST_V1, SUCCESS, nvmlDevice_t, nvmlProcessDetail_v1_t,
    nvmlProcessDetailList_v1_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlReturn_t,
};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::slice::{self, loaded_slice::LoadedSlice};

type Ask<T> = unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut T) -> nvmlReturn_t;
type AskDetail =
    unsafe extern "C" fn(nvmlDevice_t, *mut nvmlProcessDetailList_v1_t) -> nvmlReturn_t;

/// The largest number of instances of a card.
const INSTANCES: usize = 8;

/// A device whose process list is the slice's. The list of a card that MIG has divided is that of
/// its instances.
struct Listed {
    ledger: &'static Ledger,
    card: Place,
    instances: [Option<Place>; INSTANCES],
}

/// A device in the ledger, and the MIG instance that its processes run in.
#[derive(Clone, Copy)]
struct Place {
    uuid: DeviceUuid,
    instance: Instance,
}

/// The MIG instance that a process runs in.
#[derive(Clone, Copy)]
struct Instance {
    gpu: u32,
    compute: u32,
}

/// The form of a record in each layout.
pub(crate) trait Row: Copy {
    #[doc(hidden)]
    fn row(pid: u32, used: u64, gpu: u32, compute: u32) -> Self;
}

impl Row for nvmlProcessInfo_v1_t {
    fn row(pid: u32, used: u64, _: u32, _: u32) -> Self {
        nvmlProcessInfo_v1_t {
            pid,
            usedGpuMemory: used,
        }
    }
}

impl Row for nvmlProcessInfo_t {
    fn row(pid: u32, used: u64, gpu: u32, compute: u32) -> Self {
        nvmlProcessInfo_t {
            pid,
            usedGpuMemory: used,
            gpuInstanceId: gpu,
            computeInstanceId: compute,
        }
    }
}

impl Row for nvmlProcessDetail_v1_t {
    fn row(pid: u32, used: u64, gpu: u32, compute: u32) -> Self {
        nvmlProcessDetail_v1_t {
            pid,
            usedGpuMemory: used,
            gpuInstanceId: gpu,
            computeInstanceId: compute,
            usedGpuCcProtectedMemory: 0,
        }
    }
}

fn listed(copy: CopyId, device: nvmlDevice_t) -> Option<Listed> {
    let slice = slice::current()?;
    let ledger = slice.ledger()?;
    let (card, kind) = place(slice, copy, device)?;
    let mut listed = Listed {
        ledger,
        card,
        instances: [None; INSTANCES],
    };
    if kind == DeviceKind::Gpu {
        listed.look(slice, copy, device);
    }
    Some(listed)
}

/// A device's place in the ledger, and its kind.
fn place(slice: &LoadedSlice, copy: CopyId, device: nvmlDevice_t) -> Option<(Place, DeviceKind)> {
    let uuid = device::nvml_uuid(copy, device)?;
    let budget = slice.budget(uuid.bytes, Some(uuid.kind))?;
    let place = Place {
        uuid: slice.identity(uuid.bytes, budget),
        instance: instance(copy, device, uuid.kind),
    };
    Some((place, uuid.kind))
}

fn instance(copy: CopyId, device: nvmlDevice_t, kind: DeviceKind) -> Instance {
    let mut instance = Instance {
        gpu: u32::MAX,
        compute: u32::MAX,
    };
    if kind == DeviceKind::Mig {
        if let Some(ask) = functions::nvmlDeviceGetGpuInstanceId::real(copy) {
            // SAFETY: the function's contract; the handle is the caller's own.
            unsafe { ask(device, &raw mut instance.gpu) };
        }
        if let Some(ask) = functions::nvmlDeviceGetComputeInstanceId::real(copy) {
            // SAFETY: the function's contract; the handle is the caller's own.
            unsafe { ask(device, &raw mut instance.compute) };
        }
    }
    instance
}

impl Listed {
    /// Finds the instances of a card.
    fn look(&mut self, slice: &LoadedSlice, copy: CopyId, card: nvmlDevice_t) {
        let Some(ask) = functions::nvmlDeviceGetMigDeviceHandleByIndex::real(copy) else {
            return;
        };
        for (index, found) in (0u32..).zip(&mut self.instances) {
            let mut instance = null_mut();
            // SAFETY: the function's contract; the handle is the caller's own.
            let code = unsafe { ask(card, index, &raw mut instance) };
            match code {
                SUCCESS => *found = place(slice, copy, instance).map(|(place, _)| place),
                // The numbers of instances may have gaps.
                NVML_ERROR_NOT_FOUND => {}
                // The card is not divided.
                _ => return,
            }
        }
    }

    /// The records of the device, each with the instance that its process runs in.
    fn records(&self) -> impl Iterator<Item = (Record, Instance)> + '_ {
        let used = self.ledger.slots().filter(|record| record.used != 0);
        used.filter_map(|record| {
            let mut places = core::iter::once(&self.card).chain(self.instances.iter().flatten());
            let place = places.find(|place| record.device == Some(place.uuid))?;
            Some((record, place.instance))
        })
    }

    /// Writes as many records as there is room for, and the number of all records.
    ///
    /// # Safety
    /// `count` is writable and holds the room in `infos`; `infos` has that room.
    unsafe fn write<T: Row>(&self, count: *mut u32, infos: *mut T) -> nvmlReturn_t {
        // SAFETY: the caller guarantees `count`.
        let room = unsafe { count.read() };
        let mut there = 0u32;
        for (record, Instance { gpu, compute }) in self.records() {
            if there < room {
                let row = T::row(record.pid, record.used, gpu, compute);
                let place = infos.wrapping_add(there as usize);
                // SAFETY: the caller guarantees room for `room` rows, and `there` is less.
                unsafe { place.write(row) };
            }
            there = there.saturating_add(1);
        }
        // SAFETY: the caller guarantees `count`.
        unsafe { count.write(there) };
        match there > room {
            true => NVML_ERROR_INSUFFICIENT_SIZE,
            false => SUCCESS,
        }
    }
}

/// Whether the driver can list processes, or cannot because memory is unified.
fn answerable(code: nvmlReturn_t) -> bool {
    matches!(
        code,
        SUCCESS | NVML_ERROR_INSUFFICIENT_SIZE | NVML_ERROR_NOT_SUPPORTED
    )
}

/// `nvmlDeviceGetComputeRunningProcesses` of every version.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn compute<T: Row>(
    call: Call<Ask<T>>,
    device: nvmlDevice_t,
    count: *mut u32,
    infos: *mut T,
) -> nvmlReturn_t {
    // SAFETY: `count` is not null, so the contract guarantees a number there.
    let room = (!count.is_null()).then(|| unsafe { count.read() });
    let writable = room.is_some_and(|room| room == 0 || !infos.is_null());
    let listed = listed(call.copy, device).filter(|_| writable);
    let Some(listed) = listed else {
        // SAFETY: the caller guarantees the real function's contract for these arguments.
        return unsafe { (call.real)(device, count, infos) };
    };
    let mut none = 0u32;
    // SAFETY: the function's contract: a count of 0 needs no array.
    let code = unsafe { (call.real)(device, &raw mut none, null_mut()) };
    if !answerable(code) {
        return code;
    }
    // SAFETY: neither place is null, unless the count is 0.
    unsafe { listed.write(count, infos) }
}

/// `nvmlDeviceGetGraphicsRunningProcesses` and `nvmlDeviceGetMPSComputeRunningProcesses` of every
/// version. The lists are empty: a slice's processes are compute processes.
///
/// # Safety
/// As `compute`.
pub(crate) unsafe fn others<T: Row>(
    call: Call<Ask<T>>,
    device: nvmlDevice_t,
    count: *mut u32,
    infos: *mut T,
) -> nvmlReturn_t {
    if count.is_null() || listed(call.copy, device).is_none() {
        // SAFETY: the caller guarantees the real function's contract for these arguments.
        return unsafe { (call.real)(device, count, infos) };
    }
    let mut none = 0u32;
    // SAFETY: the function's contract: a count of 0 needs no array.
    let code = unsafe { (call.real)(device, &raw mut none, null_mut()) };
    match code {
        SUCCESS | NVML_ERROR_INSUFFICIENT_SIZE => {
            // SAFETY: `count` is not null, so the contract guarantees a number there.
            unsafe { count.write(0) };
            SUCCESS
        }
        code => code,
    }
}

/// `nvmlDeviceGetRunningProcessDetailList`.
///
/// # Safety
/// As `compute`.
pub(crate) unsafe fn detail(
    call: Call<AskDetail>,
    device: nvmlDevice_t,
    list: *mut nvmlProcessDetailList_v1_t,
) -> nvmlReturn_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(device, list) };
    if list.is_null() {
        return ask();
    }
    // SAFETY: not null, and every version of the struct begins with this field.
    let version = unsafe { list.cast::<u32>().read() };
    let listed = listed(call.copy, device).filter(|_| version == NVML_PROCESS_DETAIL_LIST_V1);
    let Some(listed) = listed else {
        return ask();
    };
    // SAFETY: the contract guarantees a struct of the version that it names.
    let wanted = unsafe { list.read() };
    if wanted.procArray.is_null() && wanted.numProcArrayEntries != 0 {
        return ask();
    }
    let mut nobody = nvmlProcessDetailList_v1_t {
        numProcArrayEntries: 0,
        procArray: null_mut(),
        ..wanted
    };
    // SAFETY: the function's contract: a count of 0 needs no array.
    let code = unsafe { (call.real)(device, &raw mut nobody) };
    if !answerable(code) {
        return code;
    }
    let count = list.wrapping_byte_add(core::mem::offset_of!(
        nvmlProcessDetailList_v1_t,
        numProcArrayEntries
    ));
    let count = count.cast::<u32>();
    /// The mode for compute processes.
    const COMPUTE: u32 = 0;
    if wanted.mode != COMPUTE {
        // SAFETY: a field of the caller's struct.
        unsafe { count.write(0) };
        return SUCCESS;
    }
    // SAFETY: a field of the caller's struct, and its array.
    unsafe { listed.write(count, wanted.procArray) }
}
