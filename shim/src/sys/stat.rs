//! File metadata as the kernel writes it, for the program.
//! Touches: the kernel.

use core::ffi::{CStr, c_void};

use super::{int, syscall};

/// Writes the kernel's `struct stat` of a file; writes nothing if there is no such file.
///
/// # Safety
/// `place` has room for a `struct stat`.
pub(crate) unsafe fn stat_into(path: &CStr, place: *mut c_void) {
    let path = path.as_ptr() as usize;
    // SAFETY: the path ends in NUL (CStr); the caller guarantees the room at `place`.
    let _ = unsafe {
        syscall(
            libc::SYS_newfstatat,
            [int(libc::AT_FDCWD), path, place as usize, 0, 0, 0],
        )
    };
}

/// Writes the kernel's `struct statx` of a file; writes nothing if there is no such file.
///
/// # Safety
/// `place` has room for a `struct statx`.
pub(crate) unsafe fn statx_into(path: &CStr, flags: i32, mask: u32, place: *mut c_void) {
    let (path, place) = (path.as_ptr() as usize, place as usize);
    let (flags, mask) = (flags as usize, mask as usize);
    // SAFETY: the path ends in NUL (CStr); the caller guarantees the room at `place`.
    let _ = unsafe {
        syscall(
            libc::SYS_statx,
            [int(libc::AT_FDCWD), path, flags, mask, place, 0],
        )
    };
}
