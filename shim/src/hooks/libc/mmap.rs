//! Hooks of mappings: a model file stays in use as long as a piece of it is mapped.
//! Touches: the page cache's tables, before and after the real function.
//! Law: as in `open`: allocators and sanitizers call these before any other code runs.

use core::ffi::{c_int, c_void};

use crate::page_cache::{self, Mapping};
use crate::real::functions::Call;

type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type Mprotect = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
type Mremap = unsafe extern "C" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;

const MAP_FIXED: c_int = 0x10;
const FAILED: usize = usize::MAX;

/// `mmap` and `mmap64`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
#[inline(always)]
pub(crate) unsafe fn mmap(
    call: Call<Mmap>,
    addr: *mut c_void,
    length: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // The call comes last in each arm, as a tail call, so that no registers need saving.
    match page_cache::in_use() && (flags & MAP_FIXED != 0 || page_cache::may_be_model(fd)) {
        // SAFETY: the caller guarantees the real function's contract for these arguments.
        false => unsafe { (call.real)(addr, length, prot, flags, fd, offset) },
        // SAFETY: the caller guarantees mmap's contract; `mmap_of_model` requires no more.
        true => unsafe { mmap_of_model(call, addr, length, prot, flags, fd, offset) },
    }
}

/// `mmap` of a model file, or over a range where one may be mapped.
///
/// # Safety
/// As `mmap`.
#[cold]
#[inline(never)]
unsafe fn mmap_of_model(
    call: Call<Mmap>,
    addr: *mut c_void,
    length: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let replaced = match flags & MAP_FIXED {
        0 => None,
        _ => Some(page_cache::unmapping(addr as usize, length)),
    };
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let place = unsafe { (call.real)(addr, length, prot, flags, fd, offset) };
    if let Some(replaced) = replaced {
        replaced.let_go();
    }
    if place as usize != FAILED {
        page_cache::mapped(Mapping {
            address: place as usize,
            length,
            prot,
            flags,
            fd,
            offset,
        });
    }
    place
}

/// `munmap`.
///
/// # Safety
/// As `mmap`.
pub(crate) unsafe fn munmap(call: Call<Munmap>, addr: *mut c_void, length: usize) -> c_int {
    let held = page_cache::unmapping(addr as usize, length);
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(addr, length) };
    held.let_go();
    code
}

/// `mprotect`, and `pkey_mprotect` without its key.
///
/// # Safety
/// As `mmap`.
pub(crate) unsafe fn mprotect(
    call: Call<Mprotect>,
    addr: *mut c_void,
    length: usize,
    prot: c_int,
) -> c_int {
    page_cache::protecting(addr as usize, length, prot);
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    unsafe { (call.real)(addr, length, prot) }
}

/// `mremap`.
///
/// # Safety
/// As `mmap`.
pub(crate) unsafe fn mremap(
    call: Call<Mremap>,
    old: *mut c_void,
    old_length: usize,
    new_length: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let moving = page_cache::moving(old as usize, old_length);
    // SAFETY: the caller guarantees mremap's contract for these arguments; libc reads the last
    // one only if the flags ask for it.
    let place = unsafe { (call.real)(old, old_length, new_length, flags, new) };
    match moving {
        Some(moving) if place as usize == FAILED => moving.stayed(),
        Some(moving) => moving.moved(place as usize, new_length),
        None => {}
    }
    place
}
