//! Counts streams that are being captured into graphs. Meanwhile no allocator may be asked to free
//! its cache, because a free would end the capture.
//! Touches: the real function; one number of this process.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use crate::account::reclaim;
use crate::real::abi::{
    CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, CUresult, CUstream, SUCCESS,
};
use crate::real::abi::{
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE,
};
use crate::real::functions::Call;
use crate::state::page;

type BeginV1 = unsafe extern "C" fn(CUstream) -> CUresult;
type Begin = unsafe extern "C" fn(CUstream, c_int) -> CUresult;
type BeginToGraph = unsafe extern "C" fn(
    CUstream,
    *mut c_void,
    *const c_void,
    *const c_void,
    usize,
    c_int,
) -> CUresult;
type End = unsafe extern "C" fn(CUstream, *mut *mut c_void) -> CUresult;

/// `cuStreamBeginCapture` of CUDA 10.0.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn begin_v1(call: Call<BeginV1>, stream: CUstream) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    begun(unsafe { (call.real)(stream) })
}

/// `cuStreamBeginCapture_v2`.
///
/// # Safety
/// As `begin_v1`.
pub(crate) unsafe fn begin(call: Call<Begin>, stream: CUstream, mode: c_int) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    begun(unsafe { (call.real)(stream, mode) })
}

/// `cuStreamBeginCaptureToGraph`.
///
/// # Safety
/// As `begin_v1`.
pub(crate) unsafe fn begin_to_graph(
    call: Call<BeginToGraph>,
    stream: CUstream,
    graph: *mut c_void,
    dependencies: *const c_void,
    data: *const c_void,
    count: usize,
    mode: c_int,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    begun(unsafe { (call.real)(stream, graph, dependencies, data, count, mode) })
}

fn begun(code: CUresult) -> CUresult {
    if code == SUCCESS
        && reclaim::is_wanted()
        && let Some(state) = page::page()
    {
        state.release.captures.fetch_add(1, Ordering::AcqRel);
    }
    code
}

/// `cuStreamEndCapture`: a failed capture has ended too.
///
/// # Safety
/// As `begin_v1`.
pub(crate) unsafe fn end(call: Call<End>, stream: CUstream, graph: *mut *mut c_void) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(stream, graph) };
    // These codes mean that there was no capture, or that it continues.
    let none = matches!(
        code,
        CUDA_ERROR_INVALID_VALUE
            | CUDA_ERROR_INVALID_CONTEXT
            | CUDA_ERROR_INVALID_HANDLE
            | CUDA_ERROR_ILLEGAL_STATE
            | CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
    );
    if !none
        && reclaim::is_wanted()
        && let Some(state) = page::page()
    {
        let less = |captures: u32| captures.checked_sub(1);
        let captures = &state.release.captures;
        let _ = captures.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
    code
}
