//! OpenCL's queries of a device's memory.
//! Touches: the real function, then the out-parameter that the caller has passed.

use core::ffi::c_void;

use crate::answer::opencl;
use crate::hooks::cuda::info::total_shown;
use crate::real::opencl::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_SUCCESS, cl_device_id, cl_int,
    clGetDeviceInfo,
};
use crate::slice;

/// `clGetDeviceInfo`. NVIDIA's OpenCL drivers have no query for free memory.
///
/// # Safety
/// The caller guarantees the vendor function's contract.
pub(crate) unsafe fn device_info(
    real: clGetDeviceInfo::Real,
    device: cl_device_id,
    name: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { real(device, name, size, value, size_ret) };
    let is_memory = matches!(
        name,
        CL_DEVICE_GLOBAL_MEM_SIZE | CL_DEVICE_MAX_MEM_ALLOC_SIZE
    );
    if !is_memory || code != CL_SUCCESS || value.is_null() {
        return code;
    }
    let value = value.cast::<u64>();
    // SAFETY: CL_SUCCESS, so the driver has written the number, which has 64 bits.
    let said = unsafe { value.read_unaligned() };
    if let Some(shown) = shown(device, name, said) {
        // SAFETY: CL_SUCCESS, so the caller has room for a number of 64 bits.
        unsafe { value.write_unaligned(shown) };
    }
    code
}

/// The number for the program. None: the driver's answer stands.
fn shown(id: cl_device_id, name: u32, said: u64) -> Option<u64> {
    let slice = slice::current()?;
    let device = opencl::device(slice, id)?;
    let total = match name {
        CL_DEVICE_GLOBAL_MEM_SIZE => said,
        _ => opencl::number(id, CL_DEVICE_GLOBAL_MEM_SIZE)?,
    };
    Some(total_shown(slice, &device, total).get().min(said))
}
