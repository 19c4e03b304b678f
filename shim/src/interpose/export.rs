//! The exported symbols, and the stubs that pass the caller's address to a function. They are in
//! assembly, because only there can a call continue with registers and stack unchanged.
//! Touches: registers.

/// The register of the argument that follows these.
#[cfg(target_arch = "x86_64")]
macro_rules! next_register {
    ($a:ident $b:ident) => {
        "rdx"
    };
    ($a:ident $b:ident $c:ident $d:ident) => {
        "r8"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! next_register {
    ($a:ident $b:ident) => {
        "x2"
    };
    ($a:ident $b:ident $c:ident $d:ident) => {
        "x4"
    };
}

/// The exported symbol. It only jumps, so that the caller's return address is preserved.
#[cfg(target_arch = "x86_64")]
macro_rules! export {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "endbr64",
                "mov rax, qword ptr [rip + {target} + {offset}]",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                saving_arguments!(all:
                    "mov edi, {row}",
                    "mov rsi, qword ptr [rsp + 56]",
                    "call {choose}"
                ),
                "jmp rax",
                target = sym crate::interpose::stand_in::TARGET,
                offset = const 8 * Row::$name as usize,
                row = const Row::$name as usize,
                choose = sym crate::interpose::stand_in::choose,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! export {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "hint #34",
                "adrp x16, {target}",
                "add x16, x16, :lo12:{target}",
                "ldr x16, [x16, #{offset}]",
                "cbz x16, 2f",
                "br x16",
                "2:",
                saving_arguments!(all:
                    "mov x0, #{row}",
                    "mov x1, x30",
                    "bl {choose}",
                    "mov x16, x0"
                ),
                "br x16",
                target = sym crate::interpose::stand_in::TARGET,
                offset = const 8 * Row::$name as usize,
                row = const Row::$name as usize,
                choose = sym crate::interpose::stand_in::choose,
            )
        }
    };
}

/// The exported symbol of a library with versions. It jumps to the entry remembered for the call
/// site in the first of its two homes: see `interpose::callers`.
#[cfg(target_arch = "x86_64")]
macro_rules! export_versioned {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "4:",
                "endbr64",
                "mov r10, qword ptr [rsp]",
                "push rax",
                "mov rax, r10",
                "shr rax, 2",
                "add rax, {row}",
                "and eax, {homes} - 1",
                "lea r11, [rip + {callers}]",
                "mov r11, qword ptr [r11 + 8 * rax]",
                "pop rax",
                "shl r10, 16",
                "lea r10, [r10 + {row} * 256]",
                "sub r11, r10",
                "cmp r11, 1",
                "je {first}",
                "cmp r11, 2",
                "je {second}",
                saving_arguments!(all:
                    "push rax", "push rbx", "push rbp", "push r12",
                    "push r13", "push r14", "push r15", "push r15",
                    "mov edi, {row}",
                    "mov rsi, rsp",
                    "lea rdx, [rip + 4b]",
                    "call {choose}",
                    "add rsp, 64"
                ),
                "jmp rax",
                row = const Row::$name as usize,
                homes = const crate::interpose::callers::HOMES,
                callers = sym crate::interpose::callers::CALLERS,
                first = sym $name::entry::<0>,
                second = sym $name::entry::<1>,
                choose = sym crate::interpose::stand_in::choose_versioned,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! export_versioned {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "4:",
                "hint #34",
                "lsr x9, x30, #2",
                "add x9, x9, #{row}",
                "and x9, x9, #{homes} - 1",
                "adrp x17, {callers}",
                "add x17, x17, :lo12:{callers}",
                "ldr x9, [x17, x9, lsl #3]",
                "mov x17, #{row} * 256",
                "add x17, x17, x30, lsl #16",
                "sub x9, x9, x17",
                "cmp x9, #1",
                "b.ne 2f",
                "b {first}",
                "2:",
                "cmp x9, #2",
                "b.ne 3f",
                "b {second}",
                "3:",
                saving_arguments!(all:
                    "stp x16, x30, [sp, #-160]!",
                    "stp x8, x9, [sp, #16]", "stp x10, x11, [sp, #32]",
                    "stp x12, x13, [sp, #48]", "stp x14, x15, [sp, #64]",
                    "stp x19, x20, [sp, #80]", "stp x21, x22, [sp, #96]",
                    "stp x23, x24, [sp, #112]", "stp x25, x26, [sp, #128]",
                    "stp x27, x28, [sp, #144]",
                    "mov x0, #{row}",
                    "mov x1, sp",
                    "adr x2, 4b",
                    "bl {choose}",
                    "add sp, sp, #160",
                    "mov x16, x0"
                ),
                "br x16",
                row = const Row::$name as usize,
                homes = const crate::interpose::callers::HOMES,
                callers = sym crate::interpose::callers::CALLERS,
                first = sym $name::entry::<0>,
                second = sym $name::entry::<1>,
                choose = sym crate::interpose::stand_in::choose_versioned,
            )
        }
    };
}

/// The exported `syscall`: a jump to libc's, except for the numbers that `hooks::libc::isolation`
/// handles.
#[cfg(target_arch = "x86_64")]
macro_rules! export_numbered {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "endbr64",
                "cmp rdi, {close}",
                "je 2f",
                "lea rax, [rdi - {first}]",
                "cmp rax, {span}",
                "jbe 2f",
                "cmp rdi, {prctl}",
                "je 2f",
                "cmp rdi, {unshare}",
                "je 2f",
                "cmp rdi, {setns}",
                "je 2f",
                "cmp rdi, {seccomp}",
                "je 2f",
                "cmp rdi, {landlock}",
                "je 2f",
                "mov rax, qword ptr [rip + {real} + {place}]",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                "jmp {called}",
                close = const crate::hooks::libc::isolation::number::CLOSE,
                prctl = const crate::hooks::libc::isolation::number::PRCTL,
                unshare = const crate::hooks::libc::isolation::number::UNSHARE,
                setns = const crate::hooks::libc::isolation::number::SETNS,
                seccomp = const crate::hooks::libc::isolation::number::SECCOMP,
                landlock = const crate::hooks::libc::isolation::number::LANDLOCK_RESTRICT_SELF,
                first = const crate::hooks::libc::isolation::number::FIRST_OF_CREDENTIALS,
                span = const crate::hooks::libc::isolation::number::LAST_OF_CREDENTIALS - crate::hooks::libc::isolation::number::FIRST_OF_CREDENTIALS,
                real = sym crate::real::copies::FIRST,
                place = const $name::PLACE,
                called = sym $name::called,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! export_numbered {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "hint #34",
                "cmp x0, #{close}",
                "b.eq 2f",
                "sub x16, x0, #{first}",
                "cmp x16, #{span}",
                "b.ls 2f",
                "cmp x0, #{prctl}",
                "b.eq 2f",
                "cmp x0, #{unshare}",
                "b.eq 2f",
                "cmp x0, #{setns}",
                "b.eq 2f",
                "cmp x0, #{seccomp}",
                "b.eq 2f",
                "cmp x0, #{capset}",
                "b.eq 2f",
                "cmp x0, #{landlock}",
                "b.eq 2f",
                "adrp x16, {real} + {place}",
                "ldr x16, [x16, :lo12:{real} + {place}]",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "b {called}",
                close = const crate::hooks::libc::isolation::number::CLOSE,
                prctl = const crate::hooks::libc::isolation::number::PRCTL,
                unshare = const crate::hooks::libc::isolation::number::UNSHARE,
                setns = const crate::hooks::libc::isolation::number::SETNS,
                seccomp = const crate::hooks::libc::isolation::number::SECCOMP,
                capset = const crate::hooks::libc::isolation::number::CAPSET,
                landlock = const crate::hooks::libc::isolation::number::LANDLOCK_RESTRICT_SELF,
                first = const crate::hooks::libc::isolation::number::FIRST_OF_CREDENTIALS,
                span = const crate::hooks::libc::isolation::number::LAST_OF_CREDENTIALS - crate::hooks::libc::isolation::number::FIRST_OF_CREDENTIALS,
                real = sym crate::real::copies::FIRST,
                place = const $name::PLACE,
                called = sym $name::called,
            )
        }
    };
}
