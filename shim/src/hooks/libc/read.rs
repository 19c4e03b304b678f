//! Hooks of reads: pages of a model file that were read need not stay in the page cache.
//! Touches: the real function, then a note of the range that it has read.
//! Law: as in `open`. The thread may be cancelled in the real function: no lock or value is held
//! while it runs.

use core::ffi::{c_int, c_void};

use crate::page_cache;
use crate::real::functions::Call;

type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
type ReadChecked = unsafe extern "C" fn(c_int, *mut c_void, usize, usize) -> isize;
type Pread = unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;
type PreadChecked = unsafe extern "C" fn(c_int, *mut c_void, usize, i64, usize) -> isize;
type Readv = unsafe extern "C" fn(c_int, *const c_void, c_int) -> isize;
type Preadv = unsafe extern "C" fn(c_int, *const c_void, c_int, i64) -> isize;
type Preadv2 = unsafe extern "C" fn(c_int, *const c_void, c_int, i64, c_int) -> isize;

/// `read`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn read(call: Call<Read>, fd: c_int, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let length = unsafe { (call.real)(fd, buf, count) };
    page_cache::read(fd, None, length);
    length
}

/// `__read_chk`: FORTIFY's form of `read`.
///
/// # Safety
/// As `read`.
pub(crate) unsafe fn read_checked(
    call: Call<ReadChecked>,
    fd: c_int,
    buf: *mut c_void,
    count: usize,
    room: usize,
) -> isize {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let length = unsafe { (call.real)(fd, buf, count, room) };
    page_cache::read(fd, None, length);
    length
}

/// `readv`.
///
/// # Safety
/// As `read`.
pub(crate) unsafe fn readv(
    call: Call<Readv>,
    fd: c_int,
    iov: *const c_void,
    count: c_int,
) -> isize {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let length = unsafe { (call.real)(fd, iov, count) };
    page_cache::read(fd, None, length);
    length
}

/// `pread` and `pread64`.
///
/// # Safety
/// As `read`.
pub(crate) unsafe fn pread(
    call: Call<Pread>,
    fd: c_int,
    buf: *mut c_void,
    count: usize,
    offset: i64,
) -> isize {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let length = unsafe { (call.real)(fd, buf, count, offset) };
    page_cache::read(fd, Some(offset), length);
    length
}

/// `__pread_chk` and `__pread64_chk`.
///
/// # Safety
/// As `read`.
pub(crate) unsafe fn pread_checked(
    call: Call<PreadChecked>,
    fd: c_int,
    buf: *mut c_void,
    count: usize,
    offset: i64,
    room: usize,
) -> isize {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let length = unsafe { (call.real)(fd, buf, count, offset, room) };
    page_cache::read(fd, Some(offset), length);
    length
}

/// `preadv` and `preadv64`.
///
/// # Safety
/// As `read`.
pub(crate) unsafe fn preadv(
    call: Call<Preadv>,
    fd: c_int,
    iov: *const c_void,
    count: c_int,
    offset: i64,
) -> isize {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let length = unsafe { (call.real)(fd, iov, count, offset) };
    page_cache::read(fd, Some(offset), length);
    length
}

/// `preadv2` and `preadv64v2`. With offset -1 they read at the descriptor's position, and move it.
///
/// # Safety
/// As `read`.
pub(crate) unsafe fn preadv2(
    call: Call<Preadv2>,
    fd: c_int,
    iov: *const c_void,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let length = unsafe { (call.real)(fd, iov, count, offset, flags) };
    page_cache::read(fd, (offset != -1).then_some(offset), length);
    length
}
