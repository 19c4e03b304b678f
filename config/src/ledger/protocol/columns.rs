//! The amounts of one slot: what its owner holds, in all and by kind, and what it is claiming.
//! Touches: the columns of a table.
//! Law: only the slot's owner, or the holder of its lock, writes here.

use super::holding::Holding;
use super::kernel::{Kernel, Step, Steps};
use super::layout::{KINDS, Kind, Table};
use super::sync::{AtomicU32, AtomicU64, published};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The amount of a claim or release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
}

/// More than any slot holds, and small enough that a sum over all slots does not wrap. If a
/// neighbour writes a larger value, the slice is full.
pub(crate) const ABSURD: u64 = 1 << 54;

/// The result of a claim on the fast path, for a process alone in its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    Granted,
    /// The bytes are taken, but another process has appeared: the sum decides.
    Contested,
    /// Nothing is taken: it does not fit, or the process was not alone.
    NotGranted,
}

/// The amounts of one slot, for its owner or for the holder of its lock.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(super) used: &'a AtomicU64,
    pub(super) pending: &'a AtomicU64,
    pub(super) kinds: &'a [AtomicU64; KINDS],
}

impl<'a> Columns<'a> {
    #[inline]
    pub(crate) fn of(table: Table<'a>, slot: usize) -> Option<Columns<'a>> {
        Some(Columns {
            used: table.used.get(slot)?,
            pending: table.pending.get(slot)?,
            kinds: table.kinds.get(slot)?,
        })
    }

    /// Claims without publishing first, where no other process has ever had a slot. This takes one
    /// locked instruction instead of three, for an engine that is alone in its slice.
    ///
    /// A process that appears meanwhile has raised the extent before it reads the used bytes. A
    /// thread of this process that publishes a claim has done so before it reads them. So either
    /// they see the bytes taken here, or this claim sees them; then the sum decides.
    #[inline(always)]
    pub(crate) fn claim_alone(
        &self,
        extent: &AtomicU32,
        kernel: &impl Steps,
        holding: &Holding,
        amount: Amount,
        limit: u64,
    ) -> Alone {
        let alone = || extent.load(SeqCst) == 1;
        let Some(room) = limit.checked_sub(amount.bytes) else {
            return Alone::NotGranted;
        };
        let mut held = self.used.load(SeqCst);
        loop {
            if held > room || !alone() || holding.seems_more_than(held) {
                return Alone::NotGranted;
            }
            let more = held.wrapping_add(amount.bytes);
            match self.used.compare_exchange(held, more, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => held = now,
            }
        }
        published();
        kernel.step(Step::Granted);
        // As in `tally`, pending before used: a claim that is granted to another thread in between
        // is seen as pending or as used.
        let undecided = self.pending.load(SeqCst) != 0;
        if !alone() || undecided || self.used.load(SeqCst) > limit {
            return Alone::Contested;
        }
        holding.add(amount.bytes);
        self.sort(amount);
        kernel.step(Step::Sorted);
        Alone::Granted
    }

    /// The bytes held where no other process has ever had a slot. `None` if one has, or if the slot
    /// differs from what this process has written.
    #[inline(always)]
    pub(crate) fn sum_alone(&self, extent: &AtomicU32, holding: &Holding) -> Option<Bytes> {
        let held = self.used.load(SeqCst);
        let is_sure = extent.load(SeqCst) == 1 && held < ABSURD && !holding.seems_more_than(held);
        is_sure.then_some(Bytes::new(held))
    }

    #[inline]
    pub(super) fn sort(&self, amount: Amount) {
        if amount.kind.written()
            && let Some(held) = self.kinds.get(amount.kind as usize)
        {
            held.fetch_add(amount.bytes, SeqCst);
        }
    }

    pub(super) fn ask(&self, kernel: &impl Kernel, bytes: u64) {
        self.pending.fetch_add(bytes, SeqCst);
        published();
        kernel.step(Step::Published);
    }

    pub(super) fn withdraw(&self, kernel: &impl Kernel, bytes: u64) {
        self.pending.fetch_sub(bytes, SeqCst);
        kernel.step(Step::Withdrawn);
    }

    pub(super) fn grant(&self, kernel: &impl Kernel, holding: &Holding, amount: Amount) {
        self.used.fetch_add(amount.bytes, SeqCst);
        holding.add(amount.bytes);
        kernel.step(Step::Granted);
        self.sort(amount);
        kernel.step(Step::Sorted);
        self.pending.fetch_sub(amount.bytes, SeqCst);
        kernel.step(Step::Settled);
    }
}

/// Repeats [`take_from`] after another thread has changed the word in between.
#[cold]
#[inline(never)]
pub(super) fn take_again(held: &AtomicU64, bytes: u64) {
    take_from(held, bytes);
}

#[inline]
pub(super) fn take_from(held: &AtomicU64, bytes: u64) {
    let mut found = held.load(Relaxed);
    while let Err(changed) =
        held.compare_exchange_weak(found, found.saturating_sub(bytes), SeqCst, Relaxed)
    {
        found = changed;
    }
}
