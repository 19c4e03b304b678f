//! Accounts: decide which device pays for an allocation, and whether it is granted.
//! Touches: the slice's ledger, this process's own table, the host's meminfo on unified memory.
//! Law: memory is claimed before the driver is called, and released when the call fails or after
//! the driver has freed it. A refused request changes nothing. Decides by `config::answer::admit` and the
//! ledger alone.
//!
//! The driver allocates in steps of 2 MiB, and charges are whole steps. Requests of up to 1 MiB
//! share a step; the first request in a step pays for it (`allocations`).

mod charged;
pub(crate) mod context_size;
mod current_context;
pub(crate) mod graphs;
pub(crate) mod host;
pub(crate) mod pools;
pub(crate) mod reclaim;
pub(crate) mod sharing;

pub(crate) use current_context::context;

use core::sync::atomic::Ordering;

use gpuslice_config::answer::admit::{self, Refusal};
use gpuslice_config::ledger::{self, Claim, Class, Import, Kind, Ledger};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::account::context_size::Scale;
use crate::answer::device::{self, Device};
use crate::log::Piece::{Dec, Str};
use crate::log::counters;
use crate::real::abi::CUdevice;
use crate::real::copies::Slot;
use crate::slice::runtime::{self, Runtime};
use crate::slice::slice_ledger;
use crate::state::allocations::{self, Put, STEP};
use crate::state::handles::{self, Found, Held, Space};
use crate::state::page::Private;
use crate::state::{contexts, page};

/// A device of the slice for which a ledger is kept.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    runtime: &'static Runtime,
    device: Device<'static>,
    /// The slice's ledger.
    pub(crate) ledger: &'static Ledger,
    /// The device's number in the ledger.
    pub(crate) listed: ledger::Device,
    /// This process's record of what it holds.
    pub(crate) private: &'static Private,
    /// The copy of the driver that is queried about the device.
    pub(crate) slot: Slot,
}

/// The outcome of a request.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    /// Granted: charged to this process until it is released.
    Granted,
    /// The slice only counts and its ledger cannot record the request: the driver decides.
    Uncounted,
    /// The request does not fit.
    Refused(Refusal),
}

/// The account of the calling thread's current device. None: the device is not counted.
#[inline(always)]
pub(crate) fn current(slot: Slot) -> Option<Account> {
    let runtime = runtime::slice()?;
    runtime.ledger()?;
    of(slot, device::current(slot)?)
}

/// The account of a device by its handle.
pub(crate) fn by_handle(slot: Slot, device: CUdevice) -> Option<Account> {
    of(slot, device::ordinal(device)?)
}

/// The account of a device by its ordinal.
#[inline(always)]
pub(crate) fn of(slot: Slot, ordinal: CudaOrdinal) -> Option<Account> {
    let runtime = runtime::slice()?;
    let ledger = runtime.ledger()?;
    let device = device::cuda(runtime, slot, ordinal)?;
    Some(Account {
        runtime,
        device,
        ledger,
        listed: device.listed?,
        private: page::page_or_none(runtime.enforces())?,
        slot,
    })
}

impl Account {
    /// Whether the device shares the host's memory.
    pub(crate) fn unified(&self) -> bool {
        self.device.unified == Some(true)
    }

    /// Whether managed memory is charged.
    pub(crate) fn counts_managed(&self) -> bool {
        self.runtime.counts_managed()
    }

    /// Claims memory. A refusal is not recorded yet.
    #[inline]
    pub(crate) fn ask(&self, bytes: Bytes, kind: Kind) -> Asked {
        self.ask_for(bytes, bytes, kind)
    }

    /// Claims `bytes` (whole steps) for `request` bytes; the host's memory is checked against
    /// `request`.
    #[inline(always)]
    pub(crate) fn ask_for(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Asked {
        let budget = self.device.budget;
        let enforced = self.runtime.enforces();
        let mut charge = Bytes::ZERO;
        if enforced && self.unified() {
            charge = match self.ask_host(request) {
                Ok(charge) => charge,
                Err(refusal) => return Asked::Refused(refusal),
            };
        }
        let limit = admit::claim_limit(budget, charge, enforced);
        match self.ledger.claim(self.listed, bytes, kind, limit) {
            Claim::Granted => {
                self.changed();
                if !enforced {
                    self.look(bytes);
                }
                Asked::Granted
            }
            Claim::Refused { used } => {
                let free = limit.minus(used);
                Asked::Refused(Refusal {
                    free,
                    short_by: bytes.minus(free),
                    host: None,
                })
            }
            Claim::Private(why) => self.without_slot(why, bytes, Some(Asked::Granted)),
            Claim::NoSlot(why) if enforced => self.without_slot(why, bytes, None),
            Claim::NoSlot(why) => self.without_slot(why, bytes, Some(Asked::Uncounted)),
        }
    }

    /// Logs why a process has no slot, and returns the outcome of its claim: refused, unless
    /// `asked` says otherwise.
    #[cold]
    #[inline(never)]
    fn without_slot(&self, why: ledger::NoSlot, bytes: Bytes, asked: Option<Asked>) -> Asked {
        let (follows, asked) = match asked {
            Some(Asked::Granted) => ("an allocation is counted here alone", Asked::Granted),
            Some(asked) => ("an allocation is not counted", asked),
            None => {
                let refusal = Refusal {
                    free: Bytes::ZERO,
                    short_by: bytes,
                    host: None,
                };
                ("GPU memory is refused", Asked::Refused(refusal))
            }
        };
        // The next call uses the ledger again if it can be reopened.
        self.runtime.ledger_again();
        match why {
            _ if self.runtime.refuses() => {}
            ledger::NoSlot::Damaged => slice_ledger::say_damaged(self.runtime.enforces()),
            why => slice_ledger::say_no_slot(why, follows),
        }
        asked
    }

    /// Claims memory; logs and records a refusal.
    #[inline]
    pub(crate) fn claim(&self, bytes: Bytes, kind: Kind) -> Asked {
        self.claim_for(bytes, bytes, kind)
    }

    /// Like `claim`, with `bytes` claimed in whole steps for `request` bytes.
    #[inline(always)]
    pub(crate) fn claim_for(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Asked {
        let asked = self.ask_for(request, bytes, kind);
        if let Asked::Refused(refusal) = asked {
            self.refuse(bytes, refusal);
        }
        asked
    }

    /// Records memory that the driver has already allocated, whatever the limit.
    pub(crate) fn record(&self, bytes: Bytes, kind: Kind) -> bool {
        let claim = self.ledger.claim(self.listed, bytes, kind, Bytes::MAX);
        self.changed();
        matches!(claim, Claim::Granted | Claim::Private(_))
    }

    /// Whether new memory must be refused without calling the driver, because it could not be
    /// counted.
    #[cold]
    pub(crate) fn is_closed(&self) -> bool {
        let slot = || {
            self.ledger
                .claim(self.listed, Bytes::ZERO, Kind::Context, Bytes::MAX)
        };
        if !self.runtime.enforces() {
            return false;
        }
        match slot() {
            Claim::Granted => return false,
            // Why the whole ledger cannot be used was logged when it was opened.
            Claim::NoSlot(ledger::NoSlot::Closed) | Claim::Private(ledger::NoSlot::Closed) => {
                self.runtime.ledger_again();
            }
            Claim::NoSlot(why) | Claim::Private(why) => {
                self.without_slot(why, Bytes::ZERO, None);
            }
            Claim::Refused { .. } => self.runtime.ledger_again(),
        }
        true
    }

    /// Records imported memory. It exists already, so the host is not queried. It is charged to a
    /// process that holds the exported memory, as long as one in the slice does.
    pub(crate) fn import(&self, class: Class, bytes: Bytes) -> Import {
        let limit = admit::claim_limit(self.device.budget, Bytes::ZERO, self.runtime.enforces());
        let import = self.ledger.import(self.listed, class, bytes, limit);
        if let Import::Refused { used } = import {
            let free = limit.minus(used);
            let refusal = Refusal {
                free,
                short_by: bytes.minus(free),
                host: None,
            };
            self.refuse(bytes, refusal);
        }
        self.changed();
        import
    }

    /// Releases memory that was granted.
    #[inline]
    pub(crate) fn release(&self, bytes: Bytes, kind: Kind) {
        self.ledger.release(self.listed, bytes, kind);
        self.changed();
    }

    /// Prepares to measure the size of a context.
    pub(crate) fn scale(&self, slot: Slot, ordinal: CudaOrdinal) -> Scale {
        Scale::of(self.runtime, slot, ordinal)
    }

    /// Records and logs a refusal.
    #[cold]
    pub(crate) fn refuse(&self, bytes: Bytes, refusal: Refusal) {
        // A refusal for want of a slot reveals nothing about the limit.
        if self.ledger.counts(self.listed) {
            self.ledger.refused(self.listed, refusal.short_by);
        }
        if self.runtime.refuses() {
            return;
        }
        if let Some(host) = refusal.host {
            return host::say_refused(bytes, &host);
        }
        let line = [
            Str("refused "),
            Dec(bytes.get()),
            Str(" bytes: "),
            Dec(refusal.free.get()),
            Str(" free of "),
            Dec(self.device.budget.memory.get()),
        ];
        counters::REFUSED.say("limit", &line);
    }

    /// In a slice that only counts: logs that it holds more than its limit, and records the part of
    /// this request that would have been refused.
    #[cold]
    fn look(&self, bytes: Bytes) {
        let (used, memory) = (self.ledger.sum(self.listed), self.device.budget.memory);
        if used > memory {
            self.ledger
                .refused(self.listed, used.minus(memory).at_most(bytes));
            let line = [
                Str("would refuse "),
                Dec(bytes.get()),
                Str(" bytes: "),
                Dec(used.get()),
                Str(" held of "),
                Dec(memory.get()),
            ];
            counters::REFUSED.say("limit", &line);
        }
    }

    /// Remembers memory that the driver has allocated, so that it can be released.
    #[inline(always)]
    pub(crate) fn keep(&self, address: u64, bytes: Bytes, kind: Kind) {
        let held = self.here(bytes, kind);
        match allocations::put(self.private, address, held) {
            Put::Kept(None) | Put::Joined => {}
            Put::Kept(Some(old)) => self.instead_of(old),
            Put::Elsewhere => self.stray(address, held),
        }
    }

    /// Remembers a small allocation, for which a whole step was granted. False: it shares a step
    /// that is already paid for.
    #[inline(always)]
    pub(crate) fn keep_small(&self, address: u64) -> bool {
        let held = self.here(Bytes::new(STEP), Kind::Linear);
        match allocations::join(self.private, address, held) {
            Put::Joined => return false,
            Put::Kept(Some(old)) => self.instead_of(old),
            Put::Kept(None) => {}
            Put::Elsewhere => self.stray(address, held),
        }
        true
    }

    /// Releases the old record of an address that the driver has returned again.
    #[cold]
    #[inline(never)]
    fn instead_of(&self, old: Held) {
        give_back(self.ledger, old.device, old.bytes, old.kind);
    }

    #[cold]
    #[inline(never)]
    fn stray(&self, address: u64, held: Held) {
        self.private.strays.store(1, Ordering::Release);
        self.remember(Space::Memory, address, held);
    }

    /// A record of memory held on this device in the current context.
    #[inline]
    pub(crate) fn here(&self, bytes: Bytes, kind: Kind) -> Held {
        let context = context(self.private, self.slot);
        self.held(bytes, kind, context)
    }

    /// A record of memory held on this device in the given context.
    pub(crate) fn held(&self, bytes: Bytes, kind: Kind, context: u8) -> Held {
        Held {
            bytes,
            device: self.listed,
            kind,
            context,
        }
    }

    /// Remembers a handle. An old record under its number is stale, because the driver reuses only
    /// numbers that are free: it is released.
    #[inline]
    pub(crate) fn remember(&self, space: Space, number: u64, held: Held) {
        if let Some(old) = handles::find(self.private, space, number) {
            gone(self.ledger, old);
        }
        if !handles::put(self.private, space, number, held) {
            counters::UNCOUNTED.say("held", &[Str("no memory: an allocation stays counted")]);
        }
    }
}

/// The record of an address of this process, as of when it was looked up.
#[derive(Clone, Copy)]
pub(crate) enum Memory {
    /// In `allocations`.
    Grain(allocations::Found),
    /// In `handles`.
    Stray(Found),
}

/// The record of an address.
#[inline(always)]
pub(crate) fn memory(address: u64) -> Option<Memory> {
    runtime::slice()?.ledger()?;
    let private = page::page()?;
    // Strays first: a shared word in `allocations` answers for every address of its step.
    if private.strays.load(Ordering::Acquire) != 0
        && let Some(found) = handles::find(private, Space::Memory, address)
    {
        return Some(Memory::Stray(found));
    }
    allocations::find(private, address).map(Memory::Grain)
}

/// Releases memory that the driver has freed.
#[inline(always)]
pub(crate) fn memory_freed(memory: Memory) {
    let Some(runtime) = runtime::slice() else {
        return;
    };
    let Some(ledger) = runtime.ledger() else {
        return;
    };
    match memory {
        Memory::Grain(found) => {
            if let Some(held) = found.take() {
                give_back_in(runtime, ledger, held.device, held.bytes, held.kind);
            }
        }
        Memory::Stray(found) => gone(ledger, found),
    }
}

/// The slice's ledger.
pub(crate) fn ledger() -> Option<&'static Ledger> {
    runtime::slice()?.ledger()
}

/// This process's record of what it holds. None: it does not count.
pub(crate) fn page() -> Option<&'static Private> {
    ledger()?;
    page::page()
}

/// Whether this process counts memory.
#[inline]
pub(crate) fn counts() -> bool {
    runtime::slice().and_then(Runtime::ledger).is_some()
}

/// The record of a handle of this process.
#[inline]
pub(crate) fn find(space: Space, number: u64) -> Option<Found> {
    runtime::slice()?.ledger()?;
    handles::find(page::page()?, space, number)
}

/// Releases a handle that the driver has freed.
#[inline]
pub(crate) fn freed(found: Found) {
    if let Some(ledger) = runtime::slice().and_then(Runtime::ledger) {
        gone(ledger, found);
    }
}

/// Releases the memory of an entry, unless another thread has already taken the entry.
#[inline]
fn gone(ledger: &Ledger, found: Found) {
    if found.take() {
        let held = found.held();
        give_back(ledger, held.device, held.bytes, held.kind);
    }
}

/// Releases memory, and publishes it to the neighbours.
#[inline]
pub(crate) fn give_back(ledger: &Ledger, device: ledger::Device, bytes: Bytes, kind: Kind) {
    if let Some(runtime) = runtime::slice() {
        give_back_in(runtime, ledger, device, bytes, kind);
    }
}

#[inline]
fn give_back_in(
    runtime: &Runtime,
    ledger: &Ledger,
    device: ledger::Device,
    bytes: Bytes,
    kind: Kind,
) {
    ledger.release(device, bytes, kind);
    if runtime.promise().is_some() {
        host::tell_neighbours(runtime, ledger, device);
    }
}

/// Releases the memory of a context that no longer exists.
pub(crate) fn context_gone(number: u8) {
    let (Some(ledger), Some(private)) = (runtime::slice().and_then(Runtime::ledger), page::page())
    else {
        return;
    };
    if number == 0 {
        return;
    }
    sharing::context_gone(private, number);
    allocations::take_of_context(private, number, |held| {
        give_back(ledger, held.device, held.bytes, held.kind);
    });
    handles::each(private, |space, _, found| {
        let ends = matches!(space, Space::Memory | Space::Array | Space::Pinned);
        if ends && found.held().context == number {
            gone(ledger, found);
        }
    });
    contexts::forget(private, number);
}
