//! The requests of a tracer to the kernel, and the registers of a system call.
//! Touches: the traced process.

pub(super) fn request(request: libc::c_uint, pid: i32, address: usize, data: usize) -> i64 {
    // SAFETY: the requests of this module write nothing to this process but [`info`]'s, which
    // passes a struct of the size that it names.
    unsafe { libc::ptrace(request, pid, address, data) }
}

/// `PTRACE_EVENT_STOP`, which the libc crate does not have for glibc.
pub(super) const EVENT_STOP: i32 = 128;

pub(super) fn info(pid: i32) -> Option<libc::ptrace_syscall_info> {
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let size = size_of_val(&info);
    let read = request(
        libc::PTRACE_GET_SYSCALL_INFO,
        pid,
        size,
        (&raw mut info).expose_provenance(),
    );
    (read > 0).then_some(info)
}

/// Whether calls can be made to fail on this machine.
pub(crate) const CAN_FAIL_CALLS: bool = cfg!(target_arch = "x86_64");

/// Lets the call at whose entry a process is do nothing.
#[cfg(target_arch = "x86_64")]
pub(super) fn skip_call(pid: i32) {
    let place = usize::try_from(libc::ORIG_RAX * 8).expect("a register");
    request(libc::PTRACE_POKEUSER, pid, place, usize::MAX);
}

/// Sets the result of the call at whose end a process is.
#[cfg(target_arch = "x86_64")]
pub(super) fn returns(pid: i32, value: i64) {
    let place = usize::try_from(libc::RAX * 8).expect("a register");
    request(
        libc::PTRACE_POKEUSER,
        pid,
        place,
        value.cast_unsigned() as usize,
    );
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn skip_call(_: i32) {
    panic!("no registers are known for this processor");
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn returns(_: i32, _: i64) {
    panic!("no registers are known for this processor");
}
