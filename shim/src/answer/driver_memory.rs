//! Queries the driver for a device's memory.
//! Touches: the driver's and NVML's functions that report memory.

use gpuslice_config::answer::view::DriverMemory;
use gpuslice_config::words::device::CudaOrdinal;

use crate::answer;
use crate::real::abi::{CUdevice, NVML_MEMORY_V2, SUCCESS, nvmlDevice_t, nvmlMemory_v2_t};
use crate::real::copies::CopyId;
use crate::real::functions;

/// The memory of the current device.
pub(crate) fn current(copy: CopyId) -> Option<DriverMemory> {
    let (mut free, mut total) = (0usize, 0usize);
    let ask = functions::cuMemGetInfo_v2::real(copy)?;
    // SAFETY: cuMemGetInfo_v2's contract: both places are writable.
    let code = unsafe { ask(&raw mut free, &raw mut total) };
    (code == SUCCESS).then(|| answer::driver(total as u64, free as u64))
}

/// The total memory of a device.
pub(crate) fn total(copy: CopyId, ordinal: CudaOrdinal) -> Option<u64> {
    let mut total = 0usize;
    let ask = functions::cuDeviceTotalMem_v2::real(copy)?;
    let device = CUdevice::try_from(ordinal.0).ok()?;
    // SAFETY: cuDeviceTotalMem_v2's contract: `total` is writable.
    let code = unsafe { ask(&raw mut total, device) };
    (code == SUCCESS).then_some(total as u64)
}

/// The memory of an NVML device, with the part that NVML reserves.
pub(crate) fn nvml(copy: CopyId, device: nvmlDevice_t) -> Option<nvmlMemory_v2_t> {
    let ask = functions::nvmlDeviceGetMemoryInfo_v2::real(copy)?;
    let mut memory = nvmlMemory_v2_t {
        version: NVML_MEMORY_V2,
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: nvmlDeviceGetMemoryInfo_v2's contract: the struct is of the version that it names;
    // the handle is NVML's, or the one for which the caller queries NVML.
    let code = unsafe { ask(device, &raw mut memory) };
    (code == SUCCESS).then_some(memory)
}
