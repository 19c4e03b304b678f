//! The runtime's queries for memory and attributes: `cudaMemGetInfo`, `cudaDeviceGetAttribute`.
//! Touches: the real function, then the out-parameters that it has written.

use crate::answer::driver_memory;
use crate::hooks::cuda::info::{self, Attribute, MemGetInfo};
use crate::real::abi::{ATTRIBUTE_INTEGRATED, SUCCESS, cudaError_t};
use crate::real::copies;
use crate::real::functions::Call;
use crate::slice;

/// `cudaMemGetInfo`.
///
/// The runtime gets its numbers from the driver, mostly through our hooks. So the driver is queried
/// again, lest a view be computed from a view.
///
/// # Safety
/// As `hooks::cuda::info::mem_get_info`.
pub(crate) unsafe fn mem_get_info(
    call: Call<MemGetInfo<usize>>,
    free: *mut usize,
    total: *mut usize,
) -> cudaError_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(free, total) };
    let said = |driver| {
        let memory = driver_memory::current(driver)?;
        Some((Some(memory.free.get()), Some(memory.total.get())))
    };
    // SAFETY: `code` is the runtime's for these places; cudaSuccess and CUDA_SUCCESS are both 0.
    unsafe { info::answer(code, copies::any_driver, said, free, total) }
}

/// `cudaDeviceGetAttribute`.
///
/// # Safety
/// As `hooks::cuda::info::mem_get_info`.
pub(crate) unsafe fn device_attribute(
    call: Call<Attribute>,
    value: *mut i32,
    attr: i32,
    device: i32,
) -> cudaError_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(value, attr, device) };
    if attr == ATTRIBUTE_INTEGRATED
        && code == SUCCESS
        && !value.is_null()
        && slice::current().is_some()
        && copies::any_driver().is_some_and(|copy| info::hidden(copy, device))
    {
        // SAFETY: cudaSuccess, so the runtime has written to `value`.
        unsafe { value.write(0) };
    }
    code
}
