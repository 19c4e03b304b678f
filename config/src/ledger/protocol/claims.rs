//! The claim protocol: processes claim memory against a limit, and may be killed at any step.
//! Touches: the columns of a table; the kernel through a trait, so that loom can be the kernel.
//! Law: a slot has one writer process. A total is summed, never stored. The kernel decides which
//! process is dead. Two claims that do not fit together are never both granted.

use super::columns::{Alone, Amount, Columns, take_again, take_from};
use super::holding::Holding;
use super::kernel::{Kernel, Step, Steps};
use super::layout::{Device, Table};
use super::sync::AtomicU16;
use super::totals::{sum, tally};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted,
    /// `used`: the bytes of the device's slots when the claim did not fit.
    Refused {
        used: u64,
    },
}

/// The slot of this process, and the gate of its threads.
pub(crate) struct Own<'a> {
    pub(crate) slot: usize,
    /// 1 while a thread of this process insists on a claim that other claims block.
    pub(crate) gate: &'a AtomicU16,
    /// The bytes that the slot must hold.
    pub(crate) holding: &'a Holding,
    /// Whether every owner is verified from the start: a new process queries the kernel once about
    /// all of them.
    pub(crate) verify: bool,
}

/// The largest claim: no device has a pebibyte, and no sum of claims wraps.
pub(crate) const MOST: u64 = 1 << 50;

/// Claims `bytes` of the memory left under `limit`, or nothing.
///
/// A claim is first published as pending, then all slots are summed. So two claimers cannot both
/// miss the other's claim. If they see each other and do not fit together, the claimer with the
/// lower slot keeps its claim. The other withdraws until that claim is decided. One of the two is
/// granted.
pub(crate) fn claim<K: Kernel>(
    table: Table<'_>,
    kernel: &K,
    own: &Own<'_>,
    device: Device,
    amount: Amount,
    limit: u64,
) -> Outcome {
    let Some(slot) = Columns::of(table, own.slot) else {
        return Outcome::Refused { used: 0 };
    };
    let bytes = amount.bytes;
    if bytes > MOST {
        let used = sum(table, kernel, device);
        return Outcome::Refused { used };
    }
    if own.slot == 0 {
        match slot.claim_alone(table.extent, kernel, own.holding, amount, limit) {
            Alone::Granted => return Outcome::Granted,
            Alone::NotGranted => {}
            Alone::Contested => {
                if contested(table, kernel, own, device, amount, limit) {
                    return Outcome::Granted;
                }
            }
        }
    }
    let (mut leading, mut verify, mut round) = (false, own.verify, 0);
    slot.ask(kernel, bytes);
    let mut asking = true;
    let outcome = loop {
        let seen = tally(table, kernel, own.slot, device, verify);
        let asked = if asking { 0 } else { bytes };
        if seen.all().saturating_add(asked) <= limit {
            if asking {
                slot.grant(kernel, own.holding, amount);
                break Outcome::Granted;
            }
            slot.ask(kernel, bytes);
            asking = true;
            continue;
        }
        let refused = seen.used.saturating_add(bytes) > limit;
        if refused && !verify {
            // A hint alone never refuses a claim: the kernel is first queried about every slot.
            verify = true;
            continue;
        }
        if refused || round >= K::ROUNDS {
            if asking {
                slot.withdraw(kernel, bytes);
            }
            break Outcome::Refused { used: seen.used };
        }
        // It fits, unless claims that are pending now are granted.
        if !leading {
            leading = own.gate.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
        }
        let others = seen.pending.saturating_sub(bytes) > 0;
        if asking && others && (seen.senior || !leading) {
            slot.withdraw(kernel, bytes);
            asking = false;
        }
        kernel.pause(round);
        round = round.saturating_add(1);
        verify = round & 63 == 0;
    };
    if leading {
        own.gate.store(0, SeqCst);
    }
    outcome
}

/// Decides a claim that was taken while another process appeared: it is granted, or taken back.
#[cold]
pub(crate) fn contested(
    table: Table<'_>,
    kernel: &impl Kernel,
    own: &Own<'_>,
    device: Device,
    amount: Amount,
    limit: u64,
) -> bool {
    let Some(slot) = Columns::of(table, own.slot) else {
        return false;
    };
    let fits = tally(table, kernel, own.slot, device, false).all() <= limit;
    if fits {
        own.holding.add(amount.bytes);
        slot.sort(amount);
        kernel.step(Step::Sorted);
    } else {
        take_from(slot.used, amount.bytes);
        kernel.step(Step::Withdrawn);
    }
    fits
}

/// Releases granted bytes; a larger amount releases all of them.
#[inline]
pub(crate) fn release(
    table: Table<'_>,
    kernel: &impl Steps,
    slot: usize,
    holding: &Holding,
    amount: Amount,
) {
    let Some(used) = table.used.get(slot) else {
        return;
    };
    // The kinds of a slot never exceed its sum: see `is_zeroed`.
    if amount.kind.written()
        && let Some(kinds) = table.kinds.get(slot)
        && let Some(held) = kinds.get(amount.kind as usize)
    {
        take_from(held, amount.bytes);
    }
    let found = used.load(Relaxed);
    let bytes = amount.bytes.min(found);
    holding.take(bytes);
    let rest = found.wrapping_sub(bytes);
    if used.compare_exchange(found, rest, SeqCst, Relaxed).is_err() {
        take_again(used, bytes);
    }
    kernel.step(Step::Released);
}

/// Records, in this process's own slot, memory that it already holds, whatever the limit. The
/// caller updates the process's own tally.
#[inline]
pub(crate) fn record(table: Table<'_>, slot: usize, amount: Amount) {
    if let Some(columns) = Columns::of(table, slot) {
        columns.used.fetch_add(amount.bytes, SeqCst);
        columns.sort(amount);
    }
}
