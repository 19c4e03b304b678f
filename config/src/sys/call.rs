//! Enters the kernel.
//! Touches: the kernel.

use super::Errno;
use core::ffi::{c_int, c_long};

/// A number as the kernel takes it in a register. Sign extension does no harm: the kernel reads an
/// int.
#[inline(always)]
#[must_use]
pub const fn int(value: c_int) -> usize {
    value as usize
}

/// Makes the system call of this number, one of `libc::SYS_*`.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Every pointer among the arguments is valid for the call, as the kernel documents it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn syscall(number: c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let answer: isize;
    // SAFETY: the caller guarantees the arguments; the kernel changes rax, rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    outcome(answer)
}

/// Makes the system call of this number, one of `libc::SYS_*`.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Every pointer among the arguments is valid for the call, as the kernel documents it.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn syscall(number: c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let answer: isize;
    // SAFETY: the caller guarantees the arguments; the kernel changes x0 only.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") number, inlateout("x0") a.cast_signed() => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    outcome(answer)
}

fn outcome(answer: isize) -> Result<usize, Errno> {
    match answer {
        -4095..=-1 => Err(Errno(
            i32::try_from(answer.unsigned_abs()).unwrap_or(i32::MAX),
        )),
        _ => Ok(answer.cast_unsigned()),
    }
}
