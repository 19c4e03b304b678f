//! The claim protocol: processes claim memory against a limit, and may be killed at any step.
//! Touches: the columns of a table; the kernel through a trait, so that loom can be the kernel.
//! Law: a slot has one writer process. A total is summed, never stored. The kernel decides which
//! process is dead. Two claims that do not fit together are never both granted.

use super::holding::Holding;
use super::layout::{Device, Head, KINDS, Kind, Node, OWNER_DIED, Table, Trust};
use super::sharing;
use super::sync::{AtomicU16, AtomicU32, AtomicU64, published};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// An observer of the protocol's steps.
pub(crate) trait Steps {
    /// A place where a test may kill the process.
    fn step(&self, step: Step);
}

/// The protocol's queries to the kernel.
pub(crate) trait Kernel: Steps {
    /// The right to write to a slot without an owner. Ends when it is dropped, or its holder dies.
    type Seat<'s>
    where
        Self: 's;

    /// Whether the slot's owner is alive, by a lock that the kernel holds for it. True when the
    /// kernel cannot be queried, because a possibly live owner must be counted.
    fn owner_lives(&self, slot: usize) -> bool;

    /// Tries to get the right to write to a slot without an owner; never waits.
    fn seat(&self, slot: usize) -> Option<Self::Seat<'_>>;

    /// Makes this process the owner of a slot whose seat it holds, until it dies.
    fn own(&self, seat: &Self::Seat<'_>, slot: usize) -> bool;

    /// Whether to query the kernel about every slot now, regardless of hints.
    fn verification_is_due(&self) -> bool;

    /// Lets other threads run, for longer with each round.
    fn pause(&self, round: u32);

    /// How often a claim sums again while other claims are undecided.
    const ROUNDS: u32;
}

/// The points of the protocol at which a kill makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The seat is held.
    Seated = 1,
    /// The used bytes of the dead owner are cleared, by kind and in all.
    UsedWiped,
    /// Its pending claims are cleared.
    AmountsWiped,
    /// Its head is cleared: the slot is free.
    HeadWiped,
    /// The kernel knows the slot as ours; its head is still free.
    Owned,
    /// The slot's head says that it is taken.
    Taken,
    /// The robust list refers to the slot as pending; the slot names no thread yet.
    HintPending,
    /// The slot names our thread.
    HintNamed,
    /// The slot is in the robust list.
    HintLinked,
    /// The claim is published.
    Published,
    /// The claim is granted.
    Granted,
    /// The granted claim has a kind.
    Sorted,
    /// The granted claim is no longer pending.
    Settled,
    /// The claim is withdrawn.
    Withdrawn,
    /// Released bytes are no longer used.
    Released,
}

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

/// The amount of a claim or release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
}

/// The largest claim: no device has a pebibyte, and no sum of claims wraps.
pub(crate) const MOST: u64 = 1 << 50;

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

/// More than any slot holds, and small enough that a sum over all slots does not wrap. If a
/// neighbour writes a larger value, the slice is full.
pub(crate) const ABSURD: u64 = 1 << 54;

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
        let seen = tally(table, kernel, own, device, verify);
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

/// The result of a claim on the fast path, for a process alone in its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    Granted,
    /// The bytes are taken, but another process has appeared: the sum decides.
    Contested,
    /// Nothing is taken: it does not fit, or the process was not alone.
    NotGranted,
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
    let fits = tally(table, kernel, own, device, false).all() <= limit;
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

/// Makes this process the owner of a slot for a device. Returns `None` if every slot has a live
/// owner.
///
/// The seat is taken first: its holder may write to a slot without an owner. A dead owner's bytes
/// are cleared before the slot gets a new owner, so they never count as the new owner's.
pub(crate) fn take<K: Kernel>(table: Table<'_>, kernel: &K, device: Device) -> Option<usize> {
    // First slots whose hint says that their owner died; the new owner clears them. So a slice that
    // runs one process after the other uses one slot. Then free slots. Only when there is none, the
    // kernel is queried about all other slots.
    let left: fn(Head) -> bool = |head| head.taken() && head.word() & OWNER_DIED != 0;
    let free: fn(Head) -> bool = |head| !head.taken();
    let any: fn(Head) -> bool = |_| true;
    let (reach, all) = (table.reach().nodes, table.nodes);
    for (nodes, wanted) in [(reach, left), (all, free), (all, any)] {
        for (slot, node) in nodes.iter().enumerate() {
            if !wanted(node.head()) {
                continue;
            }
            let Some(seat) = kernel.seat(slot) else {
                continue;
            };
            if kernel.owner_lives(slot) {
                continue;
            }
            kernel.step(Step::Seated);
            wipe(table, kernel, slot);
            if !kernel.own(&seat, slot) {
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

/// Records, in this process's own slot, memory that it already holds, whatever the limit. The
/// caller updates the process's own tally.
pub(crate) fn record(table: Table<'_>, slot: usize, amount: Amount) {
    if let Some(columns) = Columns::of(table, slot) {
        columns.used.fetch_add(amount.bytes, SeqCst);
        columns.sort(amount);
    }
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
    let Some(_seat) = kernel.seat(slot) else {
        return;
    };
    // The slot may have a new owner by now.
    if !kernel.owner_lives(slot) {
        kernel.step(Step::Seated);
        wipe(table, kernel, slot);
    }
}

/// Resets a slot without an owner to zero. Requires its seat; can be repeated after a kill.
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

/// Sums the slots of a device at this moment.
fn tally(
    table: Table<'_>,
    kernel: &impl Kernel,
    own: &Own<'_>,
    device: Device,
    verify: bool,
) -> Tally {
    let reach = table.reach();
    let slots = reach.nodes.iter().zip(reach.pending).zip(reach.used);
    let trust = Trust::unless(verify);
    let (mut tally, mut all_bits) = (Tally::default(), 0u64);
    for (slot, ((node, pending), used)) in slots.enumerate() {
        let head = node.head();
        if head.is_alive(device, trust)
            || (head.is(device) && (slot == own.slot || counts(table, kernel, slot)))
        {
            // Pending before used: a claim that is granted in between is counted twice, never
            // missed.
            let asked = pending.load(SeqCst);
            let held = used.load(SeqCst);
            if held == 0 && is_zeroed(table, slot) {
                all_bits = u64::MAX;
            }
            tally.pending = tally.pending.wrapping_add(asked);
            tally.used = tally.used.wrapping_add(held);
            tally.senior |= slot < own.slot && asked > 0;
            all_bits |= asked | held;
        } else if is_hidden(node, head, used) {
            all_bits = u64::MAX;
        }
    }
    let mut lives = lives(table, kernel, device, trust);
    let counts = |slot, head| slot == own.slot || lives(slot, head);
    let imported = sharing::imported(table, device, counts);
    tally.used = tally.used.saturating_add(imported);
    if all_bits >= ABSURD {
        tally.used = u64::MAX;
    }
    tally
}

/// The sum of a device's slots.
#[derive(Clone, Copy, Default)]
struct Tally {
    used: u64,
    pending: u64,
    /// A slot before ours has a pending claim, which goes first.
    senior: bool,
}

impl Tally {
    const fn all(self) -> u64 {
        self.used.saturating_add(self.pending)
    }
}

/// The amounts of one slot, for its owner or for the holder of its seat.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    used: &'a AtomicU64,
    pending: &'a AtomicU64,
    kinds: &'a [AtomicU64; KINDS],
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
    fn sort(&self, amount: Amount) {
        if amount.kind.written()
            && let Some(held) = self.kinds.get(amount.kind as usize)
        {
            held.fetch_add(amount.bytes, SeqCst);
        }
    }

    fn ask(&self, kernel: &impl Kernel, bytes: u64) {
        self.pending.fetch_add(bytes, SeqCst);
        published();
        kernel.step(Step::Published);
    }

    fn withdraw(&self, kernel: &impl Kernel, bytes: u64) {
        self.pending.fetch_sub(bytes, SeqCst);
        kernel.step(Step::Withdrawn);
    }

    fn grant(&self, kernel: &impl Kernel, holding: &Holding, amount: Amount) {
        self.used.fetch_add(amount.bytes, SeqCst);
        holding.add(amount.bytes);
        kernel.step(Step::Granted);
        self.sort(amount);
        kernel.step(Step::Sorted);
        self.pending.fetch_sub(amount.bytes, SeqCst);
        kernel.step(Step::Settled);
    }
}

/// Another thread was faster.
#[cold]
#[inline(never)]
fn take_again(held: &AtomicU64, bytes: u64) {
    take_from(held, bytes);
}

#[inline]
fn take_from(held: &AtomicU64, bytes: u64) {
    let mut found = held.load(Relaxed);
    while let Err(changed) =
        held.compare_exchange_weak(found, found.saturating_sub(bytes), SeqCst, Relaxed)
    {
        found = changed;
    }
}
