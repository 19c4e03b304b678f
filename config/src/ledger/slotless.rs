//! Handles a process without a slot: its ledger cannot be used, or every slot is taken or locked.
//! Touches: this process's own tally.
//! Law: nothing is granted to such a process. It counts the memory that the driver has already
//! given it by itself, can always free it, and moves the count into its slot when it gets one.

use super::kernel::locks::CrashPoints;
use super::kernel::map;
use super::protocol::claims;
use super::protocol::columns::Amount;
use super::protocol::holding::Holding;
use super::protocol::layout::{Device, KINDS, Kind};
use super::protocol::private::{Mine, Tally};
use super::{Claim, Ledger, NoSlot};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The part of a process's tally that was moved into its slot before its threads knew the slot.
pub(super) type Moved = [u64; KINDS];

/// Handles a claim of a process without a slot.
#[cold]
pub(super) fn claim(
    ledger: &Ledger,
    device: Device,
    bytes: Bytes,
    kind: Kind,
    limit: Bytes,
    why: NoSlot,
) -> Claim {
    ledger.private.slotless.fetch_or(bit(device), Relaxed);
    if limit != Bytes::MAX {
        return Claim::NoSlot(why);
    }
    let tally = map::tally_made(&ledger.private.tally);
    if !tally.is_some_and(|tally| tally.add(device, bytes.get(), kind)) {
        return Claim::NoSlot(why);
    }
    // Another thread may have taken the slot and moved the older count. A process with a slot in an
    // overwritten ledger continues to count there.
    if let Some(slot) = ledger.private.mine(device).and_then(Mine::slot) {
        drain(ledger, device, slot);
    }
    Claim::Private(why)
}

/// Releases memory that only this process has counted.
#[cold]
pub(super) fn release(ledger: &Ledger, device: Device, bytes: Bytes, kind: Kind) {
    let Some(tally) = map::tally_at(&ledger.private.tally) else {
        return;
    };
    let bytes = tally.take(device, bytes.get(), kind);
    // The rest is in the slot that another thread has taken meanwhile.
    if bytes != 0
        && let Some(slot) = ledger.private.mine(device).and_then(Mine::slot)
    {
        give_back(ledger, device, slot, bytes, kind);
    }
}

/// Looks for a slot again, after a refusal for lack of one.
#[cold]
pub(super) fn look_again(ledger: &Ledger, device: Device) -> bool {
    if ledger.private.slotless.load(Relaxed) & bit(device) == 0 {
        return true;
    }
    let Some(mine) = ledger.private.mine(device) else {
        return false;
    };
    if ledger.is_damaged() {
        return false;
    }
    let mut session = ledger.session();
    session.insist();
    mine.slot().is_some() || ledger.enter(&session, mine, device).is_ok()
}

/// Moves the memory that the process already holds into a new slot, which no other thread of this
/// process knows yet.
pub(super) fn enter(ledger: &Ledger, device: Device, slot: usize) -> Moved {
    let mut moved = [0; KINDS];
    if let Some(held) = held(ledger, device) {
        for ((kind, word), to) in Kind::ALL.into_iter().zip(held).zip(&mut moved) {
            *to = word.load(SeqCst);
            claims::record(ledger.table, slot, Amount { bytes: *to, kind });
        }
    }
    moved
}

/// Completes the move once all threads know the slot: moved memory leaves the tally, and memory
/// freed in the meantime leaves the slot.
pub(super) fn entered(ledger: &Ledger, device: Device, slot: usize, moved: Moved) {
    ledger.private.slotless.fetch_and(!bit(device), Relaxed);
    known(ledger, device, moved.iter().sum());
    let Some(tally) = map::tally_at(&ledger.private.tally) else {
        return;
    };
    for (kind, bytes) in Kind::ALL.into_iter().zip(moved) {
        let bytes = tally.take(device, bytes, kind);
        give_back(ledger, device, slot, bytes, kind);
    }
    drain(ledger, device, slot);
}

/// Gives up the slot, which holds nothing, because another thread was faster.
pub(super) fn leave(ledger: &Ledger, slot: usize, moved: Moved) {
    // The slot was never known to hold anything.
    let holding = Holding::nothing();
    for (kind, bytes) in Kind::ALL.into_iter().zip(moved) {
        let amount = Amount { bytes, kind };
        claims::release(ledger.table, &CrashPoints, slot, &holding, amount);
    }
}

/// Moves the rest of the tally.
fn drain(ledger: &Ledger, device: Device, slot: usize) {
    if let Some(held) = held(ledger, device) {
        for (kind, word) in Kind::ALL.into_iter().zip(held) {
            let bytes = word.swap(0, SeqCst);
            claims::record(ledger.table, slot, Amount { bytes, kind });
            known(ledger, device, bytes);
        }
    }
}

/// Records that the slot has grown by this much.
fn known(ledger: &Ledger, device: Device, bytes: u64) {
    if let Some(mine) = ledger.private.mine(device) {
        mine.holding.add(bytes);
    }
}

fn give_back(ledger: &Ledger, device: Device, slot: usize, bytes: u64, kind: Kind) {
    if let Some(mine) = ledger.private.mine(device) {
        let amount = Amount { bytes, kind };
        claims::release(ledger.table, &CrashPoints, slot, &mine.holding, amount);
    }
}

fn held(
    ledger: &Ledger,
    device: Device,
) -> Option<&'static [super::protocol::sync::AtomicU64; KINDS]> {
    let tally: &'static Tally = map::tally_at(&ledger.private.tally)?;
    tally.of(device)
}

fn bit(device: Device) -> u64 {
    1u64.checked_shl(u32::from(device.number())).unwrap_or(0)
}
