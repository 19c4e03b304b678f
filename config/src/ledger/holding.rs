//! The private tally of a process: the values that its own slot must hold. A difference shows that
//! the ledger was overwritten.
//! Touches: one word of this process's own; its slot, by reading.
//! Law: the slot never says less than is known here. A claim adds to the slot first, a release takes
//! from here first; so a slot that says less was written to by something that is not its owner.

use super::layout::{Device, Table};
use super::sync::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;

/// The bytes that a slot must hold, and above them how often that changed: who finds the word as it
/// was a moment ago knows that nothing has changed in between.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Holding(AtomicU64);

/// One change. The bits below are the bytes; more than that no machine has.
const CHANGE: u64 = 1 << 50;
const ABOVE: u32 = 14;

/// How often a slot is read that changes while it is looked at.
const LOOKS: u32 = 1000;

impl Holding {
    /// Nothing.
    #[cfg(not(all(test, loom)))]
    pub(super) const fn nothing() -> Holding {
        Holding(AtomicU64::new(0))
    }

    /// As the kernel does when the process ends.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.0.store(0, SeqCst);
    }

    /// From now on the slot says too little, whatever it says.
    #[cfg(not(all(test, loom)))]
    pub(super) fn never_matches(&self) {
        self.0.store(CHANGE >> 2, SeqCst);
    }

    /// Call after the slot has got so much more.
    #[inline(always)]
    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(CHANGE.wrapping_add(bytes), SeqCst);
    }

    /// Call before so much is taken from the slot.
    #[inline(always)]
    pub(super) fn take(&self, bytes: u64) {
        self.0.fetch_add(CHANGE.wrapping_sub(bytes), SeqCst);
    }

    /// Whether more must be held than the slot says. A claim or release under way may make it seem so.
    #[inline(always)]
    pub(super) fn seems_more_than(&self, used: u64) -> bool {
        is_more(self.0.load(SeqCst), used)
    }

    /// Whether more must be held than the slot says, for certain.
    fn is_more_than(&self, used: &AtomicU64) -> bool {
        for _ in 0..LOOKS {
            let known = self.0.load(SeqCst);
            let found = used.load(SeqCst);
            if self.0.load(SeqCst) == known {
                return is_more(known, found);
            }
            core::hint::spin_loop();
        }
        false
    }
}

/// What was given back twice is less than nothing, so the difference has a sign.
#[inline(always)]
const fn is_more(known: u64, used: u64) -> bool {
    (known.wrapping_sub(used) << ABOVE).cast_signed() > 0
}

/// Whether the slots can be what their owners have written, at a glance. `own`: this process's slot on
/// the device.
#[inline(always)]
pub(super) fn seem_intact(
    table: Table<'_>,
    device: Device,
    own: Option<(usize, &Holding)>,
) -> bool {
    let extent = usize::try_from(table.extent.load(SeqCst)).unwrap_or(usize::MAX);
    let is_own_intact = match own {
        None => true,
        Some((slot, holding)) => {
            let (node, used) = (table.nodes.get(slot), table.used.get(slot));
            slot < extent
                && node.is_some_and(|node| node.head().is(device))
                && used.is_some_and(|used| !holding.seems_more_than(used.load(SeqCst)))
        }
    };
    is_own_intact && !hides_one(table, extent)
}

/// Whether the slot behind the last one was ever taken. Who takes one raises the extent first.
#[inline(always)]
fn hides_one(table: Table<'_>, extent: usize) -> bool {
    table
        .nodes
        .get(extent)
        .is_some_and(|node| node.head().0 != 0)
}

/// Whether the slots are not what their owners have written, after [`seem_intact`] has said no.
#[cold]
#[inline(never)]
pub(super) fn are_damaged(
    table: Table<'_>,
    device: Device,
    own: Option<(usize, &Holding)>,
) -> bool {
    let extent = || table.extent.load(SeqCst);
    let seen = extent();
    let end = usize::try_from(seen).unwrap_or(usize::MAX);
    // A slot that was taken in between has raised it.
    if hides_one(table, end) && extent() == seen {
        return true;
    }
    let Some((slot, holding)) = own else {
        return false;
    };
    let (Some(node), Some(used)) = (table.nodes.get(slot), table.used.get(slot)) else {
        return true;
    };
    slot >= end || !node.head().is(device) || holding.is_more_than(used)
}
