//! The claim protocol: processes claim memory against a limit, and may be killed at any step.
//! Touches: the columns of a table; the kernel through a trait, so that loom can be the kernel.
//! Law: a slot has one writer process; a total is summed, never stored; the kernel says who is
//! dead; two claims that do not fit together are never both granted.

use super::holding::Holding;
use super::layout::{Device, Head, KINDS, Kind, Node, OWNER_DIED, Table, Trust};
use super::sharing;
use super::sync::{AtomicU16, AtomicU32, AtomicU64, published};
use crate::units::Bytes;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Whoever is told of the steps of the protocol.
pub(super) trait Steps {
    /// A place where a test may kill the process.
    fn step(&self, step: Step);
}

/// What the protocol asks of the kernel.
pub(super) trait Kernel: Steps {
    /// The right to write to a slot that nobody owns. Ends when it is dropped, or its holder dies.
    type Seat<'s>
    where
        Self: 's;

    /// Whether the slot's owner is alive, by a lock that the kernel holds for it. True when the
    /// kernel cannot be asked: what may be alive is counted.
    fn owner_lives(&self, slot: usize) -> bool;

    /// Asks for the right to write to a slot that nobody owns; never waits.
    fn seat(&self, slot: usize) -> Option<Self::Seat<'_>>;

    /// Makes this process the owner of the slot that it has the seat of, until it dies.
    fn own(&self, seat: &Self::Seat<'_>, slot: usize) -> bool;

    /// Whether it is time to ask the kernel about every slot, hint or no hint.
    fn verification_is_due(&self) -> bool;

    /// Lets the others go on, the longer the more often it was called.
    fn pause(&self, round: u32);

    /// How often a claim looks again while the others are undecided.
    const ROUNDS: u32;
}

/// The places in the protocol between which a kill makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The seat is held.
    Seated = 1,
    /// The used bytes of the dead are gone, by kind and in all.
    UsedWiped,
    /// Their pending claims are gone.
    AmountsWiped,
    /// Their head is gone: the slot is free.
    HeadWiped,
    /// The slot is ours to the kernel, and says nothing yet.
    Owned,
    /// The slot is ours to everybody.
    Taken,
    /// The robust list knows of the slot, the slot of nothing.
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

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    /// What the device's slots held when it did not fit.
    Refused {
        used: u64,
    },
}

/// The slot of this process, and the gate of its threads.
pub(super) struct Own<'a> {
    pub(super) slot: usize,
    /// 1 while a thread of this process insists on a claim that others stand in the way of.
    pub(super) gate: &'a AtomicU16,
    /// What the slot must say.
    pub(super) holding: &'a Holding,
    /// Whether every owner is verified from the start: a process that has just come asks the
    /// kernel once about everybody.
    pub(super) verify: bool,
}

/// What is claimed or released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) bytes: u64,
    pub(super) kind: Kind,
}

/// The most that one claim can ask for: no device has a pebibyte, and no sum of claims wraps.
pub(super) const MOST: u64 = 1 << 50;

/// The bytes that the living hold on a device.
#[inline(always)]
pub(super) fn sum(table: Table<'_>, kernel: &impl Kernel, device: Device) -> u64 {
    let trust = Trust::unless(kernel.verification_is_due());
    let reach = table.reach();
    let slots = reach.nodes.iter().zip(reach.used);
    let (mut total, mut all_bits) = (0u64, 0u64);
    for (slot, (node, used)) in slots.enumerate() {
        let head = node.head();
        if head.is_alive(device, trust) || (head.is(device) && counts(table, kernel, slot)) {
            // Read after the owner was found alive: what a dead owner left here is gone by the
            // time that somebody else owns the slot.
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

/// Whether a slot that says that nothing is used says by its kinds that something is. Its owner adds
/// to the kinds last and takes from them first; so the slot was overwritten, and its owner will find
/// that out. Asked again, because both words may have changed in between.
#[cold]
fn is_zeroed(table: Table<'_>, slot: usize) -> bool {
    let (Some(used), Some(kinds)) = (table.used.get(slot), table.kinds.get(slot)) else {
        return true;
    };
    let says_more = || kinds.iter().any(|held| held.load(SeqCst) != 0) && used.load(SeqCst) == 0;
    (0..4).all(|_| says_more())
}

/// Whether a slot that says that it is free holds something. What a dead owner left is wiped before its
/// slot is free; so its head was overwritten.
#[inline(always)]
fn is_hidden(node: &Node, head: Head, used: &AtomicU64) -> bool {
    !head.may_be_another_devices() && used.load(SeqCst) != 0 && is_still_free(node, head)
}

/// Whether nobody has taken the slot in between: its head says how often it was taken.
#[cold]
fn is_still_free(node: &Node, head: Head) -> bool {
    node.head() == head
}

/// Whether the owner of a slot with this head is to be counted on a device.
pub(super) fn lives(
    table: Table<'_>,
    kernel: &impl Kernel,
    device: Device,
    trust: Trust,
) -> impl FnMut(usize, Head) -> bool {
    move |slot, head| {
        head.is_alive(device, trust) || (head.is(device) && counts(table, kernel, slot))
    }
}

/// More than any slot holds, and few enough for a sum over all slots not to wrap. With garbage
/// of a neighbour that is above it the slice is full.
pub(super) const ABSURD: u64 = 1 << 54;

/// Takes `bytes` of what is left under `limit`, or nothing.
///
/// A claim is published as pending, then everybody's is summed. Two claimers cannot both miss the
/// other's claim. If they see each other and do not fit together, the one with the lower slot
/// goes on asking and the other steps back until that one is decided: one of the two is granted.
pub(super) fn claim<K: Kernel>(
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
            // Nobody is refused on a hint: the kernel is asked about every slot first.
            verify = true;
            continue;
        }
        if refused || round >= K::ROUNDS {
            if asking {
                slot.withdraw(kernel, bytes);
            }
            break Outcome::Refused { used: seen.used };
        }
        // It fits, unless others are granted what they ask for at this moment.
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

/// What becomes of a claim of a process that has its slice for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    Granted,
    /// It is taken, and there is somebody: the sum decides.
    Contested,
    /// Nothing is taken: it does not fit, or there was somebody before.
    NotGranted,
}

/// Decides what was taken while somebody came: it is granted, or given back.
#[cold]
pub(super) fn contested(
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

/// Gives back what was granted; more than that gives back all.
#[inline]
pub(super) fn release(
    table: Table<'_>,
    kernel: &impl Steps,
    slot: usize,
    holding: &Holding,
    amount: Amount,
) {
    let Some(used) = table.used.get(slot) else {
        return;
    };
    // A slot never says more by kind than in all: see `is_zeroed`.
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

/// Makes this process the owner of a slot for a device. None: every slot has a living owner.
///
/// The seat is taken first: whoever has it may write to a slot without an owner. What a dead
/// owner left is wiped before the slot gets a new one, so nobody counts it as the new one's.
pub(super) fn take<K: Kernel>(table: Table<'_>, kernel: &K, device: Device) -> Option<usize> {
    // What a dead process has left, by its hint, is cleared away by who takes it; a slice of one
    // process after the other stays one of one slot. Then free slots. Only when there is none, the
    // kernel is asked about all the others.
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

/// Records in this process's own slot what it holds already, whatever the limit. The caller has it
/// known to the process.
pub(super) fn record(table: Table<'_>, slot: usize, amount: Amount) {
    if let Some(columns) = Columns::of(table, slot) {
        columns.used.fetch_add(amount.bytes, SeqCst);
        columns.sort(amount);
    }
}

/// Gives up a slot that was taken a moment ago and holds nothing.
pub(super) fn give_up(table: Table<'_>, slot: usize) {
    if let Some(node) = table.nodes.get(slot) {
        node.set_head(node.head().freed());
    }
}

/// Asks the kernel whether a slot's owner is to be counted; what a dead one left is cleared away.
#[cold]
pub(super) fn counts<K: Kernel>(table: Table<'_>, kernel: &K, slot: usize) -> bool {
    let lives = kernel.owner_lives(slot);
    if !lives {
        reap(table, kernel, slot);
    }
    lives
}

/// Clears what a dead owner left, unless somebody else is at it.
fn reap<K: Kernel>(table: Table<'_>, kernel: &K, slot: usize) {
    let Some(_seat) = kernel.seat(slot) else {
        return;
    };
    // It may have a new owner by now.
    if !kernel.owner_lives(slot) {
        kernel.step(Step::Seated);
        wipe(table, kernel, slot);
    }
}

/// Brings a slot without an owner back to zero. Needs its seat; may be killed and done again.
fn wipe<K: Kernel>(table: Table<'_>, kernel: &K, slot: usize) {
    let (Some(columns), Some(node)) = (Columns::of(table, slot), table.nodes.get(slot)) else {
        return;
    };
    // Who has imported what it had exported pays, before it pays no more itself.
    sharing::wipe(table, slot);
    columns.kinds.iter().for_each(|held| held.store(0, SeqCst));
    columns.used.store(0, SeqCst);
    kernel.step(Step::UsedWiped);
    columns.pending.store(0, SeqCst);
    kernel.step(Step::AmountsWiped);
    node.set_head(node.head().freed());
    kernel.step(Step::HeadWiped);
}

/// What the slots of a device add up to at this moment.
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
            // Pending before used: a claim that is granted in between is seen twice, never missed.
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

/// What the slots of a device add up to.
#[derive(Clone, Copy, Default)]
struct Tally {
    used: u64,
    pending: u64,
    /// A slot before ours has something pending: it goes first.
    senior: bool,
}

impl Tally {
    const fn all(self) -> u64 {
        self.used.saturating_add(self.pending)
    }
}

/// The amounts of one slot, for its owner or for who has its seat.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    used: &'a AtomicU64,
    pending: &'a AtomicU64,
    kinds: &'a [AtomicU64; KINDS],
}

impl<'a> Columns<'a> {
    #[inline]
    pub(super) fn of(table: Table<'a>, slot: usize) -> Option<Columns<'a>> {
        Some(Columns {
            used: table.used.get(slot)?,
            pending: table.pending.get(slot)?,
            kinds: table.kinds.get(slot)?,
        })
    }

    /// Takes what fits where no other process has ever had a slot, without asking first: one
    /// locked instruction instead of three, and so it is for an engine that has its slice for
    /// itself.
    ///
    /// Whoever comes meanwhile has raised the extent before it looks at what is used, and a thread
    /// of this process that asks has published before it looks. So either they see what was taken
    /// here, or it is seen here that there is somebody; then the sum decides.
    #[inline(always)]
    pub(super) fn claim_alone(
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
        // As in `tally`, pending before used: what was granted to another thread in between is seen
        // as the one or as the other.
        let undecided = self.pending.load(SeqCst) != 0;
        if !alone() || undecided || self.used.load(SeqCst) > limit {
            return Alone::Contested;
        }
        holding.add(amount.bytes);
        self.sort(amount);
        kernel.step(Step::Sorted);
        Alone::Granted
    }

    /// What is held where no other process has ever had a slot. None: one has, or the slot does not
    /// say what this process has written.
    #[inline(always)]
    pub(super) fn sum_alone(&self, extent: &AtomicU32, holding: &Holding) -> Option<Bytes> {
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
