//! Linear memory that one process exports to another by an IPC handle.
//! Touches: the real function, then the ledger.
//!
//! The exporter pays while it holds the memory; afterwards a process that has opened the handle
//! pays.

use core::ffi::c_uint;

use gpuslice_config::ledger::key_of;

use crate::account;
use crate::account::sharing;
use crate::hooks::out;
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr, CUipcMemHandle, CUresult, SUCCESS};
use crate::real::functions::{self, Call};
use crate::state::handles::Space;

type Get = unsafe extern "C" fn(*mut CUipcMemHandle, CUdeviceptr) -> CUresult;
type Open = unsafe extern "C" fn(*mut CUdeviceptr, CUipcMemHandle, c_uint) -> CUresult;
type Close = unsafe extern "C" fn(CUdeviceptr) -> CUresult;

/// `cuIpcGetMemHandle`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn get(
    call: Call<Get>,
    handle: *mut CUipcMemHandle,
    dptr: CUdeviceptr,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(handle, dptr) };
    if code == SUCCESS && !handle.is_null() && account::counts() {
        // SAFETY: CUDA_SUCCESS, so the driver has written the handle.
        let handle = unsafe { handle.read() };
        sharing::export(call.copy, dptr, key_of(&handle.bytes));
    }
    code
}

/// `cuIpcOpenMemHandle` and `cuIpcOpenMemHandle_v2`. The size is known only once the handle is
/// open. If no process of the slice pays for the memory and there is no room for it, the handle is
/// closed again.
///
/// # Safety
/// As `get`.
pub(crate) unsafe fn open(
    call: Call<Open>,
    pdptr: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(pdptr, handle, flags) };
    if code != SUCCESS || !account::counts() {
        return code;
    }
    // SAFETY: CUDA_SUCCESS, so the driver has written every place that is not null.
    let opened = unsafe { out::got(pdptr) };
    if let Some(at) = opened
        && !sharing::import(call.copy, at, key_of(&handle.bytes))
    {
        if let Some(close) = functions::cuIpcCloseMemHandle::real(call.copy) {
            // SAFETY: this thread has just opened it; no other thread knows the address.
            unsafe { close(at) };
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    code
}

/// `cuIpcCloseMemHandle`.
///
/// # Safety
/// As `get`.
pub(crate) unsafe fn close(call: Call<Close>, dptr: CUdeviceptr) -> CUresult {
    let found = account::find(Space::Imported, dptr);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(dptr) };
    if code == SUCCESS
        && let Some(found) = found
    {
        sharing::closed(found);
    }
    code
}
