//! The memory of destroyed pools that is still in use: releases a pool's reserve with the last of it.
//! Touches: the driver's attributes of an address; this process's own table.

use core::sync::atomic::Ordering;

use gpuslice_config::ledger;

use crate::account;
use crate::real::abi::{CUdeviceptr, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions;
use crate::state::handles::{self, Space};
use crate::state::page::{self, ProcessState};

/// Memory from a destroyed pool, about to be freed.
#[derive(Clone, Copy)]
pub(crate) struct Leftover {
    pool: u64,
    bytes: u64,
}

/// The memory of a destroyed pool at an address.
#[inline]
pub(crate) fn at(copy: CopyId, address: CUdeviceptr) -> Option<Leftover> {
    // Without a page, no pool was ever destroyed.
    let state = page::existing()?;
    match state.dooms.load(Ordering::Acquire) {
        0 => None,
        _ => look(state, copy, address),
    }
}

#[cold]
fn look(state: &'static ProcessState, copy: CopyId, address: CUdeviceptr) -> Option<Leftover> {
    /// `CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`.
    const POOL: i32 = 17;
    let (mut pool, mut base, mut bytes) = (0u64, 0, 0usize);
    let ask = functions::cuPointerGetAttribute::real(copy)?;
    // SAFETY: cuPointerGetAttribute's contract: this attribute is a handle.
    let code = unsafe { ask((&raw mut pool).cast(), POOL, address) };
    (code == SUCCESS).then_some(())?;
    handles::find(state, Space::Doomed, pool)?;
    let ask = functions::cuMemGetAddressRange_v2::real(copy)?;
    // SAFETY: cuMemGetAddressRange_v2's contract: it writes to locals of its types.
    let code = unsafe { ask(&raw mut base, &raw mut bytes, address) };
    (code == SUCCESS).then_some(Leftover {
        pool,
        bytes: ledger::rounded(bytes as u64).get(),
    })
}

impl Leftover {
    /// Records that the driver has freed it. Freeing the last of it releases the pool's reserve.
    pub(crate) fn freed(self) {
        let Some(state) = page::page() else {
            return;
        };
        while let Some(found) = handles::find(state, Space::DoomedUse, self.pool) {
            let left = found.payload().saturating_sub(self.bytes);
            if left != 0 && found.replace_payload(left) {
                return;
            }
            if left == 0 && found.take() {
                break;
            }
        }
        if let Some(pool) = handles::find(state, Space::Doomed, self.pool) {
            account::freed(pool);
        }
    }
}

/// Releases the reserves of destroyed pools on a device whose pools have ended.
pub(crate) fn ended(device: ledger::Device) {
    let Some(state) = page::page() else {
        return;
    };
    handles::each(state, |space, _, found| {
        if space == Space::Doomed && found.charge().device == device {
            account::freed(found);
        }
    });
}
