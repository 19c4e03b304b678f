//! Hooks of duplicated and closed descriptors: a model file is evicted from the page cache after
//! its last descriptor is closed.
//! Touches: the page cache's tables, then the real function.
//! Law: as in `open`: a program may call these from a signal handler or a child of vfork.

use core::ffi::{c_int, c_uint, c_void};

use crate::hooks::libc::open::descriptor_of;
use crate::page_cache;
use crate::real::functions::Call;

type Close = unsafe extern "C" fn(c_int) -> c_int;
type CloseRange = unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int;
type Fclose = unsafe extern "C" fn(*mut c_void) -> c_int;
type Dup = unsafe extern "C" fn(c_int) -> c_int;
type Dup2 = unsafe extern "C" fn(c_int, c_int) -> c_int;
type Dup3 = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
type Lockf = unsafe extern "C" fn(c_int, c_int, i64) -> c_int;
type Fcntl = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;

/// `close`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn close(call: Call<Close>, fd: c_int) -> c_int {
    page_cache::closing(fd);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    unsafe { (call.real)(fd) }
}

/// `close_range`.
///
/// # Safety
/// As `close`.
pub(crate) unsafe fn close_range(
    call: Call<CloseRange>,
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        page_cache::closing_range(first, last);
    }
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    unsafe { (call.real)(first, last, flags) }
}

/// `fclose`, which closes the descriptor inside libc, past the hook of `close`.
///
/// # Safety
/// As `close`.
pub(crate) unsafe fn fclose(call: Call<Fclose>, stream: *mut c_void) -> c_int {
    if page_cache::in_use() && !stream.is_null() {
        // SAFETY: the caller is about to close the stream, so it is open.
        page_cache::closing(unsafe { descriptor_of(stream) });
    }
    // SAFETY: the caller guarantees the real function's contract for this argument.
    unsafe { (call.real)(stream) }
}

/// `dup`.
///
/// # Safety
/// As `close`.
pub(crate) unsafe fn dup(call: Call<Dup>, fd: c_int) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let made = unsafe { (call.real)(fd) };
    page_cache::duplicated(fd, made);
    made
}

/// `dup2`. Closes the descriptor `to`, unless it equals `fd`.
///
/// # Safety
/// As `close`.
pub(crate) unsafe fn dup2(call: Call<Dup2>, fd: c_int, to: c_int) -> c_int {
    if fd != to {
        page_cache::closing(to);
    }
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let made = unsafe { (call.real)(fd, to) };
    page_cache::duplicated(fd, made);
    made
}

/// `dup3`.
///
/// # Safety
/// As `close`.
pub(crate) unsafe fn dup3(call: Call<Dup3>, fd: c_int, to: c_int, flags: c_int) -> c_int {
    if fd != to {
        page_cache::closing(to);
    }
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let made = unsafe { (call.real)(fd, to, flags) };
    page_cache::duplicated(fd, made);
    made
}

/// `fcntl` and `fcntl64`: only duplicates and locks matter here.
///
/// # Safety
/// As `close`.
#[inline(always)]
pub(crate) unsafe fn fcntl(call: Call<Fcntl>, fd: c_int, command: c_int, argument: usize) -> c_int {
    // The call comes last in each arm, as a tail call, so that no registers need saving.
    match page_cache::in_use() {
        // SAFETY: the caller guarantees the real function's contract for these arguments.
        false => unsafe { (call.real)(fd, command, argument) },
        // SAFETY: the caller guarantees fcntl's contract; `fcntl_of_model` requires no more.
        true => unsafe { fcntl_of_model(call, fd, command, argument) },
    }
}

/// `fcntl` while any model file is in use.
///
/// # Safety
/// As `close`.
#[cold]
#[inline(never)]
unsafe fn fcntl_of_model(call: Call<Fcntl>, fd: c_int, command: c_int, argument: usize) -> c_int {
    const F_DUPFD: c_int = 0;
    const F_DUPFD_CLOEXEC: c_int = 1030;
    // F_GETLK, F_SETLK, F_SETLKW, and their variants for open file descriptions.
    if matches!(command, 5..=7 | 36..=38) {
        page_cache::locking(fd);
    }
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(fd, command, argument) };
    if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) {
        page_cache::duplicated(fd, answer);
    }
    answer
}

/// `lockf` and `lockf64`, which call `fcntl` inside libc, past its hook.
///
/// # Safety
/// As `close`.
pub(crate) unsafe fn lockf(call: Call<Lockf>, fd: c_int, command: c_int, length: i64) -> c_int {
    page_cache::locking(fd);
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    unsafe { (call.real)(fd, command, length) }
}
