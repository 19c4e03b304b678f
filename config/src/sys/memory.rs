//! Maps and unmaps pages.
//! Touches: this process's address space.

use super::{Errno, Fd, int, syscall};
use core::ffi::c_int;

/// The smallest page of the machines that we run on, in bytes.
pub const PAGE: usize = 4096;

/// Maps fresh zeroed memory, until [`unmap`] or the end of the process.
///
/// # Errors
/// The kernel's.
pub fn map(length: usize) -> Result<*mut u8, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    mmap(length, protection, flags, usize::MAX)
}

/// Maps a file at an address of the kernel's choice. `flags`: `libc::MAP_SHARED` or
/// `libc::MAP_PRIVATE`.
///
/// # Errors
/// The kernel's.
pub fn map_file(fd: &Fd, length: usize, protection: c_int, flags: c_int) -> Result<*mut u8, Errno> {
    // A new mapping must replace no other.
    mmap(length, protection, flags & !libc::MAP_FIXED, fd.number())
}

fn mmap(length: usize, protection: c_int, flags: c_int, fd: usize) -> Result<*mut u8, Errno> {
    let arguments = [0, length, int(protection), int(flags), fd, 0];
    // SAFETY: a new mapping at an address that the kernel chooses affects no other.
    unsafe { syscall(libc::SYS_mmap, arguments) }.map(|at| at as *mut u8)
}

/// Maps fresh zeroed memory that reads as zeros again in a forked child.
///
/// # Errors
/// The kernel's.
pub fn map_wiped(length: usize) -> Result<*mut u8, Errno> {
    let at = map(length)?;
    // SAFETY: the fresh pages are known only to this function.
    match unsafe { madvise(at, length, libc::MADV_WIPEONFORK) } {
        Ok(()) => Ok(at),
        Err(errno) => {
            // SAFETY: the fresh pages are known only to this function.
            unsafe { unmap(at, length) };
            Err(errno)
        }
    }
}

/// Unmaps pages.
///
/// # Safety
/// These pages are no longer in use.
pub unsafe fn unmap(at: *mut u8, length: usize) {
    // SAFETY: the caller guarantees that the pages are no longer in use.
    let _ = unsafe { syscall(libc::SYS_munmap, [at as usize, length, 0, 0, 0, 0]) };
}

/// Gives the kernel advice about pages, one of `libc::MADV_*`.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The users of these pages expect this advice.
pub unsafe fn madvise(at: *mut u8, length: usize, advice: c_int) -> Result<(), Errno> {
    let arguments = [at as usize, length, int(advice), 0, 0, 0];
    // SAFETY: the caller guarantees that the users of these pages expect this advice.
    unsafe { syscall(libc::SYS_madvise, arguments) }.map(drop)
}
