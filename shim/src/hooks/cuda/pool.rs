//! Memory pools: creates and destroys them, and corrects their charges after calls that may shrink
//! them.
//! Touches: the real function, then the ledger and the pools.

use core::ffi::c_void;

use crate::account::{self, PoolPlace};
use crate::account::{leftovers, pools, sharing};
use crate::real::abi::{CUdeviceptr, CUevent, CUmemoryPool, CUresult, CUstream, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::Call;
use crate::state::reservations;

type FreeAsync = unsafe extern "C" fn(CUdeviceptr, CUstream) -> CUresult;
type Create = unsafe extern "C" fn(*mut CUmemoryPool, *const c_void) -> CUresult;
type Destroy = unsafe extern "C" fn(CUmemoryPool) -> CUresult;
type TrimTo = unsafe extern "C" fn(CUmemoryPool, usize) -> CUresult;
type Synchronize = unsafe extern "C" fn(*mut c_void) -> CUresult;
type SynchronizeAll = unsafe extern "C" fn() -> CUresult;

/// `cuMemFreeAsync` and its per-thread variant. The memory returns to its pool, which keeps it
/// until a trim or a synchronisation.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn free_async(
    call: Call<FreeAsync>,
    dptr: CUdeviceptr,
    stream: CUstream,
) -> CUresult {
    let memory = account::memory(dptr);
    let leftover = match memory {
        Some(_) => None,
        None => leftovers::at(call.copy, dptr),
    };
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(dptr, stream) };
    if code == SUCCESS {
        if let Some(memory) = memory {
            sharing::freed(dptr);
            account::memory_freed(memory);
        }
        if let Some(leftover) = leftover {
            leftover.freed();
        }
    }
    code
}

/// The start of `CUmemPoolProps`.
#[repr(C)]
struct PoolProps {
    kind: i32,
    handles: i32,
    location: i32,
    id: i32,
}

/// `cuMemPoolCreate`.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn create(
    call: Call<Create>,
    pool: *mut CUmemoryPool,
    properties: *const c_void,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(pool, properties) };
    if code == SUCCESS && !pool.is_null() && !properties.is_null() {
        // SAFETY: CUDA_SUCCESS, so the driver has read the struct.
        let wanted = unsafe { properties.cast::<PoolProps>().read() };
        // SAFETY: CUDA_SUCCESS, so the driver has written to `pool`.
        let pool = unsafe { pool.read() };
        let place = PoolPlace {
            kind: wanted.kind,
            location: wanted.location,
            id: wanted.id,
        };
        pools::created(call.copy, pool, place);
    }
    code
}

/// `cuMemPoolDestroy`.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn destroy(call: Call<Destroy>, pool: CUmemoryPool) -> CUresult {
    let known = account::page().and_then(|state| reservations::pool(state, pool as u64));
    let Some(known) = known else {
        // SAFETY: the caller guarantees the real function's contract for this argument.
        return unsafe { (call.real)(pool) };
    };
    if pools::in_use(call.copy, pool) != 0 {
        settled(call.copy);
    }
    known.close();
    known.wait_until_left();
    let in_use = pools::in_use(call.copy, pool);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(pool) };
    match code {
        SUCCESS => pools::destroyed(call.copy, known, in_use),
        _ => known.open(),
    }
    code
}

/// `cuMemPoolTrimTo`.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn trim_to(call: Call<TrimTo>, pool: CUmemoryPool, keep: usize) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(pool, keep) };
    settled(call.copy);
    code
}

/// `cuStreamSynchronize`, `cuEventSynchronize` and their relatives: after the wait, pools may
/// return memory.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn synchronize(call: Call<Synchronize>, what: *mut c_void) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(what) };
    settled(call.copy);
    code
}

/// `cuCtxSynchronize`.
///
/// # Safety
/// As `alloc_async`.
pub(crate) unsafe fn synchronize_all(call: Call<SynchronizeAll>) -> CUresult {
    // SAFETY: takes no arguments.
    let code = unsafe { (call.real)() };
    settled(call.copy);
    code
}

/// Call after a free or a synchronisation: re-reads every pool and corrects the ledger.
#[inline]
pub(crate) fn settled(copy: CopyId) {
    if account::counts() {
        pools::settle_all(copy);
    }
}

const _: () = {
    assert!(size_of::<CUstream>() == size_of::<CUevent>());
    assert!(core::mem::offset_of!(PoolProps, location) == 8);
};
