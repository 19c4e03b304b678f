//! The runtime's queries for memory and attributes: `cudaMemGetInfo`, `cudaDeviceGetAttribute`.
//! Touches: the real function, then the out-parameters that it has written.

use crate::answer::device;
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
/// As `mem_get_info`.
pub(crate) unsafe fn mem_get_info(
    call: Call<MemGetInfo<usize>>,
    free: *mut usize,
    total: *mut usize,
) -> cudaError_t {
    // SAFETY: the caller's own arguments.
    let code = unsafe { (call.real)(free, total) };
    let Some(runtime) = slice::current() else {
        if code == SUCCESS
            && let Some(copy) = copies::any_driver()
            && device::shares(copy)
        {
            // SAFETY: cudaSuccess, so the runtime has written every place that is not null.
            unsafe { info::show_unsliced(copy, free) };
        }
        return code;
    };
    if code == SUCCESS
        && let Some(copy) = copies::any_driver()
        && let Some(driver) = info::facts(copy)
    {
        let said = (Some(driver.free.get()), Some(driver.total.get()));
        // SAFETY: cudaSuccess, so the runtime has written every place that is not null.
        unsafe { info::show(runtime, copy, said, free, total) };
    }
    code
}

/// `cudaDeviceGetAttribute`.
///
/// # Safety
/// As `mem_get_info`.
pub(crate) unsafe fn device_attribute(
    call: Call<Attribute>,
    value: *mut i32,
    attr: i32,
    device: i32,
) -> cudaError_t {
    // SAFETY: the caller's own arguments.
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
