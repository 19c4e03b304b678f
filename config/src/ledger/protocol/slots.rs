//! Takes slots for processes, and clears the slots of dead ones.
//! Touches: the columns of a table; the kernel through a trait.
//! Law: the kernel decides which process is dead. A dead owner's bytes are cleared before its slot
//! gets a new owner.

use super::columns::Columns;
use super::kernel::{Kernel, Step};
use super::layout::{Device, Head, OWNER_DIED, Table};
use super::sharing;
use core::sync::atomic::Ordering::SeqCst;

/// Makes this process the owner of a slot for a device. Returns `None` if every slot has a live
/// owner.
///
/// The slot is locked first: the holder of its lock may write to a slot without an owner. A dead
/// owner's bytes are cleared before the slot gets a new owner, so they never count as the new
/// owner's.
pub(crate) fn take<K: Kernel>(table: Table<'_>, kernel: &K, device: Device) -> Option<usize> {
    // Slots whose hint says that their owner died come first; the new owner clears them. So a slice
    // that runs one process after the other uses one slot. Free slots come next. Only if there is
    // none is the kernel queried about all other slots.
    let left: fn(Head) -> bool = |head| head.taken() && head.word() & OWNER_DIED != 0;
    let free: fn(Head) -> bool = |head| !head.taken();
    let any: fn(Head) -> bool = |_| true;
    let (reach, all) = (table.reach().nodes, table.nodes);
    for (nodes, wanted) in [(reach, left), (all, free), (all, any)] {
        for (slot, node) in nodes.iter().enumerate() {
            if !wanted(node.head()) {
                continue;
            }
            let Some(lock) = kernel.lock_slot(slot) else {
                continue;
            };
            if kernel.owner_lives(slot) {
                continue;
            }
            kernel.step(Step::SlotLocked);
            wipe(table, kernel, slot);
            if !kernel.own(&lock, slot) {
                return None;
            }
            kernel.step(Step::Owned);
            let end = u32::try_from(slot.saturating_add(1)).unwrap_or(u32::MAX);
            table.extent.fetch_max(end, SeqCst);
            node.set_head(node.head().take(device));
            kernel.step(Step::Taken);
            return Some(slot);
        }
    }
    None
}

/// Gives up a slot that was just taken and holds nothing.
pub(crate) fn give_up(table: Table<'_>, slot: usize) {
    if let Some(node) = table.nodes.get(slot) {
        node.set_head(node.head().freed());
    }
}

/// Queries the kernel whether a slot's owner is alive; a dead owner's bytes are cleared.
#[cold]
pub(crate) fn counts<K: Kernel>(table: Table<'_>, kernel: &K, slot: usize) -> bool {
    let lives = kernel.owner_lives(slot);
    if !lives {
        reap(table, kernel, slot);
    }
    lives
}

/// Clears a dead owner's bytes, unless another process is doing so.
fn reap<K: Kernel>(table: Table<'_>, kernel: &K, slot: usize) {
    let Some(_lock) = kernel.lock_slot(slot) else {
        return;
    };
    // The slot may have a new owner by now.
    if !kernel.owner_lives(slot) {
        kernel.step(Step::SlotLocked);
        wipe(table, kernel, slot);
    }
}

/// Resets a slot without an owner to zero. Requires its lock; can be repeated after a kill.
fn wipe<K: Kernel>(table: Table<'_>, kernel: &K, slot: usize) {
    let (Some(columns), Some(node)) = (Columns::of(table, slot), table.nodes.get(slot)) else {
        return;
    };
    // The importers start to pay for the memory that it exported before it stops paying itself.
    sharing::wipe(table, slot);
    columns.kinds.iter().for_each(|held| held.store(0, SeqCst));
    columns.used.store(0, SeqCst);
    kernel.step(Step::UsedWiped);
    columns.pending.store(0, SeqCst);
    kernel.step(Step::AmountsWiped);
    node.set_head(node.head().freed());
    kernel.step(Step::HeadWiped);
}
