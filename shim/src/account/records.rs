//! Remembers the memory that this process holds, and releases it when the driver has freed it.
//! Touches: this process's own tables; the slice's ledger.

use core::sync::atomic::Ordering;

use gpuslice_config::ledger::{self, Kind, Ledger};
use gpuslice_config::words::units::Bytes;

use super::{Account, context, host, sharing};
use crate::log::counters;
use crate::slice::{self, loaded_slice::LoadedSlice};
use crate::state::allocations::{self, Put, STEP};
use crate::state::handles::{self, Charge, FoundEntry, Space};
use crate::state::{contexts, page};

impl Account {
    /// Remembers memory that the driver has allocated, so that it can be released.
    #[inline(always)]
    pub(crate) fn keep(&self, address: u64, bytes: Bytes, kind: Kind) {
        let charge = self.charge_here(bytes, kind);
        match allocations::put(self.state, address, charge) {
            Put::Kept(None) | Put::Joined => {}
            Put::Kept(Some(old)) => self.instead_of(old),
            Put::NoWord => self.stray(address, charge),
        }
    }

    /// Remembers a small allocation, for which a whole step was granted. False: it shares a step
    /// that is already paid for.
    #[inline(always)]
    pub(crate) fn keep_small(&self, address: u64, kind: Kind) -> bool {
        let charge = self.charge_here(Bytes::new(STEP), kind);
        match allocations::join(self.state, address, charge) {
            Put::Joined => return false,
            Put::Kept(Some(old)) => self.instead_of(old),
            Put::Kept(None) => {}
            Put::NoWord => self.stray(address, charge),
        }
        true
    }

    /// Releases the old record of an address that the driver has returned again.
    #[cold]
    #[inline(never)]
    fn instead_of(&self, old: Charge) {
        give_back(self.ledger, old.device, old.bytes, old.kind);
    }

    #[cold]
    #[inline(never)]
    fn stray(&self, address: u64, charge: Charge) {
        self.state.strays.store(1, Ordering::Release);
        self.remember(Space::Memory, address, charge);
    }

    /// A record of memory held on this device in the current context.
    #[inline]
    pub(crate) fn charge_here(&self, bytes: Bytes, kind: Kind) -> Charge {
        let context = context(self.state, self.copy);
        self.charge_in(bytes, kind, context)
    }

    /// A record of memory held on this device in the given context.
    pub(crate) fn charge_in(&self, bytes: Bytes, kind: Kind, context: u8) -> Charge {
        Charge {
            bytes,
            device: self.listed,
            kind,
            context,
        }
    }

    /// Remembers a handle. An old record under its number is stale, because the driver reuses only
    /// numbers that are free: it is released.
    #[inline]
    pub(crate) fn remember(&self, space: Space, number: u64, charge: Charge) {
        if let Some(old) = handles::find(self.state, space, number) {
            gone(self.ledger, old);
        }
        if !handles::put(self.state, space, number, charge) {
            counters::UNCOUNTED.warn_text("no memory to record an allocation: it stays counted");
        }
    }
}

/// The record of an address of this process, as of when it was looked up.
#[derive(Clone, Copy)]
pub(crate) enum Memory {
    /// In `allocations`.
    Word(allocations::FoundWord),
    /// In `handles`.
    Stray(FoundEntry),
}

/// The record of an address.
#[inline(always)]
pub(crate) fn memory(address: u64) -> Option<Memory> {
    slice::current()?.ledger()?;
    let state = page::page()?;
    // Strays first: a shared word in `allocations` answers for every address of its step.
    if state.strays.load(Ordering::Acquire) != 0
        && let Some(found) = handles::find(state, Space::Memory, address)
    {
        return Some(Memory::Stray(found));
    }
    allocations::find(state, address).map(Memory::Word)
}

/// Releases memory that the driver has freed.
#[inline(always)]
pub(crate) fn memory_freed(memory: Memory) {
    let Some(slice) = slice::current() else {
        return;
    };
    let Some(ledger) = slice.ledger() else {
        return;
    };
    match memory {
        Memory::Word(found) => {
            if let Some(charge) = found.take() {
                give_back_in(slice, ledger, charge.device, charge.bytes, charge.kind);
            }
        }
        Memory::Stray(found) => gone(ledger, found),
    }
}

/// The number of one of the records of a handle that has several: one for each of its devices.
pub(crate) fn part(handle: u64, record: usize) -> u64 {
    /// Above the addresses of a process, and below the space.
    const RECORD_AT: u32 = 52;
    handle | (record as u64) << RECORD_AT
}

/// The record of a handle of this process.
#[inline]
pub(crate) fn find(space: Space, number: u64) -> Option<FoundEntry> {
    slice::current()?.ledger()?;
    handles::find(page::page()?, space, number)
}

/// Releases a handle that the driver has freed.
#[inline]
pub(crate) fn freed(found: FoundEntry) {
    if let Some(ledger) = slice::current().and_then(LoadedSlice::ledger) {
        gone(ledger, found);
    }
}

/// Releases the memory of an entry, unless another thread has already taken the entry.
#[inline]
fn gone(ledger: &Ledger, found: FoundEntry) {
    if found.take() {
        let charge = found.charge();
        give_back(ledger, charge.device, charge.bytes, charge.kind);
    }
}

/// Releases memory, and publishes it to the neighbours.
#[inline]
pub(crate) fn give_back(ledger: &Ledger, device: ledger::Device, bytes: Bytes, kind: Kind) {
    if let Some(slice) = slice::current() {
        give_back_in(slice, ledger, device, bytes, kind);
    }
}

#[inline]
fn give_back_in(
    slice: &LoadedSlice,
    ledger: &Ledger,
    device: ledger::Device,
    bytes: Bytes,
    kind: Kind,
) {
    ledger.release(device, bytes, kind);
    if slice.promise().is_some() {
        host::publish_release(slice, ledger, device);
    }
}

/// Releases the memory of a context that no longer exists.
pub(crate) fn context_gone(number: u8) {
    let (Some(ledger), Some(state)) =
        (slice::current().and_then(LoadedSlice::ledger), page::page())
    else {
        return;
    };
    if number == 0 {
        return;
    }
    sharing::context_gone(state, number);
    allocations::take_of_context(state, number, |charge| {
        give_back(ledger, charge.device, charge.bytes, charge.kind);
    });
    handles::each(state, |space, _, found| {
        let ends = matches!(space, Space::Memory | Space::Array | Space::Pinned);
        if ends && found.charge().context == number {
            gone(ledger, found);
        }
    });
    contexts::forget(state, number);
}
