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
                "endbr64",
                "mov rax, qword ptr [rsp]",
                "mov r10, rax",
                "shr r10, 2",
                "add r10, {row}",
                "and r10d, {homes} - 1",
                "lea r11, [rip + {callers}]",
                "mov r11, qword ptr [r11 + 8 * r10]",
                "shl rax, 16",
                "lea rax, [rax + {row} * 256]",
                "sub r11, rax",
                "cmp r11, 1",
                "je {first}",
                "cmp r11, 2",
                "je {second}",
                saving_arguments!(all:
                    "mov edi, {row}",
                    "mov rsi, qword ptr [rsp + 56]",
                    "call {choose}"
                ),
                "jmp rax",
                row = const Row::$name as usize,
                homes = const crate::interpose::callers::HOMES,
                callers = sym crate::interpose::callers::CALLERS,
                first = sym $name::entry::<0>,
                second = sym $name::entry::<1>,
                choose = sym crate::interpose::stand_in::choose,
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
                "hint #34",
                "lsr x16, x30, #2",
                "add x16, x16, #{row}",
                "and x16, x16, #{homes} - 1",
                "adrp x17, {callers}",
                "add x17, x17, :lo12:{callers}",
                "ldr x16, [x17, x16, lsl #3]",
                "mov x17, #{row} * 256",
                "add x17, x17, x30, lsl #16",
                "sub x16, x16, x17",
                "cmp x16, #1",
                "b.ne 2f",
                "b {first}",
                "2:",
                "cmp x16, #2",
                "b.ne 3f",
                "b {second}",
                "3:",
                saving_arguments!(all:
                    "mov x0, #{row}",
                    "mov x1, x30",
                    "bl {choose}",
                    "mov x16, x0"
                ),
                "br x16",
                row = const Row::$name as usize,
                homes = const crate::interpose::callers::HOMES,
                callers = sym crate::interpose::callers::CALLERS,
                first = sym $name::entry::<0>,
                second = sym $name::entry::<1>,
                choose = sym crate::interpose::stand_in::choose,
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
