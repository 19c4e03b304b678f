//! Memory that one process exports to another: linear memory by an IPC handle, and physical memory
//! by a shareable handle. `vmm` imports the latter.
//! Touches: the real function, then the ledger.
//!
//! The exporter pays while it holds the memory; afterwards a process that has opened the handle
//! pays.

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};

use gpuslice_config::ledger::{Class, key_of};

use crate::account;
use crate::account::physical::{Physical, Whose};
use crate::account::sharing;
use crate::hooks::out;
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr, CUipcMemHandle, CUresult, SUCCESS};
use crate::real::functions::{self, Call};
use crate::state::handles::Space;

type Get = unsafe extern "C" fn(*mut CUipcMemHandle, CUdeviceptr) -> CUresult;
type Open = unsafe extern "C" fn(*mut CUdeviceptr, CUipcMemHandle, c_uint) -> CUresult;
type MemHandle = c_ulonglong;
type Export = unsafe extern "C" fn(*mut c_void, MemHandle, c_int, c_ulonglong) -> CUresult;
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

/// `cuMemExportToShareableHandle`.
///
/// # Safety
/// As `get`.
pub(crate) unsafe fn export_handle(
    call: Call<Export>,
    shareable: *mut c_void,
    handle: MemHandle,
    kind: c_int,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(shareable, handle, kind, flags) };
    if code != SUCCESS || shareable.is_null() || !account::counts() {
        return code;
    }
    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
    const DESCRIPTOR: c_int = 1;
    let place = match kind {
        DESCRIPTOR => {
            // SAFETY: CUDA_SUCCESS, so the driver has written the descriptor there.
            let descriptor = unsafe { shareable.cast::<c_int>().read() };
            descriptor as usize as *const c_void
        }
        _ => shareable.cast_const(),
    };
    // SAFETY: CUDA_SUCCESS, so the driver has written a handle of this type.
    if let Some(key) = unsafe { sharing::key_of_shareable(kind, place) } {
        exported(handle, key.class());
    }
    code
}

/// Remembers that physical memory of this process was exported.
fn exported(handle: MemHandle, class: Class) {
    let Some(ledger) = account::ledger() else {
        return;
    };
    while let Some(found) = account::find(Space::Physical, handle) {
        let physical = Physical::unpack(found.payload());
        if physical.whose != Whose::Own || !ledger.export(physical.device, class, physical.bytes())
        {
            return;
        }
        let shared = Physical {
            whose: Whose::Exported,
            class,
            ..physical
        };
        if found.replace_payload(shared.pack()) {
            return;
        }
        ledger.unexport(physical.device, class, physical.bytes());
    }
}
