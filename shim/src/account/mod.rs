//! Accounts: charges each allocation to a device of the slice.
//! Touches: the slice's ledger, this process's own table, the host's meminfo on unified memory.
//! Law: memory is claimed before the driver is called, and released when the call fails or after
//! the driver has freed it.
//!
//! The driver allocates device memory in steps of 2 MiB, and its charges are whole steps. Requests of
//! up to 1 MiB share a step; the first request in a step pays for it (`allocations`). Pinned host
//! memory is charged by the page.

mod charged;
mod claims;
pub(crate) mod context_size;
pub(crate) mod current_context;
pub(crate) mod graphs;
pub(crate) mod host;
mod idle;
pub(crate) mod leftovers;
pub(crate) mod opencl;
mod pay;
pub(crate) mod physical;
pub(crate) mod pools;
pub(crate) mod reclaim;
mod records;
pub(crate) mod share;
pub(crate) mod sharing;
pub(crate) mod vulkan;

pub(crate) use charged::PoolPlace;
pub(crate) use claims::Outcome;
pub(crate) use current_context::context;
pub(crate) use pay::{Paid, Request};
pub(crate) use records::{
    Memory, context_gone, find, freed, give_back, memory, memory_freed, part,
};

use gpuslice_config::ledger::{self, Ledger};
use gpuslice_config::words::device::CudaOrdinal;

use crate::account::context_size::Meter;
use crate::answer::device::{self, Device, Reading};
use crate::real::abi::CUdevice;
use crate::real::copies::CopyId;
use crate::slice::{self, loaded_slice::LoadedSlice};
use crate::state::page::{self, ProcessState};

/// A device of the slice for which a ledger is kept.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    slice: &'static LoadedSlice,
    device: Device<'static>,
    /// The slice's ledger.
    pub(crate) ledger: &'static Ledger,
    /// The device's number in the ledger.
    pub(crate) listed: ledger::Device,
    /// This process's record of what it holds.
    pub(crate) state: &'static ProcessState,
    /// The copy of the driver that is queried about the device.
    pub(crate) copy: CopyId,
}

/// The account of the calling thread's current device. None: the device is not counted.
#[inline(always)]
pub(crate) fn current(copy: CopyId) -> Option<Account> {
    let slice = slice::current()?;
    slice.ledger()?;
    by_ordinal(copy, device::current(copy)?)
}

/// The account of a device by its handle.
pub(crate) fn by_handle(copy: CopyId, device: CUdevice) -> Option<Account> {
    by_ordinal(copy, device::ordinal(device)?)
}

/// The account of a device by its ordinal.
#[inline(always)]
pub(crate) fn by_ordinal(copy: CopyId, ordinal: CudaOrdinal) -> Option<Account> {
    let slice = slice::current()?;
    let ledger = slice.ledger()?;
    let device = device::cuda(slice, copy, ordinal)?;
    Some(Account {
        slice,
        device,
        ledger,
        listed: device.listed?,
        state: page::page_or_none(slice.enforces())?,
        copy,
    })
}

/// The first device that shares the host's memory. It pays for CUDA's memory of the host, whether
/// or not the thread has a current context.
#[cold]
#[inline(never)]
pub(crate) fn sharing_host(copy: CopyId) -> Option<(CudaOrdinal, Account)> {
    let accounts = device::all(copy).map(|ordinal| Some((ordinal, by_ordinal(copy, ordinal)?)));
    accounts.flatten().find(|(_, account)| account.unified())
}

/// The account of a device that another API than CUDA has identified.
pub(crate) fn of_device(device: Device<'static>) -> Option<Account> {
    let slice = slice::current()?;
    Some(Account {
        slice,
        device,
        ledger: slice.ledger()?,
        listed: device.listed?,
        state: page::page_or_none(slice.enforces())?,
        copy: CopyId(0),
    })
}

impl Account {
    /// Whether the device shares the host's memory.
    pub(crate) fn unified(&self) -> bool {
        self.device.unified == Some(true)
    }

    /// Whether this account stays the device's for as long as the process lives. Otherwise a closed
    /// ledger may be replaced, or the state may get a page of its own.
    pub(crate) fn is_settled(&self) -> bool {
        let has_page = page::page().is_some_and(|page| core::ptr::eq(page, self.state));
        has_page && !self.ledger.is_closed()
    }

    /// The device's budget in force now.
    #[inline(always)]
    fn budget(&self) -> Reading {
        self.device.budget(Some(self.ledger))
    }

    /// Whether managed memory is charged.
    pub(crate) fn counts_managed(&self) -> bool {
        self.slice.counts_managed()
    }

    /// Prepares to measure the size of a context.
    pub(crate) fn meter(&self, copy: CopyId, ordinal: CudaOrdinal) -> Meter {
        Meter::new(self.slice, copy, ordinal)
    }
}

/// The slice's ledger.
pub(crate) fn ledger() -> Option<&'static Ledger> {
    slice::current()?.ledger()
}

/// This process's record of what it holds. None: its memory is not counted.
pub(crate) fn page() -> Option<&'static ProcessState> {
    ledger()?;
    page::page()
}

/// Whether this process counts memory.
#[inline]
pub(crate) fn counts() -> bool {
    slice::current().and_then(LoadedSlice::ledger).is_some()
}
