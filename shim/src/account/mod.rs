//! Accounts: which device pays for an allocation, and whether it is granted.
//! Touches: the slice's ledger, this process's own table, the host's meminfo on unified memory.
//! Law: claimed before the driver is called, given back when it fails or when it has freed; what
//! was refused has changed nothing. Decides by `config::admit` and the ledger alone.
//!
//! The driver hands out memory in steps of 2 MiB, and so it is charged; requests of up to 1 MiB
//! share a step, and the first of a step pays (`allocations`).

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

use gpuslice_config::admit::{self, Refusal};
use gpuslice_config::device::CudaOrdinal;
use gpuslice_config::ledger::{self, Claim, Class, Import, Kind, Ledger};
use gpuslice_config::units::Bytes;

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

/// A device of the slice that a ledger is kept of.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    runtime: &'static Runtime,
    device: Device<'static>,
    /// The slice's ledger.
    pub(crate) ledger: &'static Ledger,
    /// What the ledger calls the device.
    pub(crate) listed: ledger::Device,
    /// What this process knows of what it holds.
    pub(crate) private: &'static Private,
    /// The copy of the driver that is asked about it.
    pub(crate) slot: Slot,
}

/// What becomes of a request.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    /// It is this process's until it is released.
    Granted,
    /// The ledger of a slice that only counts cannot say, and the driver decides.
    Uncounted,
    /// It does not fit.
    Refused(Refusal),
}

/// The account of the calling thread's current device. None: nobody counts there.
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

    /// Asks for memory. A refusal is not recorded yet.
    #[inline]
    pub(crate) fn ask(&self, bytes: Bytes, kind: Kind) -> Asked {
        self.ask_for(bytes, bytes, kind)
    }

    /// Asks for `bytes` that a request of fewer needs: the host has what it has to the byte.
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

    /// Says why a process has no slot. Where nothing else becomes of its claim it is refused.
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
        // The next call has it, if it can be used again.
        self.runtime.ledger_again();
        match why {
            _ if self.runtime.refuses() => {}
            ledger::NoSlot::Damaged => slice_ledger::say_damaged(self.runtime.enforces()),
            why => slice_ledger::say_no_slot(why, follows),
        }
        asked
    }

    /// Asks for memory and, where it does not fit, says so and records it.
    #[inline]
    pub(crate) fn claim(&self, bytes: Bytes, kind: Kind) -> Asked {
        self.claim_for(bytes, bytes, kind)
    }

    /// The same for `bytes` that a request of fewer needs.
    #[inline(always)]
    pub(crate) fn claim_for(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Asked {
        let asked = self.ask_for(request, bytes, kind);
        if let Asked::Refused(refusal) = asked {
            self.refuse(bytes, refusal);
        }
        asked
    }

    /// Records what the driver has given already, whatever the limit.
    pub(crate) fn record(&self, bytes: Bytes, kind: Kind) -> bool {
        let claim = self.ledger.claim(self.listed, bytes, kind, Bytes::MAX);
        self.changed();
        matches!(claim, Claim::Granted | Claim::Private(_))
    }

    /// Whether the driver must not be asked for anything new, because it could not be counted.
    #[cold]
    pub(crate) fn is_closed(&self) -> bool {
        let slot = || {
            self.ledger
                .claim(self.listed, Bytes::ZERO, Kind::Context, Bytes::MAX)
        };
        let closed = self.runtime.enforces() && slot() != Claim::Granted;
        if closed {
            self.runtime.ledger_again();
        }
        closed
    }

    /// Records what was imported: it is there already, so that the host is not asked, and it is
    /// charged to whoever holds what has been exported, as long as one of the slice does.
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

    /// Gives back what was granted.
    #[inline]
    pub(crate) fn release(&self, bytes: Bytes, kind: Kind) {
        self.ledger.release(self.listed, bytes, kind);
        self.changed();
    }

    /// Gets ready to measure what a context takes.
    pub(crate) fn scale(&self, slot: Slot, ordinal: CudaOrdinal) -> Scale {
        Scale::of(self.runtime, slot, ordinal)
    }

    /// Records a refusal and says it.
    #[cold]
    pub(crate) fn refuse(&self, bytes: Bytes, refusal: Refusal) {
        // What is refused for want of a slot says nothing of the limit.
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

    /// A slice that only counts says when it holds more than it should, and counts what would have been
    /// refused: what of this request is over the limit.
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

    /// Remembers memory that the driver has given, so that it can be released.
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
    /// that is paid for.
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

    /// Gives back what was kept of an address that the driver has given again.
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

    /// What is held on this device and in the current context.
    #[inline]
    pub(crate) fn here(&self, bytes: Bytes, kind: Kind) -> Held {
        let context = context(self.private, self.slot);
        self.held(bytes, kind, context)
    }

    /// What is held on this device.
    pub(crate) fn held(&self, bytes: Bytes, kind: Kind, context: u8) -> Held {
        Held {
            bytes,
            device: self.listed,
            kind,
            context,
        }
    }

    /// Remembers what is held. What was there under this number is gone: the driver would not
    /// have given the number again.
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

/// Memory of this process, as it was when it was found.
#[derive(Clone, Copy)]
pub(crate) enum Memory {
    /// In `allocations`.
    Grain(allocations::Found),
    /// In `handles`.
    Stray(Found),
}

/// What is known of an address.
#[inline(always)]
pub(crate) fn memory(address: u64) -> Option<Memory> {
    runtime::slice()?.ledger()?;
    let private = page::page()?;
    // Strays first: a word that several share speaks for every address of its step.
    if private.strays.load(Ordering::Acquire) != 0
        && let Some(found) = handles::find(private, Space::Memory, address)
    {
        return Some(Memory::Stray(found));
    }
    allocations::find(private, address).map(Memory::Grain)
}

/// The driver has freed it.
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

/// What this process knows of what it holds. None: it does not count.
pub(crate) fn page() -> Option<&'static Private> {
    ledger()?;
    page::page()
}

/// Whether this process counts at all.
#[inline]
pub(crate) fn counts() -> bool {
    runtime::slice().and_then(Runtime::ledger).is_some()
}

/// What is known of a handle of this process.
#[inline]
pub(crate) fn find(space: Space, number: u64) -> Option<Found> {
    runtime::slice()?.ledger()?;
    handles::find(page::page()?, space, number)
}

/// The driver has let go of it.
#[inline]
pub(crate) fn freed(found: Found) {
    if let Some(ledger) = runtime::slice().and_then(Runtime::ledger) {
        gone(ledger, found);
    }
}

/// Releases what an entry stands for, unless somebody else has done so.
#[inline]
fn gone(ledger: &Ledger, found: Found) {
    if found.take() {
        let held = found.held();
        give_back(ledger, held.device, held.bytes, held.kind);
    }
}

/// What was held is not held any more, which the neighbours are told.
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

/// A context is gone, and with it what was allocated in it.
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
