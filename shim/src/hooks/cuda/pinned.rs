//! Pinned host memory: charged on unified memory, left to the driver on other devices.
//! Touches: the ledger, on unified memory; the real function, unless the slice has no room.

use core::ffi::{c_uint, c_void};

use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use crate::account::{self, Paid, Request};
use crate::answer::device;
use crate::hooks::out::{self, Amount};
use crate::real::abi::{CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::handles::Space;
use gpuslice_config::ledger::stepped;

type AllocHost<S> = unsafe extern "C" fn(*mut *mut c_void, S) -> CUresult;
type HostAlloc = unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> CUresult;
type Register = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> CUresult;
type Release = unsafe extern "C" fn(*mut c_void) -> CUresult;

/// `cuMemAllocHost` and `cuMemAllocHost_v2`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn alloc_host<S: Amount>(
    call: Call<AllocHost<S>>,
    pp: *mut *mut c_void,
    bytesize: S,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pp, bytesize) };
    // SAFETY: called on success: the driver has written a pointer to `pp`.
    let made = || unsafe { out::got_handle(pp) };
    // SAFETY: called on success: the driver has written a pointer to `pp`.
    let undo = || unsafe { free(call.copy, pp) };
    pin(
        call.copy,
        bytesize.into_u64(),
        !pp.is_null(),
        ask,
        made,
        undo,
    )
}

/// Frees pinned memory that the driver has just allocated.
///
/// # Safety
/// The driver has written a pointer to `place`, or `place` is null.
unsafe fn free(copy: CopyId, place: *const *mut c_void) {
    // SAFETY: the caller guarantees that `place` is null or written.
    let made = unsafe { out::got_handle(place) };
    if let (Some(free), Some(made)) = (functions::cuMemFreeHost::real(copy), made) {
        // SAFETY: the driver has just allocated it; no other thread knows it.
        unsafe { free(made as *mut c_void) };
    }
}

/// `cuMemHostAlloc`.
///
/// # Safety
/// As `alloc_host`.
pub(crate) unsafe fn host_alloc(
    call: Call<HostAlloc>,
    pp: *mut *mut c_void,
    bytesize: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pp, bytesize, flags) };
    // SAFETY: called on success: the driver has written a pointer to `pp`.
    let made = || unsafe { out::got_handle(pp) };
    /// All of `CU_MEMHOSTALLOC_*`.
    const FLAGS: c_uint = 7;
    let is_valid = !pp.is_null() && flags <= FLAGS;
    // SAFETY: called on success: the driver has written a pointer to `pp`.
    let undo = || unsafe { free(call.copy, pp) };
    pin(call.copy, bytesize.into_u64(), is_valid, ask, made, undo)
}

/// `cuMemHostRegister` and `cuMemHostRegister_v2`.
///
/// # Safety
/// As `alloc_host`.
pub(crate) unsafe fn register(
    call: Call<Register>,
    p: *mut c_void,
    bytesize: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(p, bytesize, flags) };
    /// All of `CU_MEMHOSTREGISTER_*`.
    const FLAGS: c_uint = 15;
    let is_valid = !p.is_null() && flags <= FLAGS;
    let undo = || {
        if let Some(unregister) = functions::cuMemHostUnregister::real(call.copy) {
            // SAFETY: this thread has just registered it.
            unsafe { unregister(p) };
        }
    };
    let made = || Some(p as u64);
    pin(call.copy, bytesize.into_u64(), is_valid, ask, made, undo)
}

/// Claims and pins memory. `is_valid`: whether the driver would accept the arguments; `undo` unpins
/// memory that the driver has pinned after all.
fn pin(
    copy: CopyId,
    request: u64,
    is_valid: bool,
    ask: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> Option<u64>,
    undo: impl FnOnce(),
) -> CUresult {
    let account = account::current(copy).filter(|account| request != 0 && account.unified());
    let Some(account) = account else {
        return ask();
    };
    let request = Request {
        bytes: Bytes::new(request),
        claimed: stepped(request),
        kind: Kind::Pinned,
    };
    let is_valid = || is_valid && device::has_context(copy);
    let record = || match made() {
        Some(at) => {
            let charge = account.charge_here(request.claimed, Kind::Pinned);
            account.remember(Space::Pinned, at, charge);
            Paid::Kept
        }
        None => Paid::Released,
    };
    account.pay(request, is_valid, ask, record, undo)
}

/// `cuMemFreeHost` and `cuMemHostUnregister`.
///
/// # Safety
/// As `alloc_host`.
pub(crate) unsafe fn release(call: Call<Release>, p: *mut c_void) -> CUresult {
    let found = account::find(Space::Pinned, p as u64);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(p) };
    if code == SUCCESS
        && let Some(found) = found
    {
        account::freed(found);
    }
    code
}
