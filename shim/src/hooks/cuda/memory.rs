//! Linear memory: claims it, then calls the driver; releases it after the driver has freed it.
//! Touches: the ledger; the real function, unless the slice has no room.

use core::ffi::c_uint;

use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use crate::account::{self, Account, Memory, Outcome, Paid, Request};
use crate::account::{leftovers, sharing};
use crate::answer::device;
use crate::hooks::cuda::pool;
use crate::hooks::out::{self, Amount};
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr, CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::allocations::{SMALL, STEP};
use crate::state::handles::Charge;
use gpuslice_config::ledger::stepped;

type Alloc<P, S> = unsafe extern "C" fn(*mut P, S) -> CUresult;
type Free<P> = unsafe extern "C" fn(P) -> CUresult;
type AllocManaged = unsafe extern "C" fn(*mut CUdeviceptr, usize, c_uint) -> CUresult;
type AllocPitch<P, S> = unsafe extern "C" fn(*mut P, *mut S, S, S, c_uint) -> CUresult;

/// `cuMemAlloc` and `cuMemAlloc_v2`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn linear<P: Amount, S: Amount>(
    call: Call<Alloc<P, S>>,
    dptr: *mut P,
    bytesize: S,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(dptr, bytesize) };
    let request = bytesize.into_u64();
    let Some(account) = counted(call.copy, request) else {
        return ask();
    };
    let is_valid = || !dptr.is_null();
    if request <= SMALL {
        // SAFETY: `ask` is a driver call that allocates and writes its pointer to `dptr`.
        return unsafe { small(&account, dptr, request, Kind::Linear, is_valid, ask) };
    }
    // SAFETY: `ask` is a driver call that allocates and writes its pointer to `dptr`.
    unsafe { whole(&account, dptr, request, Kind::Linear, is_valid, ask) }
}

/// `cuMemAllocManaged`. Managed memory is charged in full when it is allocated: the driver moves it
/// to the device only when it is used there, and no call reports that. So managed memory cannot
/// exceed the slice, unless the slice leaves it to the driver.
///
/// # Safety
/// As `linear`.
pub(crate) unsafe fn managed(
    call: Call<AllocManaged>,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(dptr, bytesize, flags) };
    let request = bytesize.into_u64();
    let account = counted(call.copy, request).filter(Account::counts_managed);
    let Some(account) = account else {
        return ask();
    };
    /// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
    const ATTACHED: [c_uint; 2] = [1, 2];
    let is_valid = || !dptr.is_null() && ATTACHED.contains(&flags);
    if request <= SMALL {
        // SAFETY: `ask` is a driver call that allocates and writes its pointer to `dptr`.
        return unsafe { small(&account, dptr, request, Kind::Managed, is_valid, ask) };
    }
    // SAFETY: `ask` is a driver call that allocates and writes its pointer to `dptr`.
    unsafe { whole(&account, dptr, request, Kind::Managed, is_valid, ask) }
}

/// `cuMemAllocPitch` and `cuMemAllocPitch_v2`: the driver decides the length of a line.
///
/// # Safety
/// As `linear`.
pub(crate) unsafe fn pitch<P: Amount, S: Amount>(
    call: Call<AllocPitch<P, S>>,
    dptr: *mut P,
    pitch: *mut S,
    width: S,
    height: S,
    element: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(dptr, pitch, width, height, element) };
    /// The least alignment of lines in any driver, in bytes.
    const LINE: u64 = 512;
    let (width, height) = (width.into_u64(), height.into_u64());
    let line = width.checked_next_multiple_of(LINE).unwrap_or(u64::MAX);
    let least = line.saturating_mul(height);
    let Some(account) = counted(call.copy, least) else {
        return ask();
    };
    /// `CU_DEVICE_ATTRIBUTE_MAX_PITCH` of every device.
    const LONGEST: u64 = (1 << 31) - 1;
    let is_valid = || {
        let places = !dptr.is_null() && !pitch.is_null();
        places && width <= LONGEST && matches!(element, 4 | 8 | 16)
    };
    if least <= SMALL {
        // SAFETY: `ask` is a driver call that allocates and writes its pointer to `dptr`.
        return unsafe { small(&account, dptr, least, Kind::Linear, is_valid, ask) };
    }
    let claimed = stepped(least);
    // SAFETY: `ask` is a driver call that allocates and writes its pointer to `dptr`.
    let code = unsafe { whole(&account, dptr, least, Kind::Linear, is_valid, ask) };
    if code != SUCCESS {
        return code;
    }
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let at = unsafe { out::got(dptr) };
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let real = unsafe { out::got(pitch) };
    let real = stepped(real.unwrap_or(line).saturating_mul(height));
    let more = real.minus(claimed);
    let (Some(at), true) = (at, more > Bytes::ZERO) else {
        return code;
    };
    if let Outcome::Refused(_) = account.claim(more, Kind::Linear) {
        give_back(call.copy, at);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let bytes = claimed.plus(more);
    let kept = match account::memory(at) {
        Some(Memory::Word(found)) => found.charge().bytes == claimed && found.resize(bytes),
        Some(Memory::Stray(found)) => found.replace(Charge {
            bytes,
            ..found.charge()
        }),
        None => false,
    };
    if !kept {
        account.release(more, Kind::Linear);
    }
    code
}

/// `cuMemFree` and `cuMemFree_v2`. Memory without a record is left to the driver.
///
/// # Safety
/// As `linear`.
pub(crate) unsafe fn free<P: Amount>(call: Call<Free<P>>, dptr: P) -> CUresult {
    let memory = account::memory(dptr.into_u64());
    let leftover = match memory {
        Some(_) => None,
        None => leftovers::at(call.copy, dptr.into_u64()),
    };
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(dptr) };
    if code == SUCCESS
        && let Some(memory) = memory
    {
        sharing::freed(dptr.into_u64());
        account::memory_freed(memory);
    } else if code == SUCCESS {
        // Memory from a pool: the ordinary free synchronises, so pools may have shrunk.
        pool::settled(call.copy);
        if let Some(leftover) = leftover {
            leftover.freed();
        }
    }
    code
}

/// Frees memory that the driver has just allocated, and releases it in the ledger.
fn give_back(copy: CopyId, at: u64) {
    let memory = account::memory(at);
    if let Some(free) = functions::cuMemFree_v2::real(copy) {
        // SAFETY: the driver has just returned this pointer; no other thread knows it.
        let code = unsafe { free(at) };
        if code == SUCCESS
            && let Some(memory) = memory
        {
            account::memory_freed(memory);
        }
    }
}

/// The account of the current device, for a request of more than 0 bytes.
#[inline(always)]
fn counted(copy: CopyId, request: u64) -> Option<Account> {
    // The driver has its own error for a request of 0 bytes.
    if request == 0 {
        return None;
    }
    account::current(copy)
}

/// Allocates memory that has its steps to itself. `is_valid`: whether the driver would accept the
/// arguments.
///
/// # Safety
/// `ask` is a driver call that writes its pointer to `place` if that is not null.
#[inline(always)]
pub(crate) unsafe fn whole<P: Amount>(
    account: &Account,
    place: *const P,
    bytes: u64,
    kind: Kind,
    is_valid: impl FnOnce() -> bool,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let request = Request {
        bytes: Bytes::new(bytes),
        claimed: stepped(bytes),
        kind,
    };
    let record = |at| {
        account.keep(at, request.claimed, kind);
        Paid::Kept
    };
    // SAFETY: the caller guarantees that `ask` writes its pointer to `place`.
    unsafe { pay(account, place, request, is_valid, ask, record) }
}

/// Allocates memory that may share its step with other small allocations. Without room for a new
/// step the request is refused: the driver may need one, and that is not known before the call.
///
/// # Safety
/// As `whole`.
#[inline(always)]
unsafe fn small<P: Amount>(
    account: &Account,
    place: *const P,
    bytes: u64,
    kind: Kind,
    is_valid: impl FnOnce() -> bool,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let request = Request {
        bytes: Bytes::new(bytes),
        claimed: Bytes::new(STEP),
        kind,
    };
    let record = |at| match account.keep_small(at, kind) {
        true => Paid::Kept,
        false => Paid::Released,
    };
    // SAFETY: the caller guarantees that `ask` writes its pointer to `place`.
    unsafe { pay(account, place, request, is_valid, ask, record) }
}

/// `Account::pay` for linear memory. `record` gets the driver's pointer.
///
/// # Safety
/// As `whole`.
#[inline(always)]
unsafe fn pay<P: Amount>(
    account: &Account,
    place: *const P,
    request: Request,
    is_valid: impl FnOnce() -> bool,
    ask: impl FnOnce() -> CUresult,
    record: impl FnOnce(u64) -> Paid,
) -> CUresult {
    let is_valid = || is_valid() && device::has_context(account.copy);
    let record = || {
        // SAFETY: `pay` calls it on CUDA_SUCCESS, so the driver has written `place` if it is not
        // null.
        match unsafe { out::got(place) } {
            Some(at) => record(at),
            None => Paid::Released,
        }
    };
    let undo = || {
        let free = functions::cuMemFree_v2::real(account.copy);
        // SAFETY: `pay` calls it on CUDA_SUCCESS, so the driver has written `place` if it is not
        // null.
        if let (Some(free), Some(at)) = (free, unsafe { out::got(place) }) {
            // SAFETY: the driver has just returned this pointer; no other thread knows it.
            unsafe { free(at) };
        }
    };
    account.pay(request, is_valid, ask, record, undo)
}
