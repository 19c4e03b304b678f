//! Copies to the device: marks the copied range of a mapped model file as consumed.
//! Touches: the real function, then a note of the range that it has read.
//! Law: a source that is not a model file costs one comparison.

use core::ffi::c_void;

use crate::hooks::out::Amount;
use crate::page_cache;
use crate::real::abi::{CUdeviceptr, CUresult, CUstream, SUCCESS};
use crate::real::functions::Call;

type HtoD<P, S> = unsafe extern "C" fn(P, *const c_void, S) -> CUresult;
type HtoDAsync<P, S> = unsafe extern "C" fn(P, *const c_void, S, CUstream) -> CUresult;
type Unified = unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize) -> CUresult;
type UnifiedAsync = unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> CUresult;

fn consumed(code: CUresult, source: u64, length: u64) {
    if code == SUCCESS
        && let Ok(length) = usize::try_from(length)
    {
        page_cache::copied(source, length);
    }
}

/// `cuMemcpyHtoD`, of either width.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn host_to_device<P, S: Amount>(
    call: Call<HtoD<P, S>>,
    to: P,
    source: *const c_void,
    count: S,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(to, source, count) };
    consumed(code, source as u64, count.into_u64());
    code
}

/// `cuMemcpyHtoDAsync`, of either width. The driver copies pages that lie in the page cache before
/// it returns, and reads missing ones again.
///
/// # Safety
/// As `host_to_device`.
pub(crate) unsafe fn host_to_device_async<P, S: Amount>(
    call: Call<HtoDAsync<P, S>>,
    to: P,
    source: *const c_void,
    count: S,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(to, source, count, stream) };
    consumed(code, source as u64, count.into_u64());
    code
}

/// `cuMemcpy`, which finds the direction from the addresses.
///
/// # Safety
/// As `host_to_device`.
pub(crate) unsafe fn unified(
    call: Call<Unified>,
    to: CUdeviceptr,
    source: CUdeviceptr,
    count: usize,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(to, source, count) };
    consumed(code, source, count as u64);
    code
}

/// `cuMemcpyAsync`.
///
/// # Safety
/// As `host_to_device`.
pub(crate) unsafe fn unified_async(
    call: Call<UnifiedAsync>,
    to: CUdeviceptr,
    source: CUdeviceptr,
    count: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(to, source, count, stream) };
    consumed(code, source, count as u64);
    code
}

/// Marks the sources of a batch as consumed.
///
/// # Safety
/// Both point to `count` elements, which a call has just read.
unsafe fn batch(code: CUresult, sources: *const CUdeviceptr, sizes: *const usize, count: usize) {
    if code != SUCCESS || sources.is_null() || sizes.is_null() {
        return;
    }
    for place in 0..count {
        // SAFETY: the caller guarantees `count` elements at `sources`.
        let source = unsafe { sources.wrapping_add(place).read() };
        // SAFETY: the caller guarantees `count` elements at `sizes`.
        let size = unsafe { sizes.wrapping_add(place).read() };
        page_cache::copied(source, size);
    }
}

type BatchAsync = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut c_void,
    *mut usize,
    usize,
    *mut usize,
    CUstream,
) -> CUresult;

/// `cuMemcpyBatchAsync` of CUDA 12.8.
///
/// # Safety
/// As `host_to_device`.
#[expect(clippy::too_many_arguments, reason = "the vendor's")]
pub(crate) unsafe fn batch_async_v1(
    call: Call<BatchAsync>,
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut c_void,
    attrs_idxs: *mut usize,
    num_attrs: usize,
    fail_idx: *mut usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe {
        (call.real)(
            dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, fail_idx, stream,
        )
    };
    // SAFETY: the real function has read `count` elements of both arrays.
    unsafe { batch(code, srcs, sizes, count) };
    code
}

type BatchAsyncV2 = unsafe extern "C" fn(
    *const CUdeviceptr,
    *const CUdeviceptr,
    *const usize,
    usize,
    *mut c_void,
    *mut usize,
    usize,
    CUstream,
) -> CUresult;

/// `cuMemcpyBatchAsync` since CUDA 13.
///
/// # Safety
/// As `host_to_device`.
#[expect(clippy::too_many_arguments, reason = "the vendor's")]
pub(crate) unsafe fn batch_async(
    call: Call<BatchAsyncV2>,
    dsts: *const CUdeviceptr,
    srcs: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    attrs: *mut c_void,
    attrs_idxs: *mut usize,
    num_attrs: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe {
        (call.real)(
            dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, stream,
        )
    };
    // SAFETY: the real function has read `count` elements of both arrays.
    unsafe { batch(code, srcs, sizes, count) };
    code
}
