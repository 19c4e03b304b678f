//! Assembly that saves the registers of a call's arguments around a call of our own: afterwards the
//! program's call continues with registers and stack unchanged.
//! Touches: registers, the stack.

/// Saves the first 1, 2, 3 or all arguments around these lines; the stack is aligned for a call in
/// them. The last argument is saved at the stack pointer, or 8 bytes above it if 2 or all arguments
/// are saved. The others are saved above the last one.
#[cfg(target_arch = "x86_64")]
macro_rules! saving_arguments {
    (1: $($line:literal),+) => {
        concat!("push rdi\n", $($line, "\n",)+ "pop rdi\n")
    };
    (2: $($line:literal),+) => {
        concat!(
            "push rdi\n", "push rsi\n", "sub rsp, 8\n",
            $($line, "\n",)+
            "add rsp, 8\n", "pop rsi\n", "pop rdi\n",
        )
    };
    (3: $($line:literal),+) => {
        concat!(
            "push rdi\n", "push rsi\n", "push rdx\n",
            $($line, "\n",)+
            "pop rdx\n", "pop rsi\n", "pop rdi\n",
        )
    };
    (all: $($line:literal),+) => {
        concat!(
            "push rdi\n", "push rsi\n", "push rdx\n", "push rcx\n", "push r8\n", "push r9\n",
            "sub rsp, 8\n",
            $($line, "\n",)+
            "add rsp, 8\n",
            "pop r9\n", "pop r8\n", "pop rcx\n", "pop rdx\n", "pop rsi\n", "pop rdi\n",
        )
    };
}

/// Saves the first 1, 2 or all arguments around these lines, in a stack frame. The first argument
/// is saved 16 bytes above the stack pointer, the others above it.
#[cfg(target_arch = "aarch64")]
macro_rules! saving_arguments {
    (1: $($line:literal),+) => {
        concat!(
            "stp x29, x30, [sp, #-32]!\n", "mov x29, sp\n", "str x0, [sp, #16]\n",
            $($line, "\n",)+
            "ldr x0, [sp, #16]\n", "ldp x29, x30, [sp], #32\n",
        )
    };
    (2: $($line:literal),+) => {
        concat!(
            "stp x29, x30, [sp, #-32]!\n", "mov x29, sp\n", "stp x0, x1, [sp, #16]\n",
            $($line, "\n",)+
            "ldp x0, x1, [sp, #16]\n", "ldp x29, x30, [sp], #32\n",
        )
    };
    (all: $($line:literal),+) => {
        concat!(
            "stp x29, x30, [sp, #-80]!\n", "mov x29, sp\n",
            "stp x0, x1, [sp, #16]\n", "stp x2, x3, [sp, #32]\n",
            "stp x4, x5, [sp, #48]\n", "stp x6, x7, [sp, #64]\n",
            $($line, "\n",)+
            "ldp x6, x7, [sp, #64]\n", "ldp x4, x5, [sp, #48]\n",
            "ldp x2, x3, [sp, #32]\n", "ldp x0, x1, [sp, #16]\n",
            "ldp x29, x30, [sp], #80\n",
        )
    };
}
