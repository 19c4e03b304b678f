//! Hooks of calls that conflict with the library's own activity. Filters of system calls do not
//! allow the library's. The kernel refuses new namespaces to a process with a second thread. libc
//! applies new credentials only to the threads that it knows.
//! Touches: the page cache's helper, which ends before the call; then the real function.
//! Law: as in `open`. `syscall` jumps to libc's own for every number but these.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::page_cache::{self, seccomp};
use crate::real::functions::Call;

type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
type Unshare = unsafe extern "C" fn(c_int) -> c_int;
type Setns = unsafe extern "C" fn(c_int, c_int) -> c_int;
type SetOne = unsafe extern "C" fn(c_uint) -> c_int;
type SetTwo = unsafe extern "C" fn(c_uint, c_uint) -> c_int;
type SetThree = unsafe extern "C" fn(c_uint, c_uint, c_uint) -> c_int;
type SetGroups = unsafe extern "C" fn(usize, *const c_uint) -> c_int;
type InitGroups = unsafe extern "C" fn(*const c_char, c_uint) -> c_int;
type SetCapabilities = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
type Syscall = unsafe extern "C" fn(isize, usize, usize, usize, usize, usize, usize) -> isize;

/// The system-call numbers that matter here.
#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    pub(crate) const CLOSE: isize = 3;
    pub(crate) const PRCTL: isize = 157;
    pub(crate) const UNSHARE: isize = 272;
    pub(crate) const SETNS: isize = 308;
    pub(crate) const SECCOMP: isize = 317;
    pub(crate) const LANDLOCK_RESTRICT_SELF: isize = 446;
    /// The range of all calls that change credentials: `setuid` is the first, `capset` the last.
    pub(crate) const FIRST_OF_CREDENTIALS: isize = 105;
    pub(crate) const LAST_OF_CREDENTIALS: isize = 126;
    pub(crate) const CREDENTIALS: [isize; 10] = [105, 106, 113, 114, 116, 117, 119, 122, 123, 126];
}

/// The system-call numbers that matter here.
#[cfg(target_arch = "aarch64")]
pub(crate) mod number {
    pub(crate) const CLOSE: isize = 57;
    pub(crate) const UNSHARE: isize = 97;
    pub(crate) const PRCTL: isize = 167;
    pub(crate) const SETNS: isize = 268;
    pub(crate) const SECCOMP: isize = 277;
    pub(crate) const LANDLOCK_RESTRICT_SELF: isize = 446;
    pub(crate) const CAPSET: isize = 91;
    /// The range of all other calls that change credentials: `setregid` is the first, `setgroups`
    /// the last.
    pub(crate) const FIRST_OF_CREDENTIALS: isize = 143;
    pub(crate) const LAST_OF_CREDENTIALS: isize = 159;
    pub(crate) const CREDENTIALS: [isize; 10] =
        [CAPSET, 143, 144, 145, 146, 147, 149, 151, 152, 159];
}

const PR_SET_SECCOMP: c_int = 22;
/// The options of `prctl` by which a thread gives up rights: `PR_CAPBSET_DROP`,
/// `PR_SET_SECUREBITS`, `PR_SET_NO_NEW_PRIVS`, `PR_CAP_AMBIENT`.
const GIVEN_UP: [c_int; 4] = [24, 28, 38, 47];
/// The last of `seccomp`'s operations that install a filter or mode.
const SECCOMP_SET_MODE_FILTER: usize = 1;

/// An argument that the kernel reads as an int.
fn int(argument: usize) -> c_int {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    c_int::from_le_bytes([a, b, c, d])
}

/// `prctl`: only filters and rights given up matter here.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn prctl(
    call: Call<Prctl>,
    option: c_int,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_int {
    let begun = option == PR_SET_SECCOMP && seccomp::begins();
    let helper = GIVEN_UP.contains(&option).then(page_cache::stop_helper);
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(option, a, b, c, d) };
    if begun && answer < 0 {
        seccomp::failed();
    }
    if let Some(helper) = helper {
        helper.resume();
    }
    answer
}

/// `setuid` and other calls with one id. libc would not change the credentials of a thread that it
/// does not know. So the page cache's thread ends before the call, and the next one is started by a
/// thread with the new credentials.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn set_one(call: Call<SetOne>, id: c_uint) -> c_int {
    let helper = page_cache::stop_helper();
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let answer = unsafe { (call.real)(id) };
    helper.resume();
    answer
}

/// `setreuid` and `setregid`.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn set_two(call: Call<SetTwo>, real: c_uint, effective: c_uint) -> c_int {
    let helper = page_cache::stop_helper();
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(real, effective) };
    helper.resume();
    answer
}

/// `setresuid` and `setresgid`.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn set_three(
    call: Call<SetThree>,
    real: c_uint,
    effective: c_uint,
    saved: c_uint,
) -> c_int {
    let helper = page_cache::stop_helper();
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(real, effective, saved) };
    helper.resume();
    answer
}

/// `setgroups`.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn set_groups(
    call: Call<SetGroups>,
    count: usize,
    groups: *const c_uint,
) -> c_int {
    let helper = page_cache::stop_helper();
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(count, groups) };
    helper.resume();
    answer
}

/// `initgroups`, which calls `setgroups` inside libc, past its hook.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn init_groups(
    call: Call<InitGroups>,
    user: *const c_char,
    group: c_uint,
) -> c_int {
    let helper = page_cache::stop_helper();
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(user, group) };
    helper.resume();
    answer
}

/// `capset`.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn set_capabilities(
    call: Call<SetCapabilities>,
    header: *mut c_void,
    data: *const c_void,
) -> c_int {
    let helper = page_cache::stop_helper();
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(header, data) };
    helper.resume();
    answer
}

/// `unshare`.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn unshare(call: Call<Unshare>, flags: c_int) -> c_int {
    let helper = page_cache::stop_helper();
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let answer = unsafe { (call.real)(flags) };
    helper.resume();
    answer
}

/// `setns`.
///
/// # Safety
/// As `prctl`.
pub(crate) unsafe fn setns(call: Call<Setns>, fd: c_int, kind: c_int) -> c_int {
    let helper = page_cache::stop_helper();
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(fd, kind) };
    helper.resume();
    answer
}

/// `syscall` with one of the numbers above: seccomp libraries use it, and libuv closes descriptors
/// by it.
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
    let begun = filters && seccomp::begins();
    let needs_one_thread = match number {
        number::UNSHARE | number::SETNS | number::LANDLOCK_RESTRICT_SELF => true,
        number::PRCTL => GIVEN_UP.contains(&int(a)),
        _ => number::CREDENTIALS.contains(&number),
    };
    let helper = needs_one_thread.then(page_cache::stop_helper);
    if number == number::CLOSE {
        page_cache::closing(int(a));
    }
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let answer = unsafe { (call.real)(number, a, b, c, d, e, f) };
    if begun && answer < 0 {
        seccomp::failed();
    }
    if let Some(helper) = helper {
        helper.resume();
    }
    answer
}
