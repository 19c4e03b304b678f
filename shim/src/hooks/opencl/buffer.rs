//! Buffers and pipes: claims their memory, then calls the driver.
//! Touches: the ledger; the real function, unless the slice has no room.
//!
//! The driver takes the memory of a buffer only when a device first uses it. The claim is made when
//! the buffer is created, because no later call can refuse it in a way that programs expect.

use core::ffi::c_void;

use gpuslice_config::ledger::Kind;

use crate::account::opencl::imports::{self, External};
use crate::account::opencl::{self, Allocate, Made, Request};
use crate::hooks::opencl::properties;
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

/// `clCreateBufferWithProperties`. Memory that is imported is the exporter's while that holds it.
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
    let ask = Allocate::by(&mut ask);
    let request = request(context, size as u64);
    // SAFETY: the caller guarantees null or a list that ends with 0.
    match unsafe { properties::external(properties) } {
        // SAFETY: the list of devices is the caller's own; `code` is null or writable.
        Some(external) => unsafe { import(request, external, ask, code) },
        // SAFETY: the caller guarantees that `code` is null or writable.
        None => unsafe { make(context, size as u64, ask, code) },
    }
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

/// Creates an object that has memory of its own, and asks the driver to report its end.
///
/// # Safety
/// `code` is null or writable.
#[inline(never)]
unsafe fn make(context: cl_context, bytes: u64, ask: Allocate<'_>, code: *mut cl_int) -> cl_mem {
    match opencl::pay(request(context, bytes), ask) {
        Made::Object(object, records) => {
            opencl::follow(object, records);
            object
        }
        // SAFETY: the caller guarantees that `code` is null or writable.
        Made::Refused => unsafe { refused(code) },
    }
}

fn request(context: cl_context, bytes: u64) -> Request {
    Request {
        context,
        bytes,
        kind: Kind::Linear,
    }
}

/// Creates an object whose memory another API has exported.
///
/// # Safety
/// `external` is of the caller's list; `code` is null or writable.
#[inline(never)]
pub(super) unsafe fn import(
    request: Request,
    external: External,
    ask: Allocate<'_>,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the list of devices.
    match unsafe { imports::pay(request, external, ask) } {
        Made::Object(object, _) => object,
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
