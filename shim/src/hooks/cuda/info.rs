//! CUDA's queries for memory, and for whether a device shares the host's memory.
//! Touches: the real function, then the out-parameters that the caller has passed.

use gpuslice_config::answer::view::DriverMemory;
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::answer;
use crate::answer::device::{self, Device};
use crate::hooks::cuda::pool;
use crate::hooks::out::{self, Amount};
use crate::log::Piece::Str;
use crate::log::counters;
use crate::real::abi::{ATTRIBUTE_INTEGRATED, CUdevice, CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::slice::{self, runtime::Runtime};

pub(crate) type MemGetInfo<T> = unsafe extern "C" fn(*mut T, *mut T) -> u32;
type TotalMem<T> = unsafe extern "C" fn(*mut T, CUdevice) -> CUresult;
pub(crate) type Attribute = unsafe extern "C" fn(*mut i32, i32, CUdevice) -> u32;

/// `cuMemGetInfo_v2`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
#[inline]
pub(crate) unsafe fn mem_get_info(
    call: Call<MemGetInfo<usize>>,
    free: *mut usize,
    total: *mut usize,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(free, total) };
    let Some(runtime) = slice::current() else {
        if code == SUCCESS && device::shares(call.copy) {
            // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
            unsafe { show_unsliced(call.copy, free) };
        }
        return code;
    };
    if code != SUCCESS {
        return code;
    }
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let said = unsafe { said(free, total) };
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    unsafe { show(runtime, call.copy, said, free, total) };
    code
}

/// `cuMemGetInfo`, which reports 32-bit sizes.
///
/// # Safety
/// As `mem_get_info`.
pub(crate) unsafe fn mem_get_info_v1(
    call: Call<MemGetInfo<u32>>,
    free: *mut u32,
    total: *mut u32,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(free, total) };
    let Some(runtime) = slice::current() else {
        if code == SUCCESS && device::shares(call.copy) {
            // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
            unsafe { show_unsliced(call.copy, free) };
        }
        return code;
    };
    if code == SUCCESS {
        // This driver function truncates at 4 GiB: its successor returns the full values.
        let said = match facts(call.copy) {
            Some(driver) => (Some(driver.free.get()), Some(driver.total.get())),
            // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
            None => unsafe { said(free, total) },
        };
        // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
        unsafe { show(runtime, call.copy, said, free, total) };
    }
    code
}

/// Answers for a current device of unified memory where there is no slice. TOTAL stays unchanged.
///
/// # Safety
/// `free` is null, or the driver has just written to it.
#[cold]
pub(crate) unsafe fn show_unsliced<T: Amount>(copy: CopyId, free: *mut T) {
    // The runtime's number may already be ours, so the driver is queried again.
    let view = facts(copy).and_then(answer::unsliced);
    if let Some(view) = view {
        // SAFETY: the caller guarantees that `free` is null or writable.
        unsafe { out::put(free, view.free) };
    }
}

/// The values that the driver has just written.
///
/// # Safety
/// Both places are null, or the driver has just written to them.
#[inline]
unsafe fn said<T: Amount>(free: *const T, total: *const T) -> (Option<u64>, Option<u64>) {
    // SAFETY: the caller guarantees that `free` is null or written.
    let free = unsafe { out::got(free) };
    // SAFETY: the caller guarantees that `total` is null or written.
    let total = unsafe { out::got(total) };
    (free, total)
}

/// The memory of the current device, as the driver reports it.
pub(crate) fn facts(copy: CopyId) -> Option<DriverMemory> {
    let (mut free, mut total) = (0usize, 0usize);
    let ask = functions::cuMemGetInfo_v2::real(copy)?;
    // SAFETY: cuMemGetInfo_v2's contract.
    let code = unsafe { ask(&raw mut free, &raw mut total) };
    (code == SUCCESS).then(|| answer::driver(total as u64, free as u64))
}

/// The total memory of a device, as the driver reports it.
pub(crate) fn total_of(copy: CopyId, ordinal: CudaOrdinal) -> Option<u64> {
    let mut total = 0usize;
    let ask = functions::cuDeviceTotalMem_v2::real(copy)?;
    let device = CUdevice::try_from(ordinal.0).ok()?;
    // SAFETY: cuDeviceTotalMem_v2's contract.
    let code = unsafe { ask(&raw mut total, device) };
    (code == SUCCESS).then_some(total as u64)
}

/// Answers for the current device. `said`: the driver's own values.
///
/// # Safety
/// Both places are null, or the driver has just written to them.
#[inline]
pub(crate) unsafe fn show<T: Amount>(
    runtime: &Runtime,
    copy: CopyId,
    said: (Option<u64>, Option<u64>),
    free: *mut T,
    total: *mut T,
) {
    pool::settled(copy);
    let ordinal = device::current(copy);
    if ordinal.is_none() {
        counters::FACTS.warn("query", &[Str("the current device is not known")]);
    }
    let Some(device) = ordinal.and_then(|ordinal| device::cuda(runtime, copy, ordinal)) else {
        return;
    };
    let memory = match said {
        (Some(free), Some(total)) => answer::driver(total, free),
        // The caller has passed a null pointer for one value; the other still depends on it.
        (free, total) => {
            let total = total.or_else(|| total_of(copy, ordinal?));
            let Some(total) = total else {
                counters::FACTS.warn("query", &[Str("the total is not known")]);
                return;
            };
            answer::driver(total, free.unwrap_or(total))
        }
    };
    let view = answer::view_of_device(runtime, &device, memory);
    // SAFETY: the caller guarantees that `free` is null or writable.
    unsafe { out::put(free, view.free) };
    // SAFETY: the caller guarantees that `total` is null or writable.
    unsafe { out::put(total, view.total) };
}

/// `cuDeviceTotalMem_v2`.
///
/// # Safety
/// As `mem_get_info`.
pub(crate) unsafe fn device_total_mem(
    call: Call<TotalMem<usize>>,
    bytes: *mut usize,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(bytes, dev) };
    if code == SUCCESS {
        // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
        let said = unsafe { out::got(bytes) };
        // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
        unsafe { show_total(call.copy, said, bytes, dev) };
    }
    code
}

/// `cuDeviceTotalMem`, which reports a 32-bit size.
///
/// # Safety
/// As `mem_get_info`.
pub(crate) unsafe fn device_total_mem_v1(
    call: Call<TotalMem<u32>>,
    bytes: *mut u32,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(bytes, dev) };
    if code == SUCCESS && slice::current().is_some() {
        let whole = device::ordinal(dev).and_then(|ordinal| total_of(call.copy, ordinal));
        // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
        let said = whole.or_else(|| unsafe { out::got(bytes) });
        // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
        unsafe { show_total(call.copy, said, bytes, dev) };
    }
    code
}

/// # Safety
/// `bytes` is null, or the driver has just written to it.
unsafe fn show_total<T: Amount>(copy: CopyId, said: Option<u64>, bytes: *mut T, dev: CUdevice) {
    if let Some(runtime) = slice::current()
        && let Some(said) = said
        && let Some(ordinal) = device::ordinal(dev)
        && let Some(device) = device::cuda(runtime, copy, ordinal)
    {
        let total = total_shown(runtime, &device, said);
        // SAFETY: the caller guarantees that `bytes` is null or writable.
        unsafe { out::put(bytes, total) };
    }
}

/// TOTAL, which does not depend on free memory.
pub(crate) fn total_shown(runtime: &Runtime, device: &Device<'_>, said: u64) -> Bytes {
    answer::view_of_device(runtime, device, answer::driver(said, said)).total
}

/// `cuDeviceGetAttribute`.
///
/// # Safety
/// As `mem_get_info`.
pub(crate) unsafe fn device_attribute(
    call: Call<Attribute>,
    pi: *mut i32,
    attrib: i32,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(pi, attrib, dev) };
    if attrib == ATTRIBUTE_INTEGRATED && code == SUCCESS && !pi.is_null() && hidden(call.copy, dev)
    {
        // SAFETY: CUDA_SUCCESS, so the driver has written to `pi`.
        unsafe { pi.write(0) };
    }
    code
}

/// Whether a device shares the host's memory and must be reported as not integrated.
pub(crate) fn hidden(copy: CopyId, dev: CUdevice) -> bool {
    let Some(runtime) = slice::current().filter(|runtime| runtime.presents_discrete()) else {
        return false;
    };
    device::ordinal(dev)
        .and_then(|ordinal| device::cuda(runtime, copy, ordinal))
        .is_some_and(|device| device.unified == Some(true))
}
