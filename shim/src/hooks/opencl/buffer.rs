//! Buffers and pipes: claims their memory, then calls the driver.
//! Touches: the ledger; the real function, unless the slice has no room.
//!
//! The driver takes the memory of a buffer only when a device first uses it. The claim is made when
//! the buffer is created, because no later call can refuse it in a way that programs expect.

use core::ffi::c_void;

use gpuslice_config::ledger::Kind;

use crate::account::opencl::{self, Allocate, Made, Request};
use crate::real::opencl::{
    CL_MEM_OBJECT_ALLOCATION_FAILURE, cl_context, cl_int, cl_mem, clCreateBuffer, clCreateBufferNV,
    clCreateBufferWithProperties, clCreatePipe,
};

/// `clCreateBuffer`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn create(
    real: clCreateBuffer::Real,
    context: cl_context,
    flags: u64,
    size: usize,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe { real(context, flags, size, host, code) };
    // SAFETY: the caller guarantees that `code` is null or writable.
    unsafe { make(context, size as u64, Allocate::by(&mut ask), code) }
}

/// `clCreateBufferWithProperties`. Memory that is imported is the exporter's.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn with_properties(
    real: clCreateBufferWithProperties::Real,
    context: cl_context,
    properties: *const u64,
    flags: u64,
    size: usize,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe { real(context, properties, flags, size, host, code) };
    // SAFETY: the caller guarantees null or a list that ends with 0.
    if unsafe { imports(properties) } {
        return ask();
    }
    // SAFETY: the caller guarantees that `code` is null or writable.
    unsafe { make(context, size as u64, Allocate::by(&mut ask), code) }
}

/// `clCreateBufferNV`.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn create_nv(
    real: clCreateBufferNV::Real,
    context: cl_context,
    flags: u64,
    more: u64,
    size: usize,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe { real(context, flags, more, size, host, code) };
    // SAFETY: the caller guarantees that `code` is null or writable.
    unsafe { make(context, size as u64, Allocate::by(&mut ask), code) }
}

/// `clCreatePipe`.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn pipe(
    real: clCreatePipe::Real,
    context: cl_context,
    flags: u64,
    packet: u32,
    packets: u32,
    properties: *const isize,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe { real(context, flags, packet, packets, properties, code) };
    let size = u64::from(packet).saturating_mul(u64::from(packets));
    // SAFETY: the caller guarantees that `code` is null or writable.
    unsafe { make(context, size, Allocate::by(&mut ask), code) }
}

/// Whether a list of properties names a handle of external memory.
///
/// # Safety
/// `properties` is null, or a list of pairs that ends with 0.
pub(crate) unsafe fn imports(properties: *const u64) -> bool {
    /// The handle types of cl_khr_external_memory and its relatives.
    const HANDLES: core::ops::RangeInclusive<u64> = 0x2060..=0x2070;
    /// `CL_MEM_DEVICE_HANDLE_LIST_KHR`: its devices follow, up to a 0.
    const DEVICES: u64 = 0x2051;
    if properties.is_null() {
        return false;
    }
    let mut next = properties;
    loop {
        // SAFETY: the caller guarantees the list; its end was not reached yet.
        let name = unsafe { next.read() };
        match name {
            0 => return false,
            name if HANDLES.contains(&name) => return true,
            DEVICES => loop {
                next = next.wrapping_add(1);
                // SAFETY: the caller guarantees a list of devices that ends with 0.
                if unsafe { next.read() } == 0 {
                    next = next.wrapping_add(1);
                    break;
                }
            },
            _ => next = next.wrapping_add(2),
        }
    }
}

/// Creates an object that has memory of its own, and asks the driver to report its end.
///
/// # Safety
/// `code` is null or writable.
#[inline(never)]
unsafe fn make(context: cl_context, bytes: u64, ask: Allocate<'_>, code: *mut cl_int) -> cl_mem {
    let request = Request {
        context,
        bytes,
        kind: Kind::Linear,
    };
    match opencl::pay(request, ask) {
        Made::Object(object, records) => {
            opencl::follow(object, records);
            object
        }
        // SAFETY: the caller guarantees that `code` is null or writable.
        Made::Refused => unsafe { refused(code) },
    }
}

/// The answer to a request for which the slice has no room.
///
/// # Safety
/// `code` is null or writable.
pub(crate) unsafe fn refused(code: *mut cl_int) -> cl_mem {
    if !code.is_null() {
        // SAFETY: not null, so the caller guarantees that it is writable.
        unsafe { code.write(CL_MEM_OBJECT_ALLOCATION_FAILURE) };
    }
    core::ptr::null_mut()
}
