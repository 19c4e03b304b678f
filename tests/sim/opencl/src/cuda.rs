//! A driver that allocates by libcuda, as NVIDIA's might: `opencl-uses-cuda`.
//! Touches: libcuda, by dlopen and dlsym.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

#[expect(
    clippy::disallowed_methods,
    reason = "the simulated driver looks up as a driver does"
)]
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlopen's contract; the library stays loaded.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    // SAFETY: dlsym's contract: a live handle and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Calls a function of libcuda that takes up to three words. True: it has succeeded.
fn call(name: &CStr, words: [usize; 3]) -> bool {
    type Function = unsafe extern "C" fn(usize, usize, usize) -> u32;
    let Some(found) = find(name) else {
        return false;
    };
    // SAFETY: the function takes words in registers; it ignores those that it does not have.
    let function = unsafe { std::mem::transmute::<*mut c_void, Function>(found) };
    // SAFETY: the caller passes what the function of this name takes.
    unsafe { function(words[0], words[1], words[2]) == 0 }
}

/// Allocates in the first device's primary context.
pub(crate) fn allocate(size: usize) -> Option<usize> {
    let mut context: *mut c_void = null_mut();
    let mut at = 0usize;
    let done = call(c"cuInit", [0; 3])
        && call(
            c"cuDevicePrimaryCtxRetain",
            [(&raw mut context) as usize, 0, 0],
        )
        && call(c"cuCtxSetCurrent", [context as usize, 0, 0])
        && call(c"cuMemAlloc_v2", [(&raw mut at) as usize, size, 0]);
    done.then_some(at)
}

/// Frees what `allocate` has returned.
pub(crate) fn free(at: usize) {
    call(c"cuMemFree_v2", [at, 0, 0]);
}
