//! Contexts: charges the memory that a context takes, and releases the memory that ends with it.
//! Touches: the real function, then the ledger; NVML, for the first context of a slice.
//!
//! The first context of a slice is measured, because its size is not known before. It claims the
//! usual size before it is created, and is refused if that does not fit beside what the slice
//! holds. A slice that holds nothing may be smaller than the usual size, and its first context is
//! granted. An implausible size is due to a neighbour. Then, and also if the size cannot be
//! measured, the usual size is taken instead. The ledger remembers the size, and every later
//! context claims it before it is created.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::ManuallyDrop;

use gpuslice_config::ledger::Kind;
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::account::{self, Account, Outcome};
use crate::account::{context_size, current_context, graphs, leftovers, pools};
use crate::answer::device;
use crate::hooks::cuda::{green, pool};
use crate::hooks::out;
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUcontext, CUdevice, CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::Call;
use crate::state::contexts;
use crate::state::handles::{self, Charge, FoundEntry, Space};

type Retain = unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult;
type Release = unsafe extern "C" fn(CUdevice) -> CUresult;
type Create = unsafe extern "C" fn(*mut CUcontext, c_uint, CUdevice) -> CUresult;
type CreateV3 =
    unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_int, c_uint, CUdevice) -> CUresult;
type CreateV4 = unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_uint, CUdevice) -> CUresult;
type Destroy = unsafe extern "C" fn(CUcontext) -> CUresult;
type Attach = unsafe extern "C" fn(*mut CUcontext, c_uint) -> CUresult;

/// `cuDevicePrimaryCtxRetain`: the first call creates the context.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn primary_retain(
    call: Call<Retain>,
    pctx: *mut CUcontext,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pctx, dev) };
    // The driver has its own error for a null pointer.
    let Some((account, ordinal)) = counted(call.copy, dev).filter(|_| !pctx.is_null()) else {
        return ask();
    };
    // SAFETY: `make_primary` calls it after the driver has created a context and written it to
    // `pctx`.
    let context = || unsafe { out::got_handle(pctx) };
    make_primary(&account, call.copy, ordinal, context, ask)
}

/// `cuCtxCreate`, `cuGLCtxCreate`, and the second version of each.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn create(
    call: Call<Create>,
    pctx: *mut CUcontext,
    flags: c_uint,
    dev: CUdevice,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pctx, flags, dev) };
    // SAFETY: `ask` is the driver's call, which writes a context to `pctx`.
    unsafe { create_by(call.copy, pctx, dev, ask) }
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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pctx, params, count, flags, dev) };
    // SAFETY: `ask` is the driver's call, which writes a context to `pctx`.
    unsafe { create_by(call.copy, pctx, dev, ask) }
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
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pctx, params, flags, dev) };
    // SAFETY: `ask` is the driver's call, which writes a context to `pctx`.
    unsafe { create_by(call.copy, pctx, dev, ask) }
}

/// Creates and charges a context that is not primary.
///
/// # Safety
/// On success `ask` writes a context to `pctx`.
pub(super) unsafe fn create_by(
    copy: CopyId,
    pctx: *mut CUcontext,
    dev: CUdevice,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    match counted(copy, dev).filter(|_| !pctx.is_null()) {
        Some((account, ordinal)) => {
            // SAFETY: `make` calls it after the driver has created a context and written it to
            // `pctx`.
            let context = || unsafe { out::got_handle(pctx) };
            make(&account, copy, ordinal, context, None, ask)
        }
        None => ask(),
    }
}

pub(crate) fn counted(copy: CopyId, dev: CUdevice) -> Option<(Account, CudaOrdinal)> {
    let account = account::by_handle(copy, dev)?;
    Some((account, device::ordinal(dev)?))
}

/// Creates and charges a primary context, unless it is charged already. One thread at a time does so:
/// each would claim the size, and one of them could be refused although the context fits.
pub(crate) fn make_primary(
    account: &Account,
    copy: CopyId,
    ordinal: CudaOrdinal,
    handle: impl FnOnce() -> Option<u64>,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let number = u64::from(ordinal.0);
    let is_charged = || account::find(Space::Primary, number).is_some();
    if is_charged() {
        return ask();
    }
    let making = contexts::begin_primary(account.state, ordinal.0);
    let code = match is_charged() {
        true => ask(),
        false => make(account, copy, ordinal, handle, Some(number), ask),
    };
    contexts::end_primary(account.state, making);
    code
}

/// Creates and charges a context. `handle` returns its handle once it exists; `primary` is the
/// ordinal if it is a primary context.
fn make(
    account: &Account,
    copy: CopyId,
    ordinal: CudaOrdinal,
    handle: impl FnOnce() -> Option<u64>,
    primary: Option<u64>,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let (ledger, listed) = (account.ledger, account.listed);
    let mut known = ledger.context(listed);
    // The turn has no destructor, because the thread may be cancelled in the driver. Other threads
    // notice that this thread is gone, and take turns without it.
    let mut turn = None;
    let there = primary.is_some() && is_active(copy, ordinal);
    // A context that exists already cannot be measured.
    if known.is_none() && !there {
        turn = ledger.turn(listed).map(ManuallyDrop::new);
        known = ledger.context(listed);
    }
    if known.is_some() {
        turn.take().map(ManuallyDrop::into_inner);
    } else if !there && account.is_closed() {
        turn.take().map(ManuallyDrop::into_inner);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let claimed = match known {
        // The context was created by a call that the hooks did not see.
        Some(size) if there => account.record(size, Kind::Context).then_some(size),
        Some(size) => match account.claim(size, Kind::Context) {
            Outcome::Granted => Some(size),
            Outcome::Uncounted => None,
            Outcome::Refused(_) => return CUDA_ERROR_OUT_OF_MEMORY,
        },
        None => None,
    };
    let measures = known.is_none() && !there;
    let early = match measures.then(|| ahead(account)) {
        Some(Err(())) => {
            turn.take().map(ManuallyDrop::into_inner);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        early => early.and_then(Result::ok).unwrap_or(Bytes::ZERO),
    };
    let meter = measures.then(|| account.meter(copy, ordinal));
    let before = meter.map(|meter| meter.sample(|| account.host()));
    let own_before = before.is_some().then(|| ledger.own(listed).minus(early));
    let code = ask();
    let mut held = claimed.or(measures.then_some(early));
    let context = if code == SUCCESS { handle() } else { None };
    if let (Some(meter), Some(before)) = (meter, before) {
        let measured = match code {
            SUCCESS => {
                let held = own_before.unwrap_or(Bytes::ZERO);
                before.until(&meter.sample(|| account.host()), held)
            }
            _ => None,
        };
        meter.close();
        if code == SUCCESS {
            let others = || ledger.sum(listed).minus(early);
            let alone = || context_size::afterwards(copy, context, others());
            let size = measured.unwrap_or_else(alone).believed();
            ledger.learn_context(listed, size);
            if size < early {
                account.release(early.minus(size), Kind::Context);
                held = Some(size);
            } else if account.record(size.minus(early), Kind::Context) {
                held = Some(size);
            }
        }
    }
    turn.take().map(ManuallyDrop::into_inner);
    match context {
        Some(context) => {
            let number = contexts::number(account.state, context);
            let bytes = held.unwrap_or(Bytes::ZERO);
            let held = account.charge_in(bytes, Kind::Context, number);
            match primary {
                Some(ordinal) => account.remember(Space::Primary, ordinal, held),
                None => account.remember(Space::Context, context, held),
            }
        }
        None => account.release(held.unwrap_or(Bytes::ZERO), Kind::Context),
    }
    code
}

/// Claims the usual size for a context of unknown size. Returns what was claimed, or an error if
/// the slice holds memory and that size does not fit beside it.
#[cold]
fn ahead(account: &Account) -> Result<Bytes, ()> {
    let usual = Bytes::new(context_size::USUAL);
    match account.try_claim(usual, Kind::Context) {
        Outcome::Granted => Ok(usual),
        Outcome::Uncounted => Ok(Bytes::ZERO),
        Outcome::Refused(_) if account.ledger.sum(account.listed) == Bytes::ZERO => Ok(Bytes::ZERO),
        Outcome::Refused(refusal) => {
            account.refuse(usual, refusal);
            Err(())
        }
    }
}

/// Whether a device's primary context exists.
fn is_active(copy: CopyId, ordinal: CudaOrdinal) -> bool {
    current_context::has_primary(copy, ordinal) == Some(true)
}

/// `cuDevicePrimaryCtxRelease` and `cuDevicePrimaryCtxReset`, of both versions: the context ends
/// with its last user, or at once.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn primary_release(call: Call<Release>, dev: CUdevice) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let ask = || unsafe { (call.real)(dev) };
    match device::ordinal(dev) {
        Some(ordinal) => primary_let_go(call.copy, ordinal, ask),
        None => ask(),
    }
}

/// Releases a device's primary context. After the last release the context is gone, and with it all
/// memory allocated in it. The vendor calls that a reset, which may destroy the device's pools: no
/// thread may call the driver with them meanwhile. Memory from pools does not belong to a context, so
/// while the process has another context on the device, its pools stay charged as the driver reports
/// them.
pub(crate) fn primary_let_go(
    copy: CopyId,
    ordinal: CudaOrdinal,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let counts = account::counts();
    let closes = counts && is_active(copy, ordinal);
    if closes {
        pools::close_all(ordinal);
    }
    let code = ask();
    let gone = counts && code == SUCCESS && !is_active(copy, ordinal);
    let pools_end = gone && !current_context::has_created(copy, ordinal);
    if closes {
        pools::closed(copy, ordinal, pools_end);
    }
    if gone && let Some(found) = account::find(Space::Primary, u64::from(ordinal.0)) {
        let charge = found.charge();
        account::freed(found);
        account::context_gone(charge.context);
        green::primary_ended(charge.device);
        if pools_end {
            leftovers::ended(charge.device);
        }
        ended(copy);
    }
    code
}

/// Corrects the pools and graphs after a context has ended.
fn ended(copy: CopyId) {
    pool::settled(copy);
    graphs::settle_all(copy);
}

/// `cuCtxDestroy` and `cuCtxDestroy_v2`.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn destroy(call: Call<Destroy>, ctx: CUcontext) -> CUresult {
    let found = account::find(Space::Context, ctx as u64);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(ctx) };
    if code == SUCCESS {
        destroyed(call.copy, ctx, found);
    }
    code
}

fn destroyed(copy: CopyId, ctx: CUcontext, found: Option<FoundEntry>) {
    if let Some(attached) = account::find(Space::Attached, ctx as u64) {
        attached.take();
    }
    if let Some(found) = found {
        let Charge { context, .. } = found.charge();
        account::freed(found);
        account::context_gone(context);
        ended(copy);
    }
}

/// `cuCtxAttach`: counts one more attachment to the context.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn attach(call: Call<Attach>, pctx: *mut CUcontext, flags: c_uint) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(pctx, flags) };
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let context = unsafe { out::got_handle(pctx) }.filter(|_| code == SUCCESS);
    if let (Some(context), Some(state)) = (context, account::page()) {
        while let Some(found) = account::find(Space::Attached, context) {
            if found.replace_payload(found.payload().saturating_add(1)) {
                return code;
            }
        }
        handles::put_payload(state, Space::Attached, context, 1);
    }
    code
}

/// `cuCtxDetach`: the last detachment destroys the context.
///
/// # Safety
/// As `primary_retain`.
pub(crate) unsafe fn detach(call: Call<Destroy>, ctx: CUcontext) -> CUresult {
    let found = account::find(Space::Context, ctx as u64);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(ctx) };
    if code != SUCCESS {
        return code;
    }
    while let Some(attached) = account::find(Space::Attached, ctx as u64) {
        let left = attached.payload().saturating_sub(1);
        let done = match left {
            0 => attached.take(),
            _ => attached.replace_payload(left),
        };
        if done {
            return code;
        }
    }
    destroyed(call.copy, ctx, found);
    code
}
