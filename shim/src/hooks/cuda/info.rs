//! CUDA's queries for memory, and for whether a device shares the host's memory.
//! Touches: the real function, then the out-parameters that the caller has passed; the ledger, to
//! correct the charges of this process's pools.

use gpuslice_config::words::units::Bytes;

use crate::answer;
use crate::answer::device::{self, Device};
use crate::answer::driver_memory;
use crate::hooks::cuda::pool;
use crate::hooks::out::{self, Amount};
use crate::log::counters;
use crate::real::abi::{ATTRIBUTE_INTEGRATED, CUdevice, CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::Call;
use crate::slice::{self, loaded_slice::LoadedSlice};

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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(free, total) };
    // SAFETY: `answer` calls it on CUDA_SUCCESS: the driver has written every place that is not
    // null.
    let said = |_| Some(unsafe { said(free, total) });
    // SAFETY: `code` is the driver's for these places.
    unsafe { answer(code, || Some(call.copy), said, free, total) }
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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(free, total) };
    // This driver function truncates at 4 GiB: its successor returns the full values.
    let said = |copy| match driver_memory::current(copy) {
        Some(driver) => Some((Some(driver.free.get()), Some(driver.total.get()))),
        // SAFETY: `answer` calls it on CUDA_SUCCESS: the driver has written every place that is
        // not null.
        None => Some(unsafe { said(free, total) }),
    };
    // SAFETY: `code` is the driver's for these places.
    unsafe { answer(code, || Some(call.copy), said, free, total) }
}

/// FREE and TOTAL as the driver reports them. None: the caller has passed no place for it.
pub(crate) type Said = (Option<u64>, Option<u64>);

/// Changes the answer of a query that has returned `code`. A failed query is left as it is, and so
/// is every answer without a slice, except for memory that the device shares with the host. `said`
/// returns the driver's own values; None: they are not known, and the answer stands.
///
/// # Safety
/// If `code` is CUDA_SUCCESS, both places are null, or have just been written.
#[inline]
pub(crate) unsafe fn answer<T: Amount>(
    code: CUresult,
    copy: impl FnOnce() -> Option<CopyId>,
    said: impl FnOnce(CopyId) -> Option<Said>,
    free: *mut T,
    total: *mut T,
) -> CUresult {
    let slice = slice::current();
    if code != SUCCESS {
        return code;
    }
    let Some(copy) = copy() else { return code };
    match slice {
        Some(slice) => {
            if let Some(said) = said(copy) {
                // SAFETY: `code` is CUDA_SUCCESS: the caller guarantees the places.
                unsafe { show(slice, copy, said, free, total) };
            }
        }
        // SAFETY: `code` is CUDA_SUCCESS: the caller guarantees the place.
        None if device::shares(copy) => unsafe { show_unsliced(copy, free) },
        None => {}
    }
    code
}

/// Answers for a current device of unified memory where there is no slice. TOTAL stays unchanged.
///
/// # Safety
/// `free` is null, or the driver has just written to it.
#[cold]
unsafe fn show_unsliced<T: Amount>(copy: CopyId, free: *mut T) {
    // The runtime's number may already be ours, so the driver is queried again.
    let view = driver_memory::current(copy).and_then(answer::unsliced);
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
unsafe fn said<T: Amount>(free: *const T, total: *const T) -> Said {
    // SAFETY: the caller guarantees that `free` is null or written.
    let free = unsafe { out::got(free) };
    // SAFETY: the caller guarantees that `total` is null or written.
    let total = unsafe { out::got(total) };
    (free, total)
}

/// Answers for the current device. `said`: the driver's own values.
///
/// # Safety
/// Both places are null, or the driver has just written to them.
#[inline]
unsafe fn show<T: Amount>(
    slice: &LoadedSlice,
    copy: CopyId,
    said: Said,
    free: *mut T,
    total: *mut T,
) {
    // The driver returns a pool's unused memory whenever a stream is synchronised, also by calls
    // that are not hooked. So a query corrects the charges of this process's pools first; a process
    // without pools writes nothing here.
    pool::settled(copy);
    let ordinal = device::current(copy);
    if ordinal.is_none() {
        counters::FACTS.warn_text("the current device is not known: the driver's answer stands");
    }
    let Some(device) = ordinal.and_then(|ordinal| device::cuda(slice, copy, ordinal)) else {
        return;
    };
    let memory = match said {
        (Some(free), Some(total)) => answer::driver(total, free),
        // The caller has passed a null pointer for one value; the other still depends on it.
        (free, total) => {
            let total = total.or_else(|| driver_memory::total(copy, ordinal?));
            let Some(total) = total else {
                counters::FACTS.warn_text("the total is not known: the driver's answer stands");
                return;
            };
            answer::driver(total, free.unwrap_or(total))
        }
    };
    let view = answer::view_of_device(slice, &device, memory);
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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(bytes, dev) };
    if code == SUCCESS && slice::current().is_some() {
        let whole =
            device::ordinal(dev).and_then(|ordinal| driver_memory::total(call.copy, ordinal));
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
    if let Some(slice) = slice::current()
        && let Some(said) = said
        && let Some(ordinal) = device::ordinal(dev)
        && let Some(device) = device::cuda(slice, copy, ordinal)
    {
        let total = total_shown(slice, &device, said);
        // SAFETY: the caller guarantees that `bytes` is null or writable.
        unsafe { out::put(bytes, total) };
    }
}

/// TOTAL, which does not depend on free memory.
pub(crate) fn total_shown(slice: &LoadedSlice, device: &Device<'_>, said: u64) -> Bytes {
    answer::view_of_device(slice, device, answer::driver(said, said)).total
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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
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
    let Some(slice) = slice::current().filter(|slice| slice.presents_discrete()) else {
        return false;
    };
    device::ordinal(dev)
        .and_then(|ordinal| device::cuda(slice, copy, ordinal))
        .is_some_and(|device| device.unified == Some(true))
}
