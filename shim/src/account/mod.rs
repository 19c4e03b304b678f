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
mod pay;
pub(crate) mod physical;
pub(crate) mod pools;
pub(crate) mod reclaim;
pub(crate) mod sharing;

pub(crate) use current_context::context;
pub(crate) use pay::{Paid, Request};

use core::sync::atomic::Ordering;

use gpuslice_config::answer::admit::{self, Refusal};
use gpuslice_config::ledger::{self, Claim, Class, Import, Kind, Ledger};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::account::context_size::Meter;
use crate::answer::device::{self, Device};
use crate::log::Piece::{Dec, Str};
use crate::log::counters;
use crate::real::abi::CUdevice;
use crate::real::copies::CopyId;
use crate::slice::slice_ledger;
use crate::slice::{self, runtime::Runtime};
use crate::state::allocations::{self, Put, STEP};
use crate::state::handles::{self, Charge, FoundEntry, Space};
use crate::state::page::ProcessState;
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
    pub(crate) state: &'static ProcessState,
    /// The copy of the driver that is queried about the device.
    pub(crate) copy: CopyId,
}

/// The outcome of a request.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    /// Granted: charged to this process until it is released.
    Granted,
    /// The slice only counts and its ledger cannot record the request: the driver decides.
    Uncounted,
    /// The request does not fit.
    Refused(Refusal),
}

/// The account of the calling thread's current device. None: the device is not counted.
#[inline(always)]
pub(crate) fn current(copy: CopyId) -> Option<Account> {
    let runtime = slice::current()?;
    runtime.ledger()?;
    by_ordinal(copy, device::current(copy)?)
}

/// The account of a device by its handle.
pub(crate) fn by_handle(copy: CopyId, device: CUdevice) -> Option<Account> {
    by_ordinal(copy, device::ordinal(device)?)
}

/// The account of a device by its ordinal.
#[inline(always)]
pub(crate) fn by_ordinal(copy: CopyId, ordinal: CudaOrdinal) -> Option<Account> {
    let runtime = slice::current()?;
    let ledger = runtime.ledger()?;
    let device = device::cuda(runtime, copy, ordinal)?;
    Some(Account {
        runtime,
        device,
        ledger,
        listed: device.listed?,
        state: page::page_or_none(runtime.enforces())?,
        copy,
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
    pub(crate) fn try_claim(&self, bytes: Bytes, kind: Kind) -> Outcome {
        self.try_claim_steps(bytes, bytes, kind)
    }

    /// Claims `bytes` (whole steps) for `request` bytes; the host's memory is checked against
    /// `request`.
    #[inline(always)]
    pub(crate) fn try_claim_steps(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Outcome {
        let budget = self.device.budget;
        let enforced = self.runtime.enforces();
        let mut charge = Bytes::ZERO;
        if enforced && self.unified() {
            charge = match self.check_host(request) {
                Ok(charge) => charge,
                Err(refusal) => return Outcome::Refused(refusal),
            };
        }
        let limit = admit::claim_limit(budget, charge, enforced);
        match self.ledger.claim(self.listed, bytes, kind, limit) {
            Claim::Granted => {
                self.changed();
                if !enforced {
                    self.look(bytes);
                }
                Outcome::Granted
            }
            Claim::Refused { used } => {
                let free = limit.minus(used);
                Outcome::Refused(Refusal {
                    free,
                    short_by: bytes.minus(free),
                    host: None,
                })
            }
            Claim::Private(why) => self.without_slot(why, bytes, Some(Outcome::Granted)),
            Claim::NoSlot(why) if enforced => self.without_slot(why, bytes, None),
            Claim::NoSlot(why) => self.without_slot(why, bytes, Some(Outcome::Uncounted)),
        }
    }

    /// Logs why a process has no slot, and returns the outcome of its claim: refused, unless
    /// `outcome` says otherwise.
    #[cold]
    #[inline(never)]
    fn without_slot(&self, why: ledger::NoSlot, bytes: Bytes, outcome: Option<Outcome>) -> Outcome {
        let (follows, outcome) = match outcome {
            Some(Outcome::Granted) => ("an allocation is counted here alone", Outcome::Granted),
            Some(outcome) => ("an allocation is not counted", outcome),
            None => {
                let refusal = Refusal {
                    free: Bytes::ZERO,
                    short_by: bytes,
                    host: None,
                };
                ("GPU memory is refused", Outcome::Refused(refusal))
            }
        };
        // The next call uses the ledger again if it can be reopened.
        self.runtime.ledger_again();
        match why {
            _ if self.runtime.refuses() => {}
            ledger::NoSlot::Damaged => slice_ledger::say_damaged(self.runtime.enforces()),
            why => slice_ledger::say_no_slot(why, follows),
        }
        outcome
    }

    /// Claims memory; logs and records a refusal.
    #[inline]
    pub(crate) fn claim(&self, bytes: Bytes, kind: Kind) -> Outcome {
        self.claim_steps(bytes, bytes, kind)
    }

    /// Like `claim`, with `bytes` claimed in whole steps for `request` bytes.
    #[inline(always)]
    pub(crate) fn claim_steps(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Outcome {
        let outcome = self.try_claim_steps(request, bytes, kind);
        if let Outcome::Refused(refusal) = outcome {
            self.refuse(bytes, refusal);
        }
        outcome
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
        let own_row = || {
            self.ledger
                .claim(self.listed, Bytes::ZERO, Kind::Context, Bytes::MAX)
        };
        let closed = self.runtime.enforces() && own_row() != Claim::Granted;
        if closed {
            self.runtime.ledger_again();
        }
        closed
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
    pub(crate) fn meter(&self, copy: CopyId, ordinal: CudaOrdinal) -> Meter {
        Meter::new(self.runtime, copy, ordinal)
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
        counters::REFUSED.warn("limit", &line);
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
            counters::REFUSED.warn("limit", &line);
        }
    }

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
    pub(crate) fn keep_small(&self, address: u64) -> bool {
        let charge = self.charge_here(Bytes::new(STEP), Kind::Linear);
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
            counters::UNCOUNTED.warn("held", &[Str("no memory: an allocation stays counted")]);
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
    let Some(runtime) = slice::current() else {
        return;
    };
    let Some(ledger) = runtime.ledger() else {
        return;
    };
    match memory {
        Memory::Word(found) => {
            if let Some(charge) = found.take() {
                give_back_in(runtime, ledger, charge.device, charge.bytes, charge.kind);
            }
        }
        Memory::Stray(found) => gone(ledger, found),
    }
}

/// The slice's ledger.
pub(crate) fn ledger() -> Option<&'static Ledger> {
    slice::current()?.ledger()
}

/// This process's record of what it holds. None: it does not count.
pub(crate) fn page() -> Option<&'static ProcessState> {
    ledger()?;
    page::page()
}

/// Whether this process counts memory.
#[inline]
pub(crate) fn counts() -> bool {
    slice::current().and_then(Runtime::ledger).is_some()
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
    if let Some(ledger) = slice::current().and_then(Runtime::ledger) {
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
    if let Some(runtime) = slice::current() {
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
        host::publish_release(runtime, ledger, device);
    }
}

/// Releases the memory of a context that no longer exists.
pub(crate) fn context_gone(number: u8) {
    let (Some(ledger), Some(state)) = (slice::current().and_then(Runtime::ledger), page::page())
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
