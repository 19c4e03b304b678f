//! Calls that do not go together with what the library does on its own: filters of system calls,
//! which do not know ours, and new namespaces, which a process with a second thread does not get.
//! Touches: the page cache's helper, which ends before; then the real function.
//! Law: as in `files`. `syscall` jumps to libc's own for every number but these.

use core::ffi::c_int;

use crate::table::Call;
use crate::{page_cache, sandbox};

type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
type Unshare = unsafe extern "C" fn(c_int) -> c_int;
type Setns = unsafe extern "C" fn(c_int, c_int) -> c_int;
type Syscall = unsafe extern "C" fn(isize, usize, usize, usize, usize, usize, usize) -> isize;

/// The numbers that matter here.
#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    pub(crate) const CLOSE: isize = 3;
    pub(crate) const PRCTL: isize = 157;
    pub(crate) const UNSHARE: isize = 272;
    pub(crate) const SETNS: isize = 308;
    pub(crate) const SECCOMP: isize = 317;
}

/// The numbers that matter here.
#[cfg(target_arch = "aarch64")]
pub(crate) mod number {
    pub(crate) const CLOSE: isize = 57;
    pub(crate) const UNSHARE: isize = 97;
    pub(crate) const PRCTL: isize = 167;
    pub(crate) const SETNS: isize = 268;
    pub(crate) const SECCOMP: isize = 277;
}

const PR_SET_SECCOMP: c_int = 22;
/// `seccomp`'s operations that install something are those up to this one.
const SECCOMP_SET_MODE_FILTER: usize = 1;

/// An argument that the kernel takes for an int.
fn int(argument: usize) -> c_int {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    c_int::from_le_bytes([a, b, c, d])
}

/// `prctl`, of which only filters matter here.
///
/// # Safety
/// The function's own contract: so for every shape.
pub(crate) unsafe fn prctl(
    call: Call<Prctl>,
    option: c_int,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_int {
    let begun = option == PR_SET_SECCOMP && sandbox::begins();
    // SAFETY: the caller's own arguments.
    let answer = unsafe { (call.real)(option, a, b, c, d) };
    if begun && answer < 0 {
        sandbox::failed();
    }
    answer
}

/// `unshare`.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn unshare(call: Call<Unshare>, flags: c_int) -> c_int {
    let alone = page_cache::be_alone();
    // SAFETY: the caller's own argument.
    let answer = unsafe { (call.real)(flags) };
    alone.no_longer();
    answer
}

/// `setns`.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn setns(call: Call<Setns>, fd: c_int, kind: c_int) -> c_int {
    let alone = page_cache::be_alone();
    // SAFETY: the caller's own arguments.
    let answer = unsafe { (call.real)(fd, kind) };
    alone.no_longer();
    answer
}

/// `syscall`, with one of the numbers above: libraries of filters go this way, and so does libuv to
/// close a descriptor.
///
/// # Safety
/// As `prctl`.
#[expect(clippy::too_many_arguments, reason = "the function's own")]
pub(crate) unsafe fn syscall(
    call: Call<Syscall>,
    number: isize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let filters = match number {
        number::SECCOMP => a <= SECCOMP_SET_MODE_FILTER,
        number::PRCTL => int(a) == PR_SET_SECCOMP,
        _ => false,
    };
    let begun = filters && sandbox::begins();
    let namespaces = matches!(number, number::UNSHARE | number::SETNS);
    let alone = namespaces.then(page_cache::be_alone);
    if number == number::CLOSE {
        page_cache::closing(int(a));
    }
    // SAFETY: the caller's own arguments.
    let answer = unsafe { (call.real)(number, a, b, c, d, e, f) };
    if begun && answer < 0 {
        sandbox::failed();
    }
    if let Some(alone) = alone {
        alone.no_longer();
    }
    answer
}
