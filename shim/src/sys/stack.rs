//! Calls a function on a stack of its own, if it needs more stack than its caller may have.
//! Touches: fresh memory, for the length of the call; the stack pointer.

use core::ffi::c_void;

use crate::sys;

const LENGTH: usize = 256 << 10;

/// Calls a function on a large stack. Returns its result; None: there is no memory for the stack.
pub(crate) fn on_a_large_one(
    function: extern "C" fn(*mut c_void) -> u8,
    argument: *mut c_void,
) -> Option<u8> {
    let stack = sys::map(LENGTH).ok()?;
    let top = stack.wrapping_add(LENGTH);
    let answer: u8;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `top` is aligned and has LENGTH bytes below it. The old stack pointer is kept in a
    // register that the function must preserve. All registers that a C function may change are
    // declared.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {function}",
            "mov rsp, r12",
            top = in(reg) top,
            function = in(reg) function,
            in("rdi") argument,
            out("r12") _,
            lateout("al") answer,
            clobber_abi("C"),
        );
    }
    #[cfg(target_arch = "aarch64")]
    let answer_word: *mut c_void;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as for x86-64 above.
    unsafe {
        core::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {function}",
            "mov sp, x20",
            top = in(reg) top,
            function = in(reg) function,
            inlateout("x0") argument => answer_word,
            out("x20") _,
            clobber_abi("C"),
        );
    }
    #[cfg(target_arch = "aarch64")]
    {
        // A function that returns eight bits leaves the higher bits of the register undefined.
        answer = answer_word.addr().to_le_bytes()[0];
    }
    // SAFETY: the call has returned, and the memory is known only to this function.
    unsafe { sys::unmap(stack, LENGTH) };
    Some(answer)
}
