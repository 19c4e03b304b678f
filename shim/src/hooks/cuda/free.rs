//! Frees of linear memory: releases the memory in the ledger after the driver has freed it.
//! Touches: the real function, then the ledger.
//! Law: memory without a record is left to the driver.

use crate::account;
use crate::account::pools;
use crate::account::sharing;
use crate::hooks::cuda::pool;
use crate::hooks::out::Amount;
use crate::real::abi::{CUresult, SUCCESS};
use crate::real::functions::Call;

type Free<P> = unsafe extern "C" fn(P) -> CUresult;

/// `cuMemFree` and `cuMemFree_v2`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn linear<P: Amount>(call: Call<Free<P>>, dptr: P) -> CUresult {
    let memory = account::memory(dptr.into_u64());
    let leftover = match memory {
        Some(_) => None,
        None => pools::leftover(call.copy, dptr.into_u64()),
    };
    // SAFETY: the caller's own argument.
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
