//! Linear memory: claims it, then calls the driver.
//! Touches: the ledger; the real function, unless the slice has no room.

use core::ffi::c_uint;

use gpuslice_config::answer::admit::Refusal;
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use crate::account::{self, Account, Memory, Outcome};
use crate::answer::device;
use crate::hooks::out::{self, Amount};
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr, CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::allocations::{SMALL, STEP};
use crate::state::handles::Charge;
use gpuslice_config::ledger::stepped;

type Alloc<P, S> = unsafe extern "C" fn(*mut P, S) -> CUresult;
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
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(dptr, bytesize) };
    let request = bytesize.into_u64();
    let Some(account) = counted(call.copy, request) else {
        return ask();
    };
    let is_valid = || !dptr.is_null();
    if request <= SMALL {
        // SAFETY: `ask` is a driver call that allocates and writes its pointer to `dptr`.
        return unsafe { small(&account, dptr, request, is_valid, ask) };
    }
    // SAFETY: `ask` is a driver call that allocates and writes its pointer to `dptr`.
    unsafe { whole(&account, dptr, request, Kind::Linear, is_valid, ask) }
}

/// `cuMemAllocManaged`: charged in full when it is allocated. The driver moves it to the device
/// only on use there, which no call reports. So it cannot exceed the slice, unless the slice leaves
/// managed memory to the driver.
///
/// # Safety
/// As `linear`.
pub(crate) unsafe fn managed(
    call: Call<AllocManaged>,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(dptr, bytesize, flags) };
    let request = bytesize.into_u64();
    let account = counted(call.copy, request).filter(Account::counts_managed);
    let Some(account) = account else {
        return ask();
    };
    /// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
    const ATTACHED: [c_uint; 2] = [1, 2];
    let is_valid = || !dptr.is_null() && ATTACHED.contains(&flags);
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
    // SAFETY: the caller's own arguments.
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
        return unsafe { small(&account, dptr, least, is_valid, ask) };
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

/// Refuses a request that there is no room for. If the driver has an error of its own for the
/// request, the program gets that error, and no refusal is recorded. `undo` frees memory that the
/// driver has allocated after all.
#[cold]
pub(crate) fn refuse(
    account: &Account,
    bytes: Bytes,
    refusal: Refusal,
    is_valid: bool,
    ask: impl FnOnce() -> CUresult,
    undo: impl FnOnce(),
) -> CUresult {
    if !is_valid {
        let code = ask();
        if code != SUCCESS {
            return code;
        }
        undo();
    }
    account.refuse(bytes, refusal);
    CUDA_ERROR_OUT_OF_MEMORY
}

/// `refuse` for linear memory.
///
/// # Safety
/// `ask` is a driver call that writes its pointer to `place` if that is not null.
#[cold]
unsafe fn refuse_linear<P: Amount>(
    account: &Account,
    place: *const P,
    (bytes, refusal): (Bytes, Refusal),
    is_valid: impl FnOnce() -> bool,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let is_valid = is_valid() && device::has_context(account.copy);
    let undo = || {
        let free = functions::cuMemFree_v2::real(account.copy);
        // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
        if let (Some(free), Some(at)) = (free, unsafe { out::got(place) }) {
            // SAFETY: the driver has just returned this pointer; no other thread knows it.
            unsafe { free(at) };
        }
    };
    refuse(account, bytes, refusal, is_valid, ask, undo)
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
    request: u64,
    kind: Kind,
    is_valid: impl FnOnce() -> bool,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let bytes = stepped(request);
    match account.try_claim_steps(Bytes::new(request), bytes, kind) {
        Outcome::Granted => {}
        Outcome::Uncounted => return ask(),
        Outcome::Refused(refusal) => {
            // SAFETY: the caller guarantees that `ask` writes its pointer to `place`.
            return unsafe { refuse_linear(account, place, (bytes, refusal), is_valid, ask) };
        }
    }
    let code = ask();
    // SAFETY: the caller guarantees that `ask` writes its pointer to `place`.
    match unsafe { out::got(place) } {
        Some(at) if code == SUCCESS => account.keep(at, bytes, kind),
        _ => account.release(bytes, kind),
    }
    code
}

/// Allocates memory that may share its step with other small allocations. Without room for a new
/// step it is refused, because the driver may need one, which is not known before.
///
/// # Safety
/// As `whole`.
#[inline(always)]
unsafe fn small<P: Amount>(
    account: &Account,
    place: *const P,
    request: u64,
    is_valid: impl FnOnce() -> bool,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let step = Bytes::new(STEP);
    match account.try_claim_steps(Bytes::new(request), step, Kind::Linear) {
        Outcome::Granted => {}
        Outcome::Uncounted => return ask(),
        Outcome::Refused(refusal) => {
            // SAFETY: the caller guarantees that `ask` writes its pointer to `place`.
            return unsafe { refuse_linear(account, place, (step, refusal), is_valid, ask) };
        }
    }
    let code = ask();
    // SAFETY: the caller guarantees that `ask` writes its pointer to `place`.
    let at = unsafe { out::got(place) }.filter(|_| code == SUCCESS);
    let new_step = at.is_some_and(|at| account.keep_small(at));
    if !new_step {
        account.release(step, Kind::Linear);
    }
    code
}
