//! The hook of dlclose.
//! Touches: the table of call sites; libc's function.
//! Law: libc's function gets the caller's own argument, and its result is returned.

use core::ffi::{c_int, c_void};

use crate::interpose::callers;
use crate::loader::dl;
use crate::real::functions;

/// The function that comes after ours. Before glibc 2.34 it lies in libdl, which may come after
/// libc.
pub(crate) fn real() -> Option<functions::dlclose::Real> {
    functions::dlclose::real().or_else(dl::dlclose)
}

/// dlclose: libc's, whose result does not depend on its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = real() else {
        return -1;
    };
    // SAFETY: the caller guarantees dlclose's contract for its handle.
    let failed = unsafe { real(handle) };
    callers::forget_all();
    failed
}
