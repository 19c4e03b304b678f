//! Hooks of opened files and streams: inside a slice of unified memory, `/proc/meminfo` shows the
//! slice's memory.
//! Touches: the real function; then the descriptor, if it is the host's meminfo or a model file.
//! Law: a program may call these from a signal handler, from a child of vfork, or before main: no
//! lock, no allocation, no call of the loader. errno stays as the real function left it. A file
//! that is neither `meminfo` nor a model costs a look at the flags and at the end of the path.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::answer::meminfo_file;
use crate::loader::elf;
use crate::page_cache;
use crate::real::errno::keeping_errno;
use crate::real::functions::Call;
use crate::slice;

type Open = unsafe extern "C" fn(*const c_char, c_int, c_uint) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint) -> c_int;
type Open2 = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
type OpenAt2 = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
type Freopen = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void;

const O_ACCMODE: c_int = 3;
const O_CREAT: c_int = 0o100;
/// The bit of O_TMPFILE that O_DIRECTORY does not have.
const TMPFILE: c_int = 0o20_000_000;

/// The mode, where the caller has passed one: libc reads it in the same two cases.
fn mode_of(flags: c_int, mode: c_uint) -> c_uint {
    match flags & (O_CREAT | TMPFILE) {
        0 => 0,
        _ => mode,
    }
}

/// `open` and `open64`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
#[inline(always)]
pub(crate) unsafe fn open(
    call: Call<Open>,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let descriptor = unsafe { (call.real)(path, flags, mode_of(flags, mode)) };
    // SAFETY: the real function has read the path.
    unsafe { opened(descriptor, path, flags) };
    descriptor
}

/// `openat` and `openat64`.
///
/// # Safety
/// As `open`.
#[inline(always)]
pub(crate) unsafe fn open_at(
    call: Call<OpenAt>,
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let descriptor = unsafe { (call.real)(folder, path, flags, mode_of(flags, mode)) };
    // SAFETY: the real function has read the path.
    unsafe { opened(descriptor, path, flags) };
    descriptor
}

/// `__open_2` and `__open64_2`: FORTIFY's form of an open without a mode.
///
/// # Safety
/// As `open`.
pub(crate) unsafe fn open_2(call: Call<Open2>, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let descriptor = unsafe { (call.real)(path, flags) };
    // SAFETY: the real function has read the path.
    unsafe { opened(descriptor, path, flags) };
    descriptor
}

/// `__openat_2` and `__openat64_2`.
///
/// # Safety
/// As `open`.
pub(crate) unsafe fn open_at_2(
    call: Call<OpenAt2>,
    folder: c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let descriptor = unsafe { (call.real)(folder, path, flags) };
    // SAFETY: the real function has read the path.
    unsafe { opened(descriptor, path, flags) };
    descriptor
}

/// `fopen` and `fopen64`, which open the file inside libc, past the hook of `open`.
///
/// # Safety
/// As `open`.
pub(crate) unsafe fn stream(
    call: Call<Fopen>,
    path: *const c_char,
    mode: *const c_char,
) -> *mut c_void {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let stream = unsafe { (call.real)(path, mode) };
    // SAFETY: the real function has read the path and the mode.
    unsafe { stream_opened(stream, path, mode) };
    stream
}

/// `freopen` and `freopen64`. Without a path only the mode changes, and no file is opened.
///
/// # Safety
/// As `open`.
pub(crate) unsafe fn stream_again(
    call: Call<Freopen>,
    path: *const c_char,
    mode: *const c_char,
    stream: *mut c_void,
) -> *mut c_void {
    if page_cache::in_use() && !stream.is_null() && !path.is_null() {
        // SAFETY: the caller has the stream open; its descriptor is closed whether the call
        // succeeds or not.
        page_cache::closing(unsafe { descriptor_of(stream) });
    }
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let stream = unsafe { (call.real)(path, mode, stream) };
    // SAFETY: the real function has read the path and the mode.
    unsafe { stream_opened(stream, path, mode) };
    stream
}

/// Handles an opened file: meminfo, a model file, or neither.
///
/// # Safety
/// `descriptor` is the result of a call with this path and these flags.
#[inline(always)]
unsafe fn opened(descriptor: c_int, path: *const c_char, flags: c_int) {
    if descriptor < 0 || (!page_cache::drops() && slice::is_known_to_be_unsliced()) {
        return;
    }
    // SAFETY: the real function has opened the path, so it is a C string.
    let path = unsafe { CStr::from_ptr(path) };
    if flags & O_ACCMODE == 0 && is_named_meminfo(path) {
        meminfo_file::stand_in(descriptor);
    } else if page_cache::matters(path.to_bytes()) {
        page_cache::opened(path.to_bytes(), descriptor);
    }
}

/// # Safety
/// `stream` is the result of a call with this path and this mode.
#[inline]
unsafe fn stream_opened(stream: *mut c_void, path: *const c_char, mode: *const c_char) {
    if stream.is_null() || path.is_null() || slice::is_known_to_be_unsliced() {
        return;
    }
    // SAFETY: the real function has opened the path, so it is a C string.
    let path = unsafe { CStr::from_ptr(path) };
    if !is_named_meminfo(path) {
        if page_cache::matters(path.to_bytes()) {
            // SAFETY: the real function has just opened the stream.
            page_cache::opened(path.to_bytes(), unsafe { descriptor_of(stream) });
        }
        return;
    }
    // SAFETY: the real function has read the mode, so it is a C string.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    if mode.first() == Some(&b'r') && !mode.contains(&b'+') {
        // SAFETY: the real function has just opened the stream.
        let descriptor = unsafe { descriptor_of(stream) };
        // No data was read yet, so the stream does not notice the replaced file.
        meminfo_file::stand_in(descriptor);
    }
}

/// Whether the last part of a path is `meminfo`; the kernel is asked later whether it is that file.
#[inline]
fn is_named_meminfo(path: &CStr) -> bool {
    let rest = path.to_bytes().strip_suffix(b"meminfo");
    rest.is_some_and(|before| matches!(before.last(), None | Some(b'/')))
}

/// Calls libc's `fileno`.
///
/// # Safety
/// The stream is open.
pub(crate) unsafe fn descriptor_of(stream: *mut c_void) -> c_int {
    type Fileno = unsafe extern "C" fn(*mut c_void) -> c_int;
    static FILENO: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut address = FILENO.load(Ordering::Acquire);
    if address.is_null() {
        address = elf::following(b"fileno").map_or(null_mut(), |found| found as *mut c_void);
        FILENO.store(address, Ordering::Release);
    }
    // SAFETY: libc's fileno has this signature; None is the null pointer.
    let fileno = unsafe { core::mem::transmute::<*mut c_void, Option<Fileno>>(address) };
    match fileno {
        // A stream without a descriptor (`open_memstream`) sets EBADF.
        // SAFETY: the caller guarantees an open stream.
        Some(fileno) => keeping_errno(|| unsafe { fileno(stream) }),
        None => -1,
    }
}
