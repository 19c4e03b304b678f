//! Green contexts: parts of a device that keep its primary context alive and have no memory of
//! their own.
//! Touches: the real function, then the ledger.

use core::ffi::{c_uint, c_void};

use gpuslice_config::ledger;

use crate::account;
use crate::answer::device;
use crate::hooks::cuda::context;
use crate::hooks::out;
use crate::real::abi::{CUcontext, CUdevice, CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::handles::{self, Space};

type GreenCtx = *mut c_void;
type Create = unsafe extern "C" fn(*mut GreenCtx, *mut c_void, CUdevice, c_uint) -> CUresult;
type Destroy = unsafe extern "C" fn(GreenCtx) -> CUresult;
type FromGreen = unsafe extern "C" fn(*mut CUcontext, GreenCtx) -> CUresult;

/// `cuGreenCtxCreate`: creates the primary context if there is none.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn create(
    call: Call<Create>,
    green: *mut GreenCtx,
    resources: *mut c_void,
    dev: CUdevice,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(green, resources, dev, flags) };
    let Some((account, ordinal)) = context::counted(call.copy, dev) else {
        return ask();
    };
    let number = u64::from(ordinal.0);
    let primary = || primary(call.copy, dev);
    let code = context::make_primary(&account, call.copy, ordinal, primary, ask);
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let made = unsafe { out::got_handle(green) }.filter(|_| code == SUCCESS);
    if let Some(made) = made {
        handles::put_payload(account.state, Space::Green, made, number);
    }
    code
}

/// The handle of an existing primary context.
fn primary(copy: CopyId, dev: CUdevice) -> Option<u64> {
    let retain = functions::cuDevicePrimaryCtxRetain::real(copy)?;
    let release = functions::cuDevicePrimaryCtxRelease_v2::real(copy)?;
    let mut context = core::ptr::null_mut();
    // SAFETY: cuDevicePrimaryCtxRetain's contract: it writes to locals of its types.
    let code = unsafe { retain(&raw mut context, dev) };
    (code == SUCCESS).then_some(())?;
    // SAFETY: releases the reference that was just retained.
    unsafe { release(dev) };
    Some(context as u64)
}

/// `cuGreenCtxDestroy`: releases the primary context.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn destroy(call: Call<Destroy>, green: GreenCtx) -> CUresult {
    let found = account::find(Space::Green, green as u64);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let ask = || unsafe { (call.real)(green) };
    let ordinal = found.and_then(|found| CUdevice::try_from(found.payload()).ok());
    let code = match ordinal.and_then(device::ordinal) {
        Some(ordinal) => context::primary_let_go(call.copy, ordinal, ask),
        None => ask(),
    };
    if code == SUCCESS
        && let Some(found) = found
    {
        found.take();
    }
    code
}

/// `cuCtxFromGreenCtx`: its memory belongs to the primary context.
///
/// # Safety
/// As `create`.
pub(crate) unsafe fn context(
    call: Call<FromGreen>,
    context: *mut CUcontext,
    green: GreenCtx,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(context, green) };
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let made = unsafe { out::got_handle(context) }.filter(|_| code == SUCCESS);
    let of = account::find(Space::Green, green as u64);
    if let (Some(made), Some(of)) = (made, of)
        && account::find(Space::GreenContext, made).is_none()
        && let Some(primary) = account::find(Space::Primary, of.payload())
        && let Some(state) = account::page()
    {
        let charge = handles::Charge {
            bytes: gpuslice_config::words::units::Bytes::ZERO,
            ..primary.charge()
        };
        handles::put(state, Space::GreenContext, made, charge);
    }
    code
}

/// Forgets the green contexts of a device whose primary context has ended. Their memory was recorded
/// under that context's number.
pub(crate) fn primary_ended(device: ledger::Device) {
    let Some(state) = account::page() else {
        return;
    };
    handles::each(state, |space, _, found| {
        if space == Space::GreenContext && found.charge().device == device {
            found.take();
        }
    });
}
