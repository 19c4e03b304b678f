//! Hooks of `fstat` and its kin: once opened, the slice's meminfo looks like the file that the
//! program opened, so that programs that compare it with the path (`cp`, `install`) find them
//! equal.
//! Touches: the real function; then the struct that it has written, if that describes a meminfo of
//! ours.
//! Law: async-signal-safe: no lock, no malloc. While no meminfo is open, it costs one load.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::answer::meminfo_file;
use crate::real::functions::Call;

type Stat = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
type StatOfVersion = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;
type StatX = unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint, *mut c_void) -> c_int;

const AT_EMPTY_PATH: c_int = 0x1000;

/// `fstat` and `fstat64`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn of_descriptor(call: Call<Stat>, fd: c_int, place: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(fd, place) };
    if code == 0 && meminfo_file::was_shown() {
        // SAFETY: the real function has succeeded, so it has written a struct to `place`.
        unsafe { meminfo_file::told_of(fd, place) };
    }
    code
}

/// `__fxstat` and `__fxstat64`: the names before glibc 2.33. The version is the struct's; all
/// versions that libc accepts have the kernel's layout.
///
/// # Safety
/// As `of_descriptor`.
pub(crate) unsafe fn of_version(
    call: Call<StatOfVersion>,
    version: c_int,
    fd: c_int,
    place: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(version, fd, place) };
    if code == 0 && meminfo_file::was_shown() {
        // SAFETY: the real function has succeeded, so it has written a struct to `place`.
        unsafe { meminfo_file::told_of(fd, place) };
    }
    code
}

/// `statx` of a descriptor, as Rust and node call it.
///
/// # Safety
/// As `of_descriptor`.
pub(crate) unsafe fn extended(
    call: Call<StatX>,
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    place: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(folder, path, flags, mask, place) };
    if code == 0 && flags & AT_EMPTY_PATH != 0 && meminfo_file::was_shown() {
        // SAFETY: the real function has read the path, or it is null, which counts as empty.
        let is_of_the_folder = path.is_null() || unsafe { path.read() } == 0;
        if is_of_the_folder {
            // SAFETY: the real function has succeeded, so it has written a struct to `place`.
            unsafe { meminfo_file::told_more_of(folder, flags & !AT_EMPTY_PATH, mask, place) };
        }
    }
    code
}
