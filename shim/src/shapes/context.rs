//! Contexts: what one takes of the device, and what ends with it.
//! Touches: the real function, then the ledger; NVML, for the first context of a slice.
//!
//! The first context of a slice is measured, and is not refused: nobody knows its size before.
//! The ledger remembers the size, which is claimed for every later one before it is made.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::ManuallyDrop;

use gpuslice_config::device::CudaOrdinal;
use gpuslice_config::ledger::Kind;
use gpuslice_config::units::Bytes;

use crate::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUcontext, CUdevice, CUresult, SUCCESS};
use crate::account::{self, Account, Asked};
use crate::held::{Held, Space};
use crate::log::Piece::Str;
use crate::real::Slot;
use crate::shapes::pool;
use crate::table::{self, Call};
use crate::{answer, contexts, count, device};

type Retain = unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult;
type Release = unsafe extern "C" fn(CUdevice) -> CUresult;
type Create = unsafe extern "C" fn(*mut CUcontext, c_uint, CUdevice) -> CUresult;
type CreateV3 =
    unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_int, c_uint, CUdevice) -> CUresult;
type CreateV4 = unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_uint, CUdevice) -> CUresult;
type Destroy = unsafe extern "C" fn(CUcontext) -> CUresult;

/// `cuDevicePrimaryCtxRetain`: the first one makes the context.
///
/// # Safety
/// The function's own contract: so for every shape.
pub(crate) unsafe fn primary_retain(
    call: Call<Retain>,
    pctx: *mut CUcontext,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(pctx, dev) };
    let Some((account, ordinal)) = counted(call.slot, dev) else {
        return ask();
    };
    let number = u64::from(ordinal.0);
    if account::find(Space::Primary, number).is_some() {
        return ask();
    }
    // SAFETY: `ask` makes a context and writes it there.
    unsafe { make(&account, call.slot, ordinal, pctx, Some(number), ask) }
}

/// `cuCtxCreate` and `cuCtxCreate_v2`.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn create(
    call: Call<Create>,
    pctx: *mut CUcontext,
    flags: c_uint,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(pctx, flags, dev) };
    match counted(call.slot, dev) {
        // SAFETY: `ask` makes a context and writes it there.
        Some((account, ordinal)) => unsafe { make(&account, call.slot, ordinal, pctx, None, ask) },
        None => ask(),
    }
}

/// `cuCtxCreate_v3`.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn create_v3(
    call: Call<CreateV3>,
    pctx: *mut CUcontext,
    params: *mut c_void,
    count: c_int,
    flags: c_uint,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(pctx, params, count, flags, dev) };
    match counted(call.slot, dev) {
        // SAFETY: `ask` makes a context and writes it there.
        Some((account, ordinal)) => unsafe { make(&account, call.slot, ordinal, pctx, None, ask) },
        None => ask(),
    }
}

/// `cuCtxCreate_v4`.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn create_v4(
    call: Call<CreateV4>,
    pctx: *mut CUcontext,
    params: *mut c_void,
    flags: c_uint,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let ask = || unsafe { (call.real)(pctx, params, flags, dev) };
    match counted(call.slot, dev) {
        // SAFETY: `ask` makes a context and writes it there.
        Some((account, ordinal)) => unsafe { make(&account, call.slot, ordinal, pctx, None, ask) },
        None => ask(),
    }
}

fn counted(slot: Slot, dev: CUdevice) -> Option<(Account, CudaOrdinal)> {
    let account = account::by_handle(slot, dev)?;
    Some((account, device::ordinal(dev)?))
}

/// Makes a context; `primary` is its number if it is one.
///
/// # Safety
/// `ask` is a call of the driver that makes a context and writes it to `place`.
unsafe fn make(
    account: &Account,
    slot: Slot,
    ordinal: CudaOrdinal,
    place: *const CUcontext,
    primary: Option<u64>,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let (ledger, listed) = (account.ledger, account.listed);
    let mut known = ledger.context(listed);
    // Without a destructor, for the thread may be cancelled in the driver: then nobody of this
    // slice measures until the process ends, and each of them waits for two seconds.
    let mut turn = None;
    let there = primary.is_some() && is_active(slot, ordinal);
    // What is there already cannot be measured.
    if known.is_none() && !there {
        turn = ledger.turn(listed).map(ManuallyDrop::new);
        known = ledger.context(listed);
    }
    if known.is_some() {
        turn.take().map(ManuallyDrop::into_inner);
    }
    let claimed = match known {
        // Somebody has made it where we did not see it.
        Some(size) if there => account.record(size, Kind::Context).then_some(size),
        Some(size) => match account.claim(size, Kind::Context) {
            Asked::Granted => Some(size),
            Asked::Uncounted => None,
            Asked::Refused(_) => return CUDA_ERROR_OUT_OF_MEMORY,
        },
        None => None,
    };
    let measures = known.is_none() && !there;
    let scale = measures.then(|| account.scale(slot, ordinal));
    let before = scale.map(|scale| scale.sample(account.host()));
    let code = ask();
    let mut held = claimed;
    if let (Some(scale), Some(before)) = (scale, before) {
        let measured = match code {
            SUCCESS => before.until(&scale.sample(account.host())),
            _ => None,
        };
        scale.close();
        match measured.filter(|size| *size != 0).map(account::rounded) {
            Some(size) => {
                ledger.learn_context(listed, size);
                held = account.record(size, Kind::Context).then_some(size);
            }
            None if code == SUCCESS => {
                count::CONTEXT.say("context", &[Str("cannot be measured: it is not counted")])
            }
            _ => {}
        }
    }
    turn.take().map(ManuallyDrop::into_inner);
    // SAFETY: as the caller promises.
    let context = unsafe { answer::got_handle(place) }.filter(|_| code == SUCCESS);
    match context {
        Some(context) => {
            let number = contexts::number(account.private, context);
            let bytes = held.unwrap_or(Bytes::ZERO);
            let held = account.held(bytes, Kind::Context, number);
            match primary {
                Some(ordinal) => account.remember(Space::Primary, ordinal, held),
                None => account.remember(Space::Context, context, held),
            }
        }
        None => account.release(held.unwrap_or(Bytes::ZERO), Kind::Context),
    }
    code
}

/// Whether a device's primary context is there.
fn is_active(slot: Slot, ordinal: CudaOrdinal) -> bool {
    let (mut flags, mut active) = (0, 0);
    let Ok(dev) = CUdevice::try_from(ordinal.0) else {
        return false;
    };
    let Some(ask) = table::cuDevicePrimaryCtxGetState::real(slot) else {
        return false;
    };
    // SAFETY: cuDevicePrimaryCtxGetState's contract.
    let code = unsafe { ask(dev, &raw mut flags, &raw mut active) };
    code == SUCCESS && active != 0
}

/// `cuDevicePrimaryCtxRelease` and `cuDevicePrimaryCtxReset`, of both versions: the context ends
/// with its last user, or at once.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn primary_release(call: Call<Release>, dev: CUdevice) -> CUresult {
    let ordinal = device::ordinal(dev);
    let number = ordinal.map_or(u64::MAX, |ordinal| u64::from(ordinal.0));
    let found = account::find(Space::Primary, number);
    // SAFETY: the caller's own argument.
    let code = unsafe { (call.real)(dev) };
    if code == SUCCESS
        && let (Some(found), Some(ordinal)) = (found, ordinal)
        && !is_active(call.slot, ordinal)
    {
        let Held { context, .. } = found.held();
        account::freed(found);
        account::context_gone(context);
        pool::settled(call.slot);
    }
    code
}

/// `cuCtxDestroy` and `cuCtxDestroy_v2`.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn destroy(call: Call<Destroy>, ctx: CUcontext) -> CUresult {
    let number = ctx as u64;
    let found = account::find(Space::Context, number);
    // SAFETY: the caller's own argument.
    let code = unsafe { (call.real)(ctx) };
    if code == SUCCESS
        && let Some(found) = found
    {
        let Held { context, .. } = found.held();
        account::freed(found);
        account::context_gone(context);
        pool::settled(call.slot);
    }
    code
}
