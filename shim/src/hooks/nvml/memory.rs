//! NVML's queries for memory.
//! Touches: the real function, then the out-parameters that the caller has passed.

use gpuslice_config::answer::view::{DriverMemory, MemoryView, limit};
use gpuslice_config::ledger;
use gpuslice_config::words::device::{DeviceKind, is_unified_capability};
use gpuslice_config::words::units::Bytes;

use crate::answer;
use crate::answer::device::{self, Device};
use crate::answer::driver_memory;
use crate::hooks::cuda::info;
use crate::real::abi::{
    NVML_ERROR_NOT_SUPPORTED, NVML_MEMORY_V2, SUCCESS, nvmlDevice_t, nvmlDeviceAttributes_t,
    nvmlMemory_t, nvmlMemory_v2_t, nvmlMemoryLimits_v1_t, nvmlReturn_t,
};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::slice::{self, loaded_slice::LoadedSlice};

type Ask<T> = unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t;

/// The memory that the driver reports.
struct Reported {
    total: u64,
    reserved: u64,
    free: u64,
}

impl From<nvmlMemory_v2_t> for Reported {
    fn from(memory: nvmlMemory_v2_t) -> Reported {
        Reported {
            total: memory.total,
            reserved: memory.reserved,
            free: memory.free,
        }
    }
}

/// The memory that the driver reports, with the part that it reserves.
fn detail(copy: CopyId, device: nvmlDevice_t) -> Option<Reported> {
    driver_memory::nvml(copy, device).map(Reported::from)
}

/// An answer in the struct of the first version.
fn filled(view: &MemoryView) -> nvmlMemory_t {
    nvmlMemory_t {
        total: view.total.get(),
        free: view.free.get(),
        used: view.used.get(),
    }
}

/// `nvmlDeviceGetMemoryInfo`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn memory_info(
    call: Call<Ask<nvmlMemory_t>>,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(device, memory) };
    if memory.is_null() || !answerable(code) {
        return code;
    }
    let said = || {
        (code == SUCCESS).then(|| {
            // This struct does not contain the reserved memory; its successor does.
            detail(call.copy, device).unwrap_or_else(|| {
                // SAFETY: NVML_SUCCESS, so the driver has filled the struct.
                let memory = unsafe { memory.read() };
                Reported {
                    total: memory.total,
                    reserved: 0,
                    free: memory.free,
                }
            })
        })
    };
    let Some(view) = seen(call.copy, device, said) else {
        return code;
    };
    // SAFETY: `memory` is not null, so the caller guarantees a struct there.
    unsafe { memory.write(filled(&view)) };
    SUCCESS
}

/// `nvmlDeviceGetMemoryInfo_v2`.
///
/// # Safety
/// As `memory_info`.
pub(crate) unsafe fn memory_info_v2(
    call: Call<Ask<nvmlMemory_v2_t>>,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(device, memory) };
    if memory.is_null() || !answerable(code) {
        return code;
    }
    // SAFETY: `memory` is not null, and every version of the struct begins with this field.
    let version = unsafe { memory.cast::<u32>().read() };
    if version != NVML_MEMORY_V2 {
        return code;
    }
    let said = || {
        (code == SUCCESS).then(|| {
            // SAFETY: NVML_SUCCESS, so the driver has filled the struct of this version.
            Reported::from(unsafe { memory.read() })
        })
    };
    let Some(view) = seen(call.copy, device, said) else {
        return code;
    };
    let filled = nvmlMemory_v2_t {
        version,
        total: view.total.get(),
        reserved: 0,
        free: view.free.get(),
        used: view.used.get(),
    };
    // SAFETY: the caller guarantees a struct of this version at `memory`.
    unsafe { memory.write(filled) };
    SUCCESS
}

/// Whether the driver has answered, or cannot answer because memory is unified.
fn answerable(code: nvmlReturn_t) -> bool {
    code == SUCCESS || code == NVML_ERROR_NOT_SUPPORTED
}

/// The answer for a device. None: the driver's answer stands.
fn seen(
    copy: CopyId,
    device: nvmlDevice_t,
    said: impl FnOnce() -> Option<Reported>,
) -> Option<MemoryView> {
    let Some(slice) = slice::current() else {
        return seen_unsliced(copy, device);
    };
    let said = said();
    let uuid = device::nvml_uuid(copy, device)?;
    let mut instances = Instances::none();
    if uuid.kind == DeviceKind::Gpu && slice.names_instances() {
        instances.look(slice, copy, device);
    }
    let device = device::nvml(slice, uuid)?;
    // If the driver reports no memory for a whole GPU, the device uses the host's memory.
    let silent = said.as_ref().is_none_or(|said| said.total == 0);
    if device.unified.unwrap_or(silent) {
        let device = device.sharing_host();
        // CUDA's total, if this process can query it, so that both APIs report one value.
        let total = device::cuda_twin(uuid.bytes)
            .and_then(|(copy, ordinal)| driver_memory::total(copy, ordinal));
        return answer::of_host(slice, &device, total);
    }
    let said = said?;
    let driver = DriverMemory::of_nvml(
        Bytes::new(said.total),
        Bytes::new(said.reserved),
        Bytes::new(said.free),
    );
    Some(answer::view_of_card(
        slice,
        &device,
        driver,
        instances.held(),
    ))
}

/// The instances of a card that are listed in the ledger.
struct Instances {
    found: [ledger::Device; INSTANCES],
    count: usize,
}

/// The largest number of instances of a card.
const INSTANCES: usize = 8;

impl Instances {
    const fn none() -> Instances {
        Instances {
            found: [ledger::Device::numbered(0); INSTANCES],
            count: 0,
        }
    }

    fn look(&mut self, slice: &LoadedSlice, copy: CopyId, card: nvmlDevice_t) {
        let Some(ask) = functions::nvmlDeviceGetMigDeviceHandleByIndex::real(copy) else {
            return;
        };
        let instance = |index| {
            let mut instance = core::ptr::null_mut();
            // SAFETY: nvmlDeviceGetMigDeviceHandleByIndex's contract; the handle is the caller's
            // own.
            let code = unsafe { ask(card, index, &raw mut instance) };
            (code == SUCCESS).then_some(())?;
            let uuid = device::nvml_uuid(copy, instance)?;
            let budget = slice.budget(uuid.bytes, Some(uuid.kind))?;
            slice.listed(uuid.bytes, budget)
        };
        let listed = (0u32..8).filter_map(instance);
        for (place, instance) in self.found.iter_mut().zip(listed) {
            *place = instance;
            self.count = self.count.saturating_add(1);
        }
    }

    fn held(&self) -> &[ledger::Device] {
        self.found.get(..self.count).unwrap_or_default()
    }
}

/// The answer where there is no slice: only for a device that shares the host's memory, for which
/// NVML reports no memory or only a carve-out.
fn seen_unsliced(copy: CopyId, device: nvmlDevice_t) -> Option<MemoryView> {
    if !is_of_unified_kind(copy, device) {
        return None;
    }
    let uuid = device::nvml_uuid(copy, device)?;
    let Some((driver, ordinal)) = device::cuda_twin(uuid.bytes) else {
        return answer::unsliced_host(None);
    };
    match device::integrated(driver, ordinal) {
        Some(true) => answer::unsliced_host(driver_memory::total(driver, ordinal)),
        _ => None,
    }
}

/// Whether the device is of a kind that shares the host's memory, as far as NVML can tell: by
/// compute capability, or by name as in the container toolkit.
fn is_of_unified_kind(copy: CopyId, device: nvmlDevice_t) -> bool {
    let (mut major, mut minor) = (0, 0);
    if let Some(ask) = functions::nvmlDeviceGetCudaComputeCapability::real(copy) {
        // SAFETY: nvmlDeviceGetCudaComputeCapability's contract; the handle is the caller's own.
        let code = unsafe { ask(device, &raw mut major, &raw mut minor) };
        if code == SUCCESS {
            return is_unified_capability(major, minor);
        }
    }
    const NAME: u32 = 96;
    let mut name = [0u8; NAME as usize];
    let Some(ask) = functions::nvmlDeviceGetName::real(copy) else {
        return false;
    };
    // SAFETY: nvmlDeviceGetName's contract; the handle is the caller's own.
    let code = unsafe { ask(device, name.as_mut_ptr().cast(), NAME) };
    let named = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    code == SUCCESS && (named(b"(nvgpu)") || named(b"NVIDIA Thor"))
}

/// `nvmlDeviceGetConfComputeProtectedMemoryUsage`.
///
/// # Safety
/// As `memory_info`.
pub(crate) unsafe fn protected_memory(
    call: Call<Ask<nvmlMemory_t>>,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(device, memory) };
    if code == SUCCESS
        && !memory.is_null()
        && let Some((slice, device)) = limited(call.copy, device)
    {
        // SAFETY: NVML_SUCCESS, so the driver has filled the struct.
        let said = unsafe { memory.read() };
        let view = answer::view_of_device(slice, &device, answer::driver(said.total, said.free));
        // SAFETY: NVML_SUCCESS, so the driver has filled the struct.
        unsafe { memory.write(filled(&view)) };
    }
    code
}

/// `nvmlDeviceGetAttributes` and `nvmlDeviceGetAttributes_v2`.
///
/// # Safety
/// As `memory_info`.
pub(crate) unsafe fn attributes(
    call: Call<Ask<nvmlDeviceAttributes_t>>,
    device: nvmlDevice_t,
    attributes: *mut nvmlDeviceAttributes_t,
) -> nvmlReturn_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(device, attributes) };
    if code == SUCCESS
        && !attributes.is_null()
        && let Some((slice, limited)) = limited(call.copy, device)
    {
        let place = attributes
            .wrapping_byte_add(core::mem::offset_of!(nvmlDeviceAttributes_t, memorySizeMB));
        let place = place.cast::<u64>();
        // SAFETY: NVML_SUCCESS, so the driver has filled the struct.
        let said = Bytes::mib(unsafe { place.read() });
        // The field holds the whole instance; the available memory is that less NVML's reserve.
        let said = detail(call.copy, device).map_or(said, |said| {
            Bytes::new(said.total).minus(Bytes::new(said.reserved))
        });
        let total = info::total_shown(slice, &limited, said.get());
        // SAFETY: NVML_SUCCESS, so the driver has filled the struct.
        unsafe { place.write(total.whole_mib()) };
    }
    code
}

/// `nvmlDeviceGetMemoryLimits_v1`: the driver's own limits, which a slice can only lower.
///
/// # Safety
/// As `memory_info`.
pub(crate) unsafe fn memory_limits(
    call: Call<Ask<nvmlMemoryLimits_v1_t>>,
    device: nvmlDevice_t,
    limits: *mut nvmlMemoryLimits_v1_t,
) -> nvmlReturn_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(device, limits) };
    if code == SUCCESS
        && !limits.is_null()
        && let Some((slice, device)) = limited(call.copy, device)
    {
        // SAFETY: NVML_SUCCESS, so the driver has filled the struct.
        let said = unsafe { limits.read() };
        let budget = device.budget(slice.ledger()).budget;
        let lowered = |driver: u64| limit(Bytes::new(driver), &budget).get();
        let filled = nvmlMemoryLimits_v1_t {
            softLimit: lowered(said.softLimit),
            hardLimit: lowered(said.hardLimit),
            ..said
        };
        // SAFETY: NVML_SUCCESS, so the driver has filled the struct.
        unsafe { limits.write(filled) };
    }
    code
}

/// The slice and the device, if the slice limits it.
fn limited(copy: CopyId, device: nvmlDevice_t) -> Option<(&'static LoadedSlice, Device<'static>)> {
    let slice = slice::current()?;
    let uuid = device::nvml_uuid(copy, device)?;
    Some((slice, device::nvml(slice, uuid)?))
}
