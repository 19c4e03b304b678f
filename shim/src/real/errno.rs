//! The errno of the calling thread: set where libc lacks a function, and kept around our own calls.
//! Touches: errno; the loader, once.

#![expect(unsafe_code, reason = "errno is behind a pointer of libc's")]

use crate::loader::elf;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The value that a libc function returns on failure.
pub(crate) trait Failure {
    const FAILED: Self;
}

impl Failure for i32 {
    const FAILED: i32 = -1;
}

impl Failure for isize {
    const FAILED: isize = -1;
}

impl Failure for *mut c_void {
    const FAILED: *mut c_void = null_mut();
}

/// The result of a function that this libc lacks, as old ones lack `close_range`. Sets ENOSYS.
#[cold]
#[inline(never)]
pub(crate) fn not_in_libc<T: Failure>() -> T {
    const ENOSYS: i32 = 38;
    if let Some(errno) = errno() {
        // SAFETY: the pointer is to this thread's errno.
        unsafe { errno.write(ENOSYS) };
    }
    T::FAILED
}

/// This thread's errno.
fn errno() -> Option<*mut i32> {
    type ErrnoLocation = unsafe extern "C" fn() -> *mut i32;
    static ERRNO: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut address = ERRNO.load(Ordering::Acquire);
    if address.is_null() {
        let found = elf::following(b"__errno_location");
        address = found.map_or(null_mut(), |found| found as *mut c_void);
        ERRNO.store(address, Ordering::Release);
    }
    // SAFETY: libc's function has this signature; None is the null pointer.
    let place = unsafe { core::mem::transmute::<*mut c_void, Option<ErrnoLocation>>(address) };
    // SAFETY: __errno_location has no preconditions.
    place.map(|place| unsafe { place() })
}

/// Calls a function of libc, and leaves errno as it was.
pub(crate) fn keeping_errno<T>(call: impl FnOnce() -> T) -> T {
    let errno = errno();
    // SAFETY: the pointer is to this thread's errno.
    let before = errno.map(|errno| unsafe { errno.read() });
    let done = call();
    if let (Some(errno), Some(before)) = (errno, before) {
        // SAFETY: as above.
        unsafe { errno.write(before) };
    }
    done
}
