//! Hooks of the two calls by which PyTorch's allocator grows, cudaMalloc and cuMemCreate.
//! Touches: the real function, unless the allocator is asked to free its cache.

use core::ffi::{c_ulonglong, c_void};

use crate::account::reclaim;
use crate::hooks::cuda::vmm;
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUresult, cudaError_t};
use crate::real::copies;
use crate::real::functions::Call;

type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> cudaError_t;
type Create = unsafe extern "C" fn(*mut c_ulonglong, usize, *const c_void, c_ulonglong) -> CUresult;

/// `cudaMalloc`. The memory is charged in the hook of the driver's function, which the runtime
/// calls.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn malloc(
    call: Call<Malloc>,
    place: *mut *mut c_void,
    size: usize,
    caller: usize,
) -> cudaError_t {
    if reclaim::is_wanted()
        && let Some(driver) = copies::any_driver()
        && reclaim::asks(driver, size as u64, caller)
    {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    unsafe { (call.real)(place, size) }
}

/// `cuMemCreate`.
///
/// # Safety
/// As `malloc`.
pub(crate) unsafe fn create(
    call: Call<Create>,
    handle: *mut c_ulonglong,
    size: usize,
    properties: *const c_void,
    flags: c_ulonglong,
    caller: usize,
) -> CUresult {
    if reclaim::is_wanted() && reclaim::asks(call.copy, size as u64, caller) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // SAFETY: the caller guarantees cuMemCreate's contract, which is that of `vmm::create`.
    unsafe { vmm::create(call, handle, size, properties, flags) }
}
