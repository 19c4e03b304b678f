//! The ledger's interface for memory: claims, releases and sums.
//! Touches: the mapped file; the kernel through `kernel`.

use super::kernel::locks::CrashPoints;
use super::protocol::claims::{self, Outcome, Own};
use super::protocol::columns::{Alone, Amount};
use super::protocol::layout::{Device, Kind, Trust};
use super::protocol::private::Mine;
use super::protocol::totals;
use super::{Ledger, NoSlot, slotless};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The bytes are this process's until it releases them or ends.
    Granted,
    /// Nothing was taken: the slice's processes hold this much, and it would not fit.
    Refused {
        /// Bytes held by the slice's processes.
        used: Bytes,
    },
    /// Nothing was taken: this process has no slot, so other processes could not see its bytes.
    NoSlot(NoSlot),
    /// The limit was [`Bytes::MAX`] and this process has no slot. It counts the bytes by itself,
    /// and moves them into its slot when it gets one.
    Private(NoSlot),
}

impl Ledger {
    /// The bytes that the slice's live processes hold on a device. Bytes of a process without a
    /// slot are known only to that process.
    #[must_use]
    pub fn sum(&self, device: Device) -> Bytes {
        if let Some(alone) = self.sum_alone(device) {
            return alone;
        }
        self.settle();
        let mine = self.private.mine(device);
        if let Some(mine) = mine
            && let Some(slot) = mine.slot()
        {
            self.arm(mine, slot);
        }
        if self.finds_damage(device) {
            return Bytes::MAX;
        }
        let session = self.session();
        let device = self.in_file(device);
        Bytes::new(totals::sum(self.table, &session, device))
    }

    /// Like [`Ledger::sum`], on the fast path: the bytes in the slot of a process alone in its
    /// slice. `None` if it is not alone.
    #[inline(always)]
    fn sum_alone(&self, device: Device) -> Option<Bytes> {
        let (node, own) = self.first.as_ref()?;
        let mine = self.private.mine(device)?;
        let is_alone = mine.slot() == Some(0)
            && self.begins == self.header.begins()
            && node
                .head()
                .is_alive(self.in_file(device), Trust::unless(false));
        is_alone.then(|| own.sum_alone(&self.header.extent, &mine.holding))?
    }

    /// The bytes that this process holds on a device.
    #[must_use]
    pub fn own(&self, device: Device) -> Bytes {
        let slot = self.private.mine(device).and_then(Mine::slot);
        let used = slot.and_then(|slot| self.table.used.get(slot));
        used.map_or(Bytes::ZERO, |used| Bytes::new(used.load(SeqCst)))
    }

    /// Claims `bytes` if the slice then holds no more than `limit`.
    ///
    /// With [`Bytes::MAX`] as the limit, the claim only counts. This records memory that the driver
    /// has already given.
    #[inline(always)]
    pub fn claim(&self, device: Device, bytes: Bytes, kind: Kind, limit: Bytes) -> Claim {
        if bytes.get() <= claims::MOST
            && let Some(mine) = self.private.mine(device)
            && mine.slot() == Some(0)
            && let Some((node, own)) = &self.first
            && node.head().hinted_alive()
        {
            let bytes = bytes.get();
            let amount = Amount { bytes, kind };
            let extent = &self.header.extent;
            match own.claim_alone(extent, &CrashPoints, &mine.holding, amount, limit.get()) {
                Alone::Granted => return Claim::Granted,
                Alone::Contested => {
                    if self.contested(mine, device, amount, limit) {
                        return Claim::Granted;
                    }
                }
                Alone::NotGranted => {}
            }
        }
        self.claim_among(device, bytes, kind, limit)
    }

    /// Counts `bytes` for which another mechanism enforces the limit: adds them to this process's slot,
    /// and looks at no other slot.
    #[inline(always)]
    pub fn count(&self, device: Device, bytes: Bytes, kind: Kind) -> Claim {
        if bytes.get() <= claims::MOST
            && let Some(mine) = self.private.mine(device)
            && let Some(slot) = mine.slot()
            && let Some(node) = self.table.nodes.get(slot)
            && node.head().hinted_alive()
        {
            let bytes = bytes.get();
            claims::record(self.table, slot, Amount { bytes, kind });
            mine.holding.add(bytes);
            return Claim::Granted;
        }
        self.claim_among(device, bytes, kind, Bytes::MAX)
    }

    #[cold]
    #[inline(never)]
    fn contested(&self, mine: &Mine, device: Device, amount: Amount, limit: Bytes) -> bool {
        let own = Own {
            slot: 0,
            gate: &mine.gate,
            holding: &mine.holding,
            verify: false,
        };
        let (table, session) = (self.table, self.session());
        let device = self.in_file(device);
        claims::contested(table, &session, &own, device, amount, limit.get())
    }

    #[inline(never)]
    fn claim_among(&self, device: Device, bytes: Bytes, kind: Kind, limit: Bytes) -> Claim {
        let Some(mine) = self.private.mine(device) else {
            return Claim::NoSlot(NoSlot::Unlisted);
        };
        if self.finds_damage(device) {
            return slotless::claim(self, device, bytes, kind, limit, NoSlot::Damaged);
        }
        let mut session = self.session();
        let (slot, fresh) = match mine.slot() {
            Some(slot) => (slot, false),
            None => {
                // The program itself causes a first claim, so the kernel is queried even under a
                // seccomp filter.
                session.insist();
                match self.enter(&session, mine, device) {
                    Ok(slot) => (slot, true),
                    Err(why) => {
                        self.header.uncounted.fetch_add(1, Relaxed);
                        return slotless::claim(self, device, bytes, kind, limit, why);
                    }
                }
            }
        };
        self.arm(mine, slot);
        let own = Own {
            slot,
            gate: &mine.gate,
            holding: &mine.holding,
            verify: fresh,
        };
        let bytes = bytes.get();
        let table = self.table;
        let amount = Amount { bytes, kind };
        let device = self.in_file(device);
        match claims::claim(table, &session, &own, device, amount, limit.get()) {
            Outcome::Granted => Claim::Granted,
            Outcome::Refused { used } => Claim::Refused {
                used: Bytes::new(used),
            },
        }
    }

    /// Releases granted bytes; a larger amount releases all of them. A child cannot release bytes
    /// that its parent held before the fork.
    #[inline]
    pub fn release(&self, device: Device, bytes: Bytes, kind: Kind) {
        let mine = self.private.mine(device);
        match mine.and_then(|mine| Some((mine.slot()?, &mine.holding))) {
            Some((slot, holding)) => {
                let bytes = bytes.get();
                let amount = Amount { bytes, kind };
                claims::release(self.table, &CrashPoints, slot, holding, amount);
            }
            None => slotless::release(self, device, bytes, kind),
        }
    }
}
