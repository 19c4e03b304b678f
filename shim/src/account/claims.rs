//! Claims and releases memory in the ledger.
//! Touches: the slice's ledger; the host's meminfo on unified memory.
//! Law: a refused request changes nothing. Decides by `config::answer::admit` and the ledger alone.

use gpuslice_config::answer::admit::{self, Refusal};
use gpuslice_config::ledger::{self, Claim, Class, Import, Kind, SetLimit};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use super::{Account, Reading, host};
use crate::answer::device;
use crate::log::Piece::{self, Dec, Size, SizeBeside, Str};
use crate::log::{self, Level, counters};
use crate::slice::slice_ledger;

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

/// How often a request is tried again because the limit was changed meanwhile. `gpuslice resize`
/// takes a lock and milliseconds for each change.
const TRIES: u32 = 64;

impl Account {
    /// Claims memory. A refusal is not recorded yet.
    #[inline]
    pub(crate) fn try_claim(&self, bytes: Bytes, kind: Kind) -> Outcome {
        self.try_claim_steps(bytes, bytes, kind)
    }

    /// Claims `bytes` (whole steps) for `request` bytes; the host's memory is checked against
    /// `request`.
    #[inline(always)]
    pub(crate) fn try_claim_steps(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Outcome {
        if self.is_held_by_driver(kind) {
            return self.count(bytes, kind);
        }
        match self.claim_once(request, bytes, kind) {
            Some(outcome) => outcome,
            None => self.claim_again(request, bytes, kind),
        }
    }

    /// Claims memory with one reading of the limit. Returns `None`, with the bytes still claimed, if
    /// the limit was changed before the claim could be seen.
    #[inline(always)]
    fn claim_once(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Option<Outcome> {
        let Reading { budget, set } = self.budget();
        let enforced = self.slice.enforces();
        let mut charge = Bytes::ZERO;
        if enforced && self.unified() {
            charge = match self.check_host(&budget, request) {
                Ok(charge) => charge,
                Err(refusal) => return Some(Outcome::Refused(refusal)),
            };
        }
        let limit = admit::claim_limit(&budget, charge, enforced);
        Some(match self.ledger.claim(self.listed, bytes, kind, limit) {
            Claim::Granted if self.ledger.limit(self.listed) != set => return None,
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
        })
    }

    /// Whether the driver enforces the limit for this kind of memory, which is then only counted here.
    /// The driver counts managed memory as the system's. A limit that was set in the ledger is held
    /// here, whatever the driver holds.
    #[inline(always)]
    fn is_held_by_driver(&self, kind: Kind) -> bool {
        self.device.is_held_by_driver
            && kind != Kind::Managed
            && self.ledger.limit(self.listed) == SetLimit::NONE
    }

    /// Whether memory of this kind must be refused if no record of it can be kept: the library
    /// enforces the limit, and could not count the memory.
    #[cold]
    pub(crate) fn refuses_unrecorded(&self, kind: Kind) -> bool {
        self.slice.enforces() && !self.is_held_by_driver(kind)
    }

    /// Counts memory that the driver grants or refuses.
    #[inline(always)]
    fn count(&self, bytes: Bytes, kind: Kind) -> Outcome {
        match self.ledger.count(self.listed, bytes, kind) {
            Claim::Granted => Outcome::Granted,
            Claim::Private(why) => self.without_slot(why, bytes, Some(Outcome::Granted)),
            Claim::NoSlot(why) => self.without_slot(why, bytes, Some(Outcome::Uncounted)),
            // More than any device has.
            Claim::Refused { .. } => Outcome::Uncounted,
        }
    }

    /// Records that the driver has refused a request because the slice is full.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused_by_driver(&self, bytes: Bytes, kind: Kind) {
        if !self.is_held_by_driver(kind) {
            return;
        }
        let free = self
            .budget()
            .budget
            .memory
            .minus(self.ledger.sum(self.listed));
        // The driver also refuses for reasons of its own.
        if bytes > free {
            let refusal = Refusal {
                free,
                short_by: bytes.minus(free),
                host: None,
            };
            self.refuse(bytes, refusal);
        }
    }

    /// Claims anew after the limit was changed while a claim was granted. Refuses if it is changed
    /// each time: whoever does that must not keep this thread here.
    #[cold]
    #[inline(never)]
    fn claim_again(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Outcome {
        for _ in 0..TRIES {
            self.ledger.release(self.listed, bytes, kind);
            if let Some(outcome) = self.claim_once(request, bytes, kind) {
                return outcome;
            }
        }
        self.ledger.release(self.listed, bytes, kind);
        Outcome::Refused(Refusal {
            free: Bytes::ZERO,
            short_by: bytes,
            host: None,
        })
    }

    /// Logs why a process has no slot, and returns the outcome of its claim: refused, unless
    /// `outcome` says otherwise.
    #[cold]
    #[inline(never)]
    fn without_slot(&self, why: ledger::NoSlot, bytes: Bytes, outcome: Option<Outcome>) -> Outcome {
        let (follows, outcome) = match outcome {
            Some(Outcome::Granted) => ("only this process counts an allocation", Outcome::Granted),
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
        self.slice.ledger_again();
        match why {
            _ if self.slice.refuses() => {}
            ledger::NoSlot::Damaged => slice_ledger::say_damaged(self.slice.enforces()),
            why => slice_ledger::say_no_slot(why, follows),
        }
        outcome
    }

    /// Claims memory, if need be after a trim; logs and records a refusal.
    #[inline]
    pub(crate) fn claim(&self, bytes: Bytes, kind: Kind) -> Outcome {
        let outcome = self.try_claim_trimming(bytes, bytes, kind);
        if let Outcome::Refused(refusal) = outcome {
            self.refuse(bytes, refusal);
        }
        outcome
    }

    /// Like `try_claim_steps`; logs and records a refusal.
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
        if !self.slice.enforces() || self.device.is_held_by_driver {
            return false;
        }
        match own_row() {
            Claim::Granted => return false,
            // The reason why the whole ledger cannot be used was logged when the ledger was opened.
            Claim::NoSlot(ledger::NoSlot::Closed) | Claim::Private(ledger::NoSlot::Closed) => {
                self.slice.ledger_again();
            }
            Claim::NoSlot(why) | Claim::Private(why) => {
                self.without_slot(why, Bytes::ZERO, None);
            }
            Claim::Refused { .. } => self.slice.ledger_again(),
        }
        true
    }

    /// Records imported memory. The memory exists already, so the host is not queried. It is
    /// charged to a process that holds the exported memory, as long as there is one in the slice,
    /// and then to one that has imported it.
    pub(crate) fn import(&self, class: Class, bytes: Bytes) -> Import {
        let (mut import, mut limit) = self.try_import(class, bytes);
        if matches!(import, Import::Refused { .. }) && self.trims() {
            (import, limit) = self.try_import(class, bytes);
        }
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

    /// Records imported memory. Also returns the limit that was in force.
    fn try_import(&self, class: Class, bytes: Bytes) -> (Import, Bytes) {
        let mut tries = 0u32;
        loop {
            let Reading { budget, set } = self.budget();
            let enforced = self.slice.enforces() && !self.is_held_by_driver(Kind::Vmm);
            let limit = admit::claim_limit(&budget, Bytes::ZERO, enforced);
            let import = self.ledger.import(self.listed, class, bytes, limit);
            if self.ledger.limit(self.listed) == set {
                return (import, limit);
            }
            // As in `claim_again`: the import is tried again with the new limit.
            match import {
                Import::Shared => self.ledger.unimport(self.listed, class, bytes),
                Import::Paid => self.ledger.release(self.listed, bytes, Kind::Vmm),
                Import::Refused { .. } => {}
            }
            tries = tries.saturating_add(1);
            if tries > TRIES {
                return (Import::Refused { used: limit }, limit);
            }
        }
    }

    /// Releases memory that was granted.
    #[inline]
    pub(crate) fn release(&self, bytes: Bytes, kind: Kind) {
        self.ledger.release(self.listed, bytes, kind);
        self.changed();
    }

    /// Records and logs a refusal.
    #[cold]
    pub(crate) fn refuse(&self, bytes: Bytes, refusal: Refusal) {
        // A refusal for want of a slot reveals nothing about the limit.
        if self.ledger.counts(self.listed) {
            self.ledger.refused(self.listed, refusal.short_by);
        }
        if self.slice.refuses() {
            return;
        }
        if let Some(host) = refusal.host {
            return host::say_refused(bytes, &host);
        }
        let [on, number] = self.named();
        let line = [
            Str("refused "),
            SizeBeside(bytes, refusal.free),
            on,
            number,
            Str(": "),
            SizeBeside(refusal.free, bytes),
            Str(" free of "),
            SizeBeside(self.budget().budget.memory, refusal.free),
        ];
        counters::REFUSED.warn(&line);
    }

    /// Names the device by its CUDA ordinal, for a line that is written; nothing if none is known.
    fn named(&self) -> [Piece<'static>; 2] {
        match log::enabled(Level::Warn).then(|| device::ordinal_of(self.copy, self.listed)) {
            Some(Some(CudaOrdinal(number))) => [Str(" on GPU "), Dec(u64::from(number))],
            _ => [Str(""), Str("")],
        }
    }

    /// In a slice that only counts, logs that the slice holds more than its limit, and records the
    /// part of this request that would have been refused.
    #[cold]
    fn look(&self, bytes: Bytes) {
        let (used, memory) = (self.ledger.sum(self.listed), self.budget().budget.memory);
        if used > memory {
            self.ledger
                .refused(self.listed, used.minus(memory).at_most(bytes));
            let [on, number] = self.named();
            let line = [
                Str("would refuse "),
                Size(bytes),
                on,
                number,
                Str(": the slice uses "),
                SizeBeside(used, memory),
                Str(", its limit is "),
                SizeBeside(memory, used),
            ];
            counters::REFUSED.warn(&line);
        }
    }
}
