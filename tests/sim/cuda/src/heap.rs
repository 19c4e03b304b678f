//! Addresses: device memory is host memory that costs nothing until it is touched.
//! Touches: this process's address space.

use crate::abi::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use std::ptr;

const PAGE: u64 = 4096;

fn whole_pages(bytes: u64) -> Answer<usize> {
    let pages = bytes.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
    usize::try_from(pages).map_err(|_| OUT_OF_MEMORY)
}

/// A new range, aligned to 2 MiB as the driver's ranges are. If `readable` is false, the range is
/// only reserved.
pub(crate) fn map(bytes: u64, readable: bool) -> Answer<u64> {
    let align = 2 << 20;
    let len = whole_pages(bytes)?;
    let room = len.checked_add(align).ok_or(OUT_OF_MEMORY)?;
    let access = if readable {
        libc::PROT_READ | libc::PROT_WRITE
    } else {
        libc::PROT_NONE
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address the kernel chooses.
    let at = unsafe { libc::mmap(ptr::null_mut(), room, access, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    let start = at as usize;
    let aligned = start.next_multiple_of(align);
    unmap(start as u64, (aligned - start) as u64);
    unmap(
        (aligned + len) as u64,
        (start + room - aligned - len) as u64,
    );
    Ok(aligned as u64)
}

/// A new range below 4 GiB, for the functions whose addresses have 32 bits.
pub(crate) fn map_low(bytes: u64) -> Answer<u64> {
    let len = whole_pages(bytes)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // Low addresses are mostly free in a 64-bit process: try every 64 MiB.
    for hint in (0x1000_0000_usize..0xf000_0000).step_by(64 << 20) {
        if hint as u64 + bytes > u64::from(u32::MAX) {
            break;
        }
        // SAFETY: NOREPLACE: only an unused range is ever mapped.
        let at = unsafe { libc::mmap(hint as *mut libc::c_void, len, access, flags, -1, 0) };
        if at as usize == hint {
            return Ok(hint as u64);
        }
        if at != libc::MAP_FAILED {
            // An old kernel without NOREPLACE put it elsewhere.
            unmap(at as u64, bytes);
        }
    }
    Err(OUT_OF_MEMORY)
}

/// Unmaps a range.
pub(crate) fn unmap(at: u64, bytes: u64) {
    if bytes != 0
        && let Ok(len) = whole_pages(bytes)
    {
        // SAFETY: the caller owns the range; it came from `map` and nothing in this library refers
        // to it any more.
        unsafe { libc::munmap(at as *mut libc::c_void, len) };
    }
}

/// Maps a file over part of a reservation, or (without a file) makes it unreadable again.
pub(crate) fn place(at: u64, bytes: u64, file: Option<(i32, u64)>) -> Answer {
    let len = whole_pages(bytes)?;
    let (fd, offset, flags) = match file {
        Some((fd, offset)) => (
            fd,
            i64::try_from(offset).map_err(|_| INVALID_VALUE)?,
            libc::MAP_SHARED,
        ),
        None => (-1, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
    };
    let flags = flags | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the caller checked that the range lies in a reservation of this library.
    let placed = unsafe {
        libc::mmap(
            at as *mut libc::c_void,
            len,
            libc::PROT_NONE,
            flags,
            fd,
            offset,
        )
    };
    if placed == libc::MAP_FAILED {
        Err(INVALID_VALUE)
    } else {
        Ok(())
    }
}

/// Opens or closes a range for access.
pub(crate) fn protect(at: u64, bytes: u64, access: i32) -> Answer {
    let len = whole_pages(bytes)?;
    // SAFETY: the caller checked that the range lies in a reservation of this library.
    let rc = unsafe { libc::mprotect(at as *mut libc::c_void, len, access) };
    if rc == 0 { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Copies bytes. The caller guarantees that both ranges are valid, as with the real driver.
pub(crate) fn copy(to: u64, from: u64, bytes: usize) -> Answer {
    if bytes != 0 {
        if to == 0 || from == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the C contract of every cuMemcpy: both ranges are valid; `copy` allows them to
        // overlap.
        unsafe { ptr::copy(from as *const u8, to as *mut u8, bytes) };
    }
    Ok(())
}

/// Fills `count` elements.
pub(crate) fn fill<T: Copy>(to: u64, value: T, count: usize) -> Answer {
    if to == 0 && count != 0 {
        return Err(INVALID_VALUE);
    }
    for i in 0..count {
        let at = (to as *mut T).wrapping_add(i);
        // SAFETY: the C contract of every cuMemset: the range is valid for `count` elements.
        unsafe { at.write_unaligned(value) };
    }
    Ok(())
}
