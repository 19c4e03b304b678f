//! The private tally of a process: the values that its own slot must hold. A difference shows that
//! the ledger was overwritten.
//! Touches: one word of this process's own; its slot, by reading.
//! Law: the slot never holds less than this tally. A claim adds to the slot first, a release
//! subtracts here first. So a smaller slot was written to by something other than its owner.

use super::layout::{Device, Table};
use super::sync::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;

/// The bytes that a slot must hold, and above them the number of changes. A reader that finds the
/// word unchanged knows that nothing has changed in between.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Holding(AtomicU64);

/// One change. The bits below are the bytes; no machine has more.
const CHANGE: u64 = 1 << 50;
const ABOVE: u32 = 14;

/// How often a slot is read again if it changes while it is being read.
const LOOKS: u32 = 1000;

impl Holding {
    /// A tally of no bytes and no changes.
    #[cfg(not(all(test, loom)))]
    pub(crate) const fn nothing() -> Holding {
        Holding(AtomicU64::new(0))
    }

    /// Resets the tally, as the kernel does when the process ends.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.0.store(0, SeqCst);
    }

    /// From now on every value of the slot counts as too small.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn never_matches(&self) {
        self.0.store(CHANGE >> 2, SeqCst);
    }

    /// Call after the slot has grown by this much.
    #[inline(always)]
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(CHANGE.wrapping_add(bytes), SeqCst);
    }

    /// Call before this much is subtracted from the slot.
    #[inline(always)]
    pub(crate) fn take(&self, bytes: u64) {
        self.0.fetch_add(CHANGE.wrapping_sub(bytes), SeqCst);
    }

    /// Whether the slot seems to hold too little. A claim or release under way can cause that, too.
    #[inline(always)]
    pub(crate) fn seems_more_than(&self, used: u64) -> bool {
        is_more(self.0.load(SeqCst), used)
    }

    /// Whether the slot certainly holds too little.
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

/// The difference is signed, because memory released twice makes the value negative.
#[inline(always)]
const fn is_more(known: u64, used: u64) -> bool {
    (known.wrapping_sub(used) << ABOVE).cast_signed() > 0
}

/// A quick check whether the slots can be as their owners have written them. `own`: this process's
/// slot on the device.
#[inline(always)]
pub(crate) fn seem_intact(
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

/// Whether the slot after the last one was ever taken. A process that takes a slot raises the
/// extent first.
#[inline(always)]
fn hides_one(table: Table<'_>, extent: usize) -> bool {
    table
        .nodes
        .get(extent)
        .is_some_and(|node| node.head().0 != 0)
}

/// Whether the slots differ from what their owners have written, once [`seem_intact`] has returned
/// false.
#[cold]
#[inline(never)]
pub(crate) fn are_damaged(
    table: Table<'_>,
    device: Device,
    own: Option<(usize, &Holding)>,
) -> bool {
    let extent = || table.extent.load(SeqCst);
    let seen = extent();
    let end = usize::try_from(seen).unwrap_or(usize::MAX);
    // A slot that was taken in between has raised the extent.
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
