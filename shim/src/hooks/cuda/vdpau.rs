//! Contexts for VDPAU: charged like those of `cuCtxCreate`.
//! Touches: the real function, then the ledger.

use core::ffi::{c_uint, c_void};

use crate::hooks::cuda::context;
use crate::real::abi::{CUcontext, CUdevice, CUresult};
use crate::real::functions::Call;

type Create =
    unsafe extern "C" fn(*mut CUcontext, c_uint, CUdevice, c_uint, *mut c_void) -> CUresult;

/// `cuVDPAUCtxCreate` and `cuVDPAUCtxCreate_v2`.
///
/// # Safety
/// The caller guarantees the vendor function's contract.
pub(crate) unsafe fn create(
    call: Call<Create>,
    pctx: *mut CUcontext,
    flags: c_uint,
    dev: CUdevice,
    vdpau: c_uint,
    find: *mut c_void,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pctx, flags, dev, vdpau, find) };
    // SAFETY: `ask` is the driver's call, which writes a context to `pctx`.
    unsafe { context::create_by(call.copy, pctx, dev, ask) }
}
