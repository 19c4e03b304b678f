//! Sums the slots of a device: what live processes hold, and what they are claiming.
//! Touches: the columns of a table; the kernel through a trait.
//! Law: a total is summed, never stored. Bytes of a possibly live process are never missed.

use super::columns::ABSURD;
use super::kernel::Kernel;
use super::layout::{Device, Head, Node, Table, Trust};
use super::sharing;
use super::slots::counts;
use super::sync::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;

/// The bytes that live processes hold on a device.
#[inline(always)]
pub(crate) fn sum(table: Table<'_>, kernel: &impl Kernel, device: Device) -> u64 {
    let trust = Trust::unless(kernel.verification_is_due());
    let reach = table.reach();
    let slots = reach.nodes.iter().zip(reach.used);
    let (mut total, mut all_bits) = (0u64, 0u64);
    for (slot, (node, used)) in slots.enumerate() {
        let head = node.head();
        if head.is_alive(device, trust) || (head.is(device) && counts(table, kernel, slot)) {
            // Read after the owner was found alive. A dead owner's bytes are cleared before another
            // process owns the slot.
            let held = used.load(SeqCst);
            if held == 0 && is_zeroed(table, slot) {
                return u64::MAX;
            }
            total = total.wrapping_add(held);
            all_bits |= held;
        } else if is_hidden(node, head, used) {
            return u64::MAX;
        }
    }
    let imported = sharing::imported(table, device, lives(table, kernel, device, trust));
    if all_bits < ABSURD {
        total.saturating_add(imported)
    } else {
        u64::MAX
    }
}

/// Whether a slot with zero used bytes has bytes by kind. Its owner adds to the kinds last and
/// subtracts from them first. So the slot was overwritten, and its owner will find that out. Read
/// twice, because both words may have changed in between.
#[cold]
fn is_zeroed(table: Table<'_>, slot: usize) -> bool {
    let (Some(used), Some(kinds)) = (table.used.get(slot), table.kinds.get(slot)) else {
        return true;
    };
    let says_more = || kinds.iter().any(|held| held.load(SeqCst) != 0) && used.load(SeqCst) == 0;
    (0..4).all(|_| says_more())
}

/// Whether a slot whose head says free has used bytes. A dead owner's bytes are cleared before its
/// slot is free, so the head was overwritten.
#[inline(always)]
fn is_hidden(node: &Node, head: Head, used: &AtomicU64) -> bool {
    !head.may_be_another_devices() && used.load(SeqCst) != 0 && is_still_free(node, head)
}

/// Whether the slot has not been taken in between: its head counts how often it was taken.
#[cold]
fn is_still_free(node: &Node, head: Head) -> bool {
    node.head() == head
}

/// Whether the owner of a slot with this head counts on a device.
pub(crate) fn lives(
    table: Table<'_>,
    kernel: &impl Kernel,
    device: Device,
    trust: Trust,
) -> impl FnMut(usize, Head) -> bool {
    move |slot, head| {
        head.is_alive(device, trust) || (head.is(device) && counts(table, kernel, slot))
    }
}

/// Sums the slots of a device at this moment.
pub(super) fn tally(
    table: Table<'_>,
    kernel: &impl Kernel,
    own: usize,
    device: Device,
    verify: bool,
) -> Total {
    let reach = table.reach();
    let slots = reach.nodes.iter().zip(reach.pending).zip(reach.used);
    let trust = Trust::unless(verify);
    let (mut total, mut all_bits) = (Total::default(), 0u64);
    for (slot, ((node, pending), used)) in slots.enumerate() {
        let head = node.head();
        if head.is_alive(device, trust)
            || (head.is(device) && (slot == own || counts(table, kernel, slot)))
        {
            // Pending before used: a claim that is granted in between is counted twice, never
            // missed.
            let asked = pending.load(SeqCst);
            let held = used.load(SeqCst);
            if held == 0 && is_zeroed(table, slot) {
                all_bits = u64::MAX;
            }
            total.pending = total.pending.wrapping_add(asked);
            total.used = total.used.wrapping_add(held);
            total.senior |= slot < own && asked > 0;
            all_bits |= asked | held;
        } else if is_hidden(node, head, used) {
            all_bits = u64::MAX;
        }
    }
    let mut lives = lives(table, kernel, device, trust);
    let counts = |slot, head| slot == own || lives(slot, head);
    let imported = sharing::imported(table, device, counts);
    total.used = total.used.saturating_add(imported);
    if all_bits >= ABSURD {
        total.used = u64::MAX;
    }
    total
}

/// The sum of a device's slots.
#[derive(Clone, Copy, Default)]
pub(super) struct Total {
    pub(super) used: u64,
    pub(super) pending: u64,
    /// A slot before ours has a pending claim, which goes first.
    pub(super) senior: bool,
}

impl Total {
    pub(super) const fn all(self) -> u64 {
        self.used.saturating_add(self.pending)
    }
}
