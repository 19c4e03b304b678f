//! Tests of claims that wait for claims of other processes. The test's kernel decides those claims
//! while the first one pauses.

#![expect(clippy::arithmetic_side_effects, reason = "small numbers")]
#![expect(clippy::indexing_slicing, reason = "a helper of tests may panic")]

use super::claims::{self, Outcome};
use super::columns::{ABSURD, Amount};
use super::kernel::{Kernel, Step, Steps};
use super::layout::{Kind, Table};
use super::model::{GPU, Process, SlotLock, World};
use super::totals;
use core::cell::Cell;
use core::sync::atomic::Ordering::SeqCst;

/// The size of each claim, which is also the limit. A claim that another process has published blocks
/// it.
const BYTES: u64 = 6;
const AMOUNT: Amount = Amount {
    bytes: BYTES,
    kind: Kind::Vmm,
};

/// A process whose claim is decided in its pauses.
struct Waiting<'a, F> {
    process: Process<'a>,
    pauses: Cell<u32>,
    /// Is called in each pause, with its number.
    act: F,
    /// The slot of a process that the kernel knows to be dead, although its hint says that it lives.
    dead: Cell<Option<usize>>,
}

impl<'a, F: Fn(&Cell<Option<usize>>, u32)> Waiting<'a, F> {
    fn of(world: &'a World, act: F) -> Self {
        Waiting {
            process: Process::of(world),
            pauses: Cell::new(0),
            act,
            dead: Cell::new(None),
        }
    }

    fn claim(&self, world: &World, slot: usize) -> Outcome {
        claims::claim(world.table(), self, &world.own(slot), GPU, AMOUNT, BYTES)
    }
}

impl<'a, F: Fn(&Cell<Option<usize>>, u32)> Kernel for Waiting<'a, F> {
    type SlotLock<'s>
        = SlotLock<'a>
    where
        Self: 's;

    fn owner_lives(&self, slot: usize) -> bool {
        self.dead.get() != Some(slot) && self.process.owner_lives(slot)
    }

    fn lock_slot(&self, slot: usize) -> Option<SlotLock<'a>> {
        self.process.lock_slot(slot)
    }

    fn own(&self, lock: &SlotLock<'a>, slot: usize) -> bool {
        self.process.own(lock, slot)
    }

    fn verification_is_due(&self) -> bool {
        false
    }

    fn pause(&self, round: u32) {
        assert_eq!(round, self.pauses.get());
        self.pauses.set(round + 1);
        (self.act)(&self.dead, round);
    }

    const ROUNDS: u32 = 200;
}

impl<F: Fn(&Cell<Option<usize>>, u32)> Steps for Waiting<'_, F> {
    fn step(&self, step: Step) {
        self.process.step(step);
    }
}

fn pending(table: Table<'_>, slot: usize) -> u64 {
    table.pending[slot].load(SeqCst)
}

/// Claims for `slot` beside a claim of `other` that is withdrawn in the fourth pause. Returns what
/// the claimer had published in its pauses.
fn beside(world: &World, slot: usize, other: usize) -> u64 {
    let table = world.table();
    let published = Cell::new(None);
    table.pending[other].store(1, SeqCst);
    let waiting = Waiting::of(world, |_, round| {
        let now = pending(table, slot);
        assert_eq!(published.replace(Some(now)).unwrap_or(now), now);
        if round == 3 {
            table.pending[other].store(0, SeqCst);
        }
    });
    assert_eq!(waiting.claim(world, slot), Outcome::Granted);
    assert_eq!(waiting.pauses.get(), 4);
    assert_eq!(table.used[slot].load(SeqCst), BYTES);
    assert_eq!(pending(table, slot), 0);
    published.get().unwrap_or_default()
}

#[test]
fn the_lower_slot_keeps_its_claim_and_the_higher_one_withdraws() {
    assert_eq!(beside(&World::with_processes(2), 0, 1), BYTES);
    assert_eq!(beside(&World::with_processes(2), 1, 0), 0);
    assert_eq!(beside(&World::with_processes(3), 1, 2), BYTES);
}

#[test]
fn only_one_thread_of_a_process_keeps_a_claim_that_is_blocked() {
    let world = World::with_processes(2);
    world.gates[0].store(1, SeqCst);
    assert_eq!(beside(&world, 0, 1), 0);
    assert_eq!(world.gates[0].load(SeqCst), 1, "it is the other thread's");
    let world = World::with_processes(2);
    beside(&world, 0, 1);
    assert_eq!(world.gates[0].load(SeqCst), 0);
}

#[test]
fn a_claim_that_is_never_decided_keeps_others_waiting_for_so_many_rounds() {
    let world = World::with_processes(2);
    let table = world.table();
    table.pending[1].store(1, SeqCst);
    let waiting = Waiting::of(&world, |_, _| {});
    assert_eq!(waiting.claim(&world, 0), Outcome::Refused { used: 0 });
    assert_eq!(waiting.pauses.get(), Waiting::<fn(&Cell<_>, _)>::ROUNDS);
    assert_eq!((pending(table, 0), world.gates[0].load(SeqCst)), (0, 0));
}

/// A process can die without a sign in the ledger, in the middle of a claim.
#[test]
fn whether_others_live_is_asked_again_in_the_64th_round() {
    let world = World::with_processes(2);
    world.table().pending[1].store(1, SeqCst);
    let waiting = Waiting::of(&world, |dead, round| {
        if round == 2 {
            dead.set(Some(1));
        }
    });
    assert_eq!(waiting.claim(&world, 0), Outcome::Granted);
    assert_eq!(waiting.pauses.get(), 64);
}

#[test]
fn a_claim_that_was_taken_before_another_process_appeared_is_granted_if_it_fits() {
    for (before, fits) in [(0, true), (1, false)] {
        let world = World::with_processes(2);
        let table = world.table();
        table.used[0].store(before + BYTES, SeqCst);
        let process = Process::of(&world);
        let granted = claims::contested(table, &process, &world.own(0), GPU, AMOUNT, BYTES);
        assert_eq!(granted, fits);
        let (left, sorted) = if fits { (BYTES, BYTES) } else { (before, 0) };
        assert_eq!(table.used[0].load(SeqCst), left);
        assert_eq!(table.kinds[0][Kind::Vmm as usize].load(SeqCst), sorted);
        assert_eq!(world.holdings[0].seems_more_than(BYTES - 1), fits);
    }
}

/// A neighbour can write any word, and only makes the slice full by it.
#[test]
fn an_absurd_amount_makes_the_slice_full() {
    let full = Outcome::Refused { used: u64::MAX };
    for (used, pending) in [(ABSURD, 0), (0, ABSURD), (ABSURD, ABSURD)] {
        let world = World::with_processes(2);
        let table = world.table();
        table.used[1].store(used, SeqCst);
        table.pending[1].store(pending, SeqCst);
        let waiting = Waiting::of(&world, |_, _| {});
        assert_eq!(waiting.claim(&world, 0), full, "{used} {pending}");
        let all = totals::sum(table, &Process::of(&world), GPU);
        assert_eq!(all, if used == 0 { 0 } else { u64::MAX });
    }
    // The bytes by kind are those of a slot that holds none.
    let world = World::with_processes(2);
    let table = world.table();
    table.kinds[1][Kind::Vmm as usize].store(1, SeqCst);
    let waiting = Waiting::of(&world, |_, _| {});
    assert_eq!(waiting.claim(&world, 0), full);
    assert_eq!(totals::sum(table, &Process::of(&world), GPU), u64::MAX);
}
