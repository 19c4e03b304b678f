//! Stream-ordered allocations.
//! Touches: the ledger and the pools; the real function, unless the slice has no room.
//!
//! A pool's growth is not known before the call. A request first claims the driver's usual growth,
//! or else the least growth that it needs, and the pool's actual growth stays charged. If the
//! growth exceeds the slice, the pools are trimmed, and the request is refused only if it still
//! does not fit.

use gpuslice_config::ledger::{Grant, Growth, Reservable as _, stepped};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::account::pools::{self, Pool};
use crate::account::{self, Outcome, graphs};
use crate::answer::device;
use crate::hooks::out;
use crate::real::abi::{
    CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr, CUmemoryPool, CUresult, CUstream, SUCCESS,
};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::reservations;

type AllocAsync = unsafe extern "C" fn(*mut CUdeviceptr, usize, CUstream) -> CUresult;
type FromPool = unsafe extern "C" fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream) -> CUresult;

/// The driver's usual growth of a pool, in bytes, where there is room.
const GROWTH: u64 = 32 << 20;

/// `cuMemAllocAsync`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn alloc_async(
    call: Call<AllocAsync>,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract; `alloc_in` requires no more.
    unsafe { alloc_in(call, dptr, bytesize, stream, stream) }
}

/// `cuMemAllocAsync_ptsz`.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn alloc_async_ptsz(
    call: Call<AllocAsync>,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract; `alloc_in` requires no more.
    unsafe { alloc_in(call, dptr, bytesize, stream, meant(stream)) }
}

/// `cuMemAllocFromPoolAsync`.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn from_pool(
    call: Call<FromPool>,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract; `from_pool_in` requires no more.
    unsafe { from_pool_in(call, dptr, bytesize, pool, stream, stream) }
}

/// `cuMemAllocFromPoolAsync_ptsz`.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn from_pool_ptsz(
    call: Call<FromPool>,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract; `from_pool_in` requires no more.
    unsafe { from_pool_in(call, dptr, bytesize, pool, stream, meant(stream)) }
}

/// The effective stream of a per-thread variant (`_ptsz`): null means `CU_STREAM_PER_THREAD`.
pub(crate) fn meant(stream: CUstream) -> CUstream {
    match stream.is_null() {
        true => core::ptr::without_provenance_mut(2),
        false => stream,
    }
}

/// Allocates from the current pool. `meant`: the effective stream.
///
/// # Safety
/// As `alloc_async`.
unsafe fn alloc_in(
    call: Call<AllocAsync>,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    stream: CUstream,
    meant: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(dptr, bytesize, stream) };
    let request = bytesize as u64;
    let Some(here) = counted(call.copy, dptr, request, meant) else {
        return ask();
    };
    match pools::current(call.copy, here) {
        // SAFETY: `ask` allocates from this pool and writes its pointer to `dptr`.
        Ok(Some(pool)) => unsafe { allocate(&pool, request, dptr, meant, ask) },
        Ok(None) => ask(),
        Err(unrecorded) => unrecorded.refuse(ask),
    }
}

/// Allocates from a named pool. `meant`: the effective stream.
///
/// # Safety
/// As `alloc_async`.
unsafe fn from_pool_in(
    call: Call<FromPool>,
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    stream: CUstream,
    meant: CUstream,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(dptr, bytesize, pool, stream) };
    let request = bytesize as u64;
    let here = counted(call.copy, dptr, request, meant).filter(|_| !pool.is_null());
    let Some(here) = here else {
        return ask();
    };
    match pools::named(call.copy, pool, here) {
        // The driver has its own error for a pool that it does not know.
        Ok(Some(pool)) if pool.reserved().is_none() => {
            pool.forget();
            ask()
        }
        // SAFETY: `ask` allocates from this pool and writes its pointer to `dptr`.
        Ok(Some(pool)) => unsafe { allocate(&pool, request, dptr, meant, ask) },
        Ok(None) => ask(),
        Err(unrecorded) => unrecorded.refuse(ask),
    }
}

/// The device of a request's stream. None: the request is not counted, or the driver has an error
/// of its own for it.
fn counted(
    copy: CopyId,
    place: *const CUdeviceptr,
    request: u64,
    stream: CUstream,
) -> Option<CudaOrdinal> {
    // The driver has its own error for a request of 0 bytes or a null pointer.
    if request == 0 || place.is_null() || !account::counts() {
        return None;
    }
    // A captured request allocates nothing before its graph is launched.
    match is_capturing(copy, stream) {
        Some(false) => device::of_stream(copy, stream),
        _ => None,
    }
}

/// Whether a stream is being captured. None: the driver does not know the stream.
fn is_capturing(copy: CopyId, stream: CUstream) -> Option<bool> {
    let mut status = 0;
    let Some(ask) = functions::cuStreamIsCapturing::real(copy) else {
        return Some(false);
    };
    // SAFETY: cuStreamIsCapturing's contract: it writes to locals of its types.
    let code = unsafe { ask(stream, &raw mut status) };
    (code == SUCCESS).then_some(status != 0)
}

/// Allocates from a pool if the slice has room, and leaves the pool.
///
/// # Safety
/// As `allocate_from`.
unsafe fn allocate(
    pool: &Pool,
    request: u64,
    place: *const CUdeviceptr,
    stream: CUstream,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: the caller guarantees the contract of `allocate_from`.
    let code = unsafe { allocate_from(pool, request, place, stream, ask) };
    pool.leave();
    code
}

/// Allocates from a pool if the slice has room.
///
/// # Safety
/// `ask` is a call that allocates from the pool and writes its pointer to `place`.
unsafe fn allocate_from(
    pool: &Pool,
    request: u64,
    place: *const CUdeviceptr,
    stream: CUstream,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let Ok(given) = claim(pool, request) else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    let code = ask();
    let reserve = pool.reserve();
    if code != SUCCESS {
        reserve.end(given, Growth::Kept, pool);
        if code == CUDA_ERROR_OUT_OF_MEMORY {
            pool.account
                .refused_by_driver(stepped(request), pool.kind());
        }
        return code;
    }
    if reserve.end(given, Growth::Asked, pool) {
        return code;
    }
    // The pool has grown by more than there is room for: its unused memory is returned.
    let Pool { account, copy, .. } = pool;
    pools::trim(*copy, account);
    if reserve.settle(Growth::Asked, pool) {
        return code;
    }
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let at = unsafe { out::got(place) };
    if let (Some(at), Some(free)) = (at, functions::cuMemFreeAsync::real(*copy)) {
        // SAFETY: the driver has just returned this pointer; no other thread knows it.
        unsafe { free(at, stream) };
    }
    pools::trim(*copy, account);
    // The pool keeps memory freed in stream order until the stream has executed the free.
    reserve.settle(Growth::Kept, pool);
    let Outcome::Refused(refusal) = account.try_claim(stepped(request), pool.kind()) else {
        account.release(stepped(request), pool.kind());
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    account.refuse(stepped(request), refusal);
    CUDA_ERROR_OUT_OF_MEMORY
}

/// Claims the memory that a pool will add for a request.
fn claim(pool: &Pool, request: u64) -> Result<Grant, ()> {
    let reserve = pool.reserve();
    let ask = |ask: fn(&Pool, u64) -> Result<Bytes, ()>| {
        let idle = reserve.count_on(Bytes::new(request), pool);
        let claimed = match request.saturating_sub(idle.get()) {
            0 => Ok(Bytes::ZERO),
            missing => ask(pool, missing),
        };
        let Ok(claimed) = claimed else {
            reserve.let_go(idle);
            return Err(());
        };
        let given = Grant { claimed, idle };
        reserve.begin(given);
        Ok(given)
    };
    if let Ok(given) = ask(generously) {
        return Ok(given);
    }
    pools::trim(pool.copy, &pool.account);
    let state = pool.account.state;
    let later = reservations::wait_for_others(state, &pool.account, || ask(sparingly).ok());
    if let Some(given) = later {
        return Ok(given);
    }
    // Graphs pay for their memory anew at their next launch, so theirs is the last to go.
    if graphs::trim(pool.copy, &pool.account)
        && let Ok(given) = ask(sparingly)
    {
        return Ok(given);
    }
    ask(aloud)
}

/// Claims the driver's usual growth, or else the least growth that the request needs.
fn generously(pool: &Pool, missing: u64) -> Result<Bytes, ()> {
    let most = missing.checked_next_multiple_of(GROWTH).unwrap_or(u64::MAX);
    match pool.account.try_claim(Bytes::new(most), pool.kind()) {
        Outcome::Granted => Ok(Bytes::new(most)),
        Outcome::Uncounted => Ok(Bytes::ZERO),
        Outcome::Refused(_) => sparingly(pool, missing),
    }
}

fn sparingly(pool: &Pool, missing: u64) -> Result<Bytes, ()> {
    let (request, bytes) = (Bytes::new(missing), stepped(missing));
    let outcome = pool.account.try_claim_steps(request, bytes, pool.kind());
    answered(outcome, missing)
}

fn aloud(pool: &Pool, missing: u64) -> Result<Bytes, ()> {
    let (request, bytes) = (Bytes::new(missing), stepped(missing));
    let outcome = pool.account.claim_steps(request, bytes, pool.kind());
    answered(outcome, missing)
}

fn answered(outcome: Outcome, missing: u64) -> Result<Bytes, ()> {
    match outcome {
        Outcome::Granted => Ok(stepped(missing)),
        Outcome::Uncounted => Ok(Bytes::ZERO),
        Outcome::Refused(_) => Err(()),
    }
}
