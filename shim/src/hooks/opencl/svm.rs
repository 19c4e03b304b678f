//! Shared virtual memory: claims it, then calls the driver; releases it after the driver has freed
//! it.
//! Touches: the ledger; the real function, unless the slice has no room.

use core::ffi::c_void;

use gpuslice_config::ledger::Kind;

use crate::account::opencl::leaving::{self, Leaving};
use crate::account::opencl::{self, Allocate, Made, Request};
use crate::real::opencl::{
    CL_SUCCESS, cl_context, cl_int, clEnqueueSVMFree, clSVMAlloc, clSVMFree,
};

/// `clSVMAlloc`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn allocate(
    real: clSVMAlloc::Real,
    context: cl_context,
    flags: u64,
    size: usize,
    alignment: u32,
) -> *mut c_void {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe { real(context, flags, size, alignment) };
    let request = Request {
        context,
        bytes: size as u64,
        kind: Kind::Linear,
    };
    match opencl::pay(request, Allocate::by(&mut ask)) {
        Made::Object(place, _) => place,
        Made::Refused => core::ptr::null_mut(),
    }
}

/// `clSVMFree`.
///
/// # Safety
/// As `allocate`.
pub(crate) unsafe fn free(real: clSVMFree::Real, context: cl_context, place: *mut c_void) {
    let mut leaving = Leaving::none();
    leaving.add(place);
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    unsafe { real(context, place) };
    if !leaving.freed() {
        leaving::released(place);
    }
}

/// `clEnqueueSVMFree`. Where the program passes no function of its own, the driver frees the
/// memory once the commands before this one are done. It reports that to nobody, so the memory is
/// released now.
///
/// # Safety
/// As `allocate`.
#[expect(clippy::too_many_arguments, reason = "the vendor's own")]
pub(crate) unsafe fn enqueue_free(
    real: clEnqueueSVMFree::Real,
    queue: *mut c_void,
    count: u32,
    places: *const *mut c_void,
    free: *mut c_void,
    data: *mut c_void,
    waits: u32,
    wait: *const *mut c_void,
    event: *mut *mut c_void,
) -> cl_int {
    let there = match places.is_null() || !free.is_null() {
        true => 0,
        false => count as usize,
    };
    // SAFETY: the caller guarantees that the array has this number of pointers.
    let at = |number| unsafe { places.wrapping_add(number).read() };
    let mut leaving = Leaving::none();
    (0..there).for_each(|number| leaving.add(at(number)));
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { real(queue, count, places, free, data, waits, wait, event) };
    if code == CL_SUCCESS {
        if !leaving.freed() {
            (0..there).for_each(|number| leaving::released(at(number)));
        }
    } else if leaving.has_marked() {
        (0..there).for_each(|number| leaving::kept(at(number)));
    }
    code
}
