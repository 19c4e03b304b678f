//! Pinned host memory: the device's own where both share it, and nobody's business elsewhere.
//! Touches: the ledger, on unified memory; the real function, unless the slice has no room.

use core::ffi::{c_uint, c_void};

use gpuslice_config::ledger::Kind;
use gpuslice_config::units::Bytes;

use crate::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUresult, SUCCESS};
use crate::account::{self, Asked, stepped};
use crate::answer::{self, Amount};
use crate::held::Space;
use crate::real::Slot;
use crate::table::Call;

type AllocHost<S> = unsafe extern "C" fn(*mut *mut c_void, S) -> CUresult;
type HostAlloc = unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> CUresult;
type Register = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> CUresult;
type Release = unsafe extern "C" fn(*mut c_void) -> CUresult;

/// `cuMemAllocHost` and `cuMemAllocHost_v2`.
///
/// # Safety
/// The function's own contract: so for every shape.
pub(crate) unsafe fn alloc_host<S: Amount>(
    call: Call<AllocHost<S>>,
    pp: *mut *mut c_void,
    bytesize: S,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(pp, bytesize) };
    // SAFETY: on success the driver has written a pointer there.
    let made = || unsafe { answer::got_handle(pp) };
    pin(call.slot, bytesize.into_u64(), ask, made)
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
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(pp, bytesize, flags) };
    // SAFETY: on success the driver has written a pointer there.
    let made = || unsafe { answer::got_handle(pp) };
    pin(call.slot, bytesize.into_u64(), ask, made)
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
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(p, bytesize, flags) };
    pin(call.slot, bytesize.into_u64(), ask, || Some(p as u64))
}

fn pin(
    slot: Slot,
    request: u64,
    ask: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> Option<u64>,
) -> CUresult {
    let account = account::current(slot).filter(|account| request != 0 && account.unified());
    let Some(account) = account else {
        return ask();
    };
    let bytes = stepped(request);
    match account.claim_for(Bytes::new(request), bytes, Kind::Pinned) {
        Asked::Granted => {}
        Asked::Uncounted => return ask(),
        Asked::Refused(_) => return CUDA_ERROR_OUT_OF_MEMORY,
    }
    let code = ask();
    match (code == SUCCESS).then(made).flatten() {
        Some(at) => account.remember(Space::Pinned, at, account.here(bytes, Kind::Pinned)),
        None => account.release(bytes, Kind::Pinned),
    }
    code
}

/// `cuMemFreeHost` and `cuMemHostUnregister`.
///
/// # Safety
/// As `alloc_host`.
pub(crate) unsafe fn release(call: Call<Release>, p: *mut c_void) -> CUresult {
    let found = account::find(Space::Pinned, p as u64);
    // SAFETY: the caller's own argument.
    let code = unsafe { (call.real)(p) };
    if code == SUCCESS
        && let Some(found) = found
    {
        account::freed(found);
    }
    code
}
