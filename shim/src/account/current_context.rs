//! The calling thread's current context, by its number, and whether a device has contexts.
//! Touches: the driver, when the process has had more than one context; this process's own table.

use core::ffi::c_void;

use gpuslice_config::words::device::CudaOrdinal;

use crate::account;
use crate::real::abi::{CUdevice, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions;
use crate::state::contexts;
use crate::state::handles::{self, Space};
use crate::state::page::ProcessState;

/// The number of the calling thread's current context. 0: the thread has none.
#[inline]
pub(crate) fn context(state: &ProcessState, copy: CopyId) -> u8 {
    contexts::only(state).unwrap_or_else(|| ask_context(state, copy))
}

#[cold]
fn ask_context(state: &ProcessState, copy: CopyId) -> u8 {
    let mut context: *mut c_void = core::ptr::null_mut();
    let Some(ask) = functions::cuCtxGetCurrent::real(copy) else {
        return 0;
    };
    // SAFETY: cuCtxGetCurrent's contract: it writes to locals of its types.
    let code = unsafe { ask(&raw mut context) };
    if code != SUCCESS || context.is_null() {
        return 0;
    }
    match contexts::find(state, context as u64) {
        // The memory of a green context belongs to its primary context.
        0 => account::find(Space::GreenContext, context as u64)
            .map_or(0, |green| green.charge().context),
        number => number,
    }
}

/// Whether a device's primary context exists; `None` if the driver does not say.
pub(crate) fn has_primary(copy: CopyId, ordinal: CudaOrdinal) -> Option<bool> {
    let (mut flags, mut active) = (0, 0);
    let dev = CUdevice::try_from(ordinal.0).ok()?;
    let ask = functions::cuDevicePrimaryCtxGetState::real(copy)?;
    // SAFETY: cuDevicePrimaryCtxGetState's contract: it writes to locals of its types.
    let code = unsafe { ask(dev, &raw mut flags, &raw mut active) };
    (code == SUCCESS).then_some(active != 0)
}

/// Whether this process has created a context on a device, besides the primary one.
#[cold]
pub(crate) fn has_created(copy: CopyId, ordinal: CudaOrdinal) -> bool {
    let Some(account) = account::by_ordinal(copy, ordinal) else {
        return false;
    };
    let mut found_one = false;
    handles::each(account.state, |space, _, found| {
        found_one |= space == Space::Context && found.charge().device == account.listed;
    });
    found_one
}
