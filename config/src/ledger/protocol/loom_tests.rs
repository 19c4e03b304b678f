//! Loom tests: every interleaving of two claimers, and of three up to a number of preemptions. Any
//! claimer may die at any step.
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p gpuslice-config --release ledger`

use super::claims::{self, Outcome};
use super::columns::Amount;
use super::holding;
use super::kernel::Step;
use super::layout::Kind;
use super::model::{GPU, Killed, Process, World};
use super::{slots, totals};
use core::sync::atomic::Ordering::SeqCst;
use loom::sync::Arc;
use loom::thread;
use std::vec::Vec;

const LIMIT: u64 = 10;

fn amount(bytes: u64) -> Amount {
    let kind = Kind::Linear;
    Amount { bytes, kind }
}

fn claim(world: &World, slot: usize, bytes: u64) -> Outcome {
    let (process, own) = (Process::of(world), world.own(slot));
    claims::claim(world.table(), &process, &own, GPU, amount(bytes), LIMIT)
}

fn release(world: &World, slot: usize, bytes: u64) {
    let (process, own) = (Process::of(world), world.own(slot));
    claims::release(world.table(), &process, slot, own.holding, amount(bytes));
}

/// Whether a process finds that its ledger was overwritten.
fn is_damaged(world: &World, slot: usize) -> bool {
    let own = Some((slot, &world.holdings[slot]));
    holding::are_damaged(world.table(), GPU, own)
}

fn sum(world: &World) -> u64 {
    totals::sum(world.table(), &Process::of(world), GPU)
}

/// Checks that no operation is half done.
fn settled(world: &World) {
    let table = world.table();
    assert!(table.pending.iter().all(|word| word.load(SeqCst) == 0));
    assert!(world.gates.iter().all(|gate| gate.load(SeqCst) == 0));
}

fn explore(preemptions: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.check(run);
}

/// Runs the claims of these processes (slot, bytes) at once, and returns their outcomes.
fn race(claims: &'static [(usize, u64)], slots: usize) -> (Arc<World>, Vec<Outcome>) {
    let world = Arc::new(World::with_processes(slots));
    let others: Vec<_> = claims
        .iter()
        .skip(1)
        .map(|(slot, bytes)| {
            let world = Arc::clone(&world);
            thread::spawn(move || claim(&world, *slot, *bytes))
        })
        .collect();
    let (slot, bytes) = claims[0];
    let mut outcomes = std::vec![claim(&world, slot, bytes)];
    outcomes.extend(others.into_iter().map(|other| other.join().unwrap()));
    settled(&world);
    (world, outcomes)
}

/// Checks that, of claims of one size, as many are granted as fit.
fn expect_granted(claims: &'static [(usize, u64)], slots: usize, expected: usize) {
    let (world, outcomes) = race(claims, slots);
    let is_granted = |outcome: &&Outcome| **outcome == Outcome::Granted;
    let granted = outcomes.iter().filter(is_granted).count();
    let bytes: u64 = claims
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| is_granted(outcome))
        .map(|(claim, _)| claim.1)
        .sum();
    assert_eq!(sum(&world), bytes);
    assert_eq!(granted, expected);
}

#[test]
fn of_two_claims_that_do_not_fit_together_exactly_one_is_granted() {
    explore(None, || {
        expect_granted(&[(0, 6), (1, 6)], 2, 1);
    });
}

#[test]
fn of_two_claims_that_fit_together_both_are_granted() {
    explore(None, || {
        expect_granted(&[(0, 4), (1, 6)], 2, 2);
    });
}

#[test]
fn of_two_threads_of_a_process_exactly_one_is_granted() {
    explore(None, || {
        expect_granted(&[(0, 6), (0, 6)], 1, 1);
    });
}

/// A process that is alone in its slice, and a process that appears at that moment.
fn with_a_newcomer(bytes: [u64; 2], expected: usize) {
    let world = Arc::new(World::with_processes_of(1, 2));
    let newcomer = Arc::clone(&world);
    let newcomer = thread::spawn(move || {
        let process = Process::of(&newcomer);
        let slot = slots::take(newcomer.table(), &process, GPU).unwrap();
        assert_eq!(slot, 1);
        claim(&newcomer, slot, bytes[1])
    });
    let first = claim(&world, 0, bytes[0]);
    let outcomes = [first, newcomer.join().unwrap()];
    settled(&world);
    let granted = |(_, outcome): &(u64, Outcome)| *outcome == Outcome::Granted;
    let granted = bytes.into_iter().zip(outcomes).filter(granted);
    let granted: Vec<u64> = granted.map(|(bytes, _)| bytes).collect();
    assert_eq!(sum(&world), granted.iter().sum::<u64>());
    assert_eq!(granted.len(), expected);
}

#[test]
fn of_one_who_was_alone_and_a_newcomer_as_many_are_granted_as_fit() {
    explore(Some(3), || with_a_newcomer([6, 6], 1));
    explore(Some(3), || with_a_newcomer([4, 6], 2));
}

#[test]
fn a_query_and_a_claim_at_once_grant_no_more_than_fits() {
    explore(None, || {
        let world = Arc::new(World::with_processes(1));
        assert_eq!(claim(&world, 0, 6), Outcome::Granted);
        // The claim does not fit until the other process has released its memory, so it waits.
        let asking = Arc::clone(&world);
        let asker = thread::spawn(move || claim(&asking, 0, 8));
        release(&world, 0, 6);
        let taken = claim(&world, 0, 6);
        let asked = asker.join().unwrap();
        settled(&world);
        let held = [(taken, 6), (asked, 8)];
        let held = held.map(|(outcome, bytes)| match outcome {
            Outcome::Granted => bytes,
            Outcome::Refused { .. } => 0,
        });
        let held: u64 = held.iter().sum();
        assert_eq!(sum(&world), held);
        assert!(held <= LIMIT, "{held}");
    });
}

#[test]
fn of_three_claims_as_many_are_granted_as_fit() {
    explore(Some(2), || {
        expect_granted(&[(0, 6), (1, 6), (2, 6)], 3, 1);
    });
    explore(Some(2), || {
        expect_granted(&[(0, 5), (1, 5), (2, 5)], 3, 2);
    });
}

#[test]
fn two_processes_of_which_one_has_two_threads_are_never_over_the_limit() {
    explore(Some(2), || {
        expect_granted(&[(0, 6), (1, 6), (1, 6)], 2, 1);
    });
}

#[test]
fn what_is_released_meanwhile_can_be_claimed_and_no_more() {
    explore(None, || {
        let world = Arc::new(World::with_processes(2));
        assert_eq!(claim(&world, 0, 10), Outcome::Granted);
        let releaser = Arc::clone(&world);
        let released = thread::spawn(move || release(&releaser, 0, 7));
        let outcome = claim(&world, 1, 6);
        released.join().unwrap();
        let expected = if outcome == Outcome::Granted { 9 } else { 3 };
        assert_eq!(sum(&world), expected);
        settled(&world);
    });
}

/// One of two claimers dies at a step of its claim. The other gets the rest. The dead process's
/// claim and memory are gone at the next read.
#[test]
fn a_claimer_that_dies_at_any_step_is_gone_at_once() {
    for fate in [
        Step::Published,
        Step::Granted,
        Step::Sorted,
        Step::Settled,
        Step::Withdrawn,
    ] {
        explore(None, move || {
            let world = Arc::new(World::with_processes(2));
            let dying = Arc::clone(&world);
            let victim = thread::spawn(move || {
                let process = Process::doomed(&dying, fate);
                let own = dying.own(0);
                let claim = || claims::claim(dying.table(), &process, &own, GPU, amount(6), LIMIT);
                {
                    // The process is killed during the claim, or after it.
                    let _ = std::panic::catch_unwind(core::panic::AssertUnwindSafe(claim));
                    dying.die(0);
                }
            });
            let outcome = claim(&world, 1, 6);
            victim.join().unwrap();
            let held = if outcome == Outcome::Granted { 6 } else { 0 };
            assert_eq!(sum(&world), held);
            assert_eq!(claim(&world, 1, 10 - held), Outcome::Granted);
            assert_eq!(sum(&world), 10);
            settled(&world);
        });
    }
}

/// Two processes read a slot whose owner is dead, and one of them may die while it clears the slot.
#[test]
fn the_dead_are_cleared_away_by_whoever_looks_even_if_that_one_dies_too() {
    let steps = [
        Step::SlotLocked,
        Step::UsedWiped,
        Step::AmountsWiped,
        Step::HeadWiped,
    ];
    for fate in steps {
        explore(None, move || {
            let world = Arc::new(World::with_processes(2));
            assert_eq!(claim(&world, 0, 6), Outcome::Granted);
            assert_eq!(claim(&world, 1, 3), Outcome::Granted);
            world.die(0);
            let reaping = Arc::clone(&world);
            let reaper = thread::spawn(move || {
                let process = Process::doomed(&reaping, fate);
                let look = || totals::sum(reaping.table(), &process, GPU);
                match std::panic::catch_unwind(core::panic::AssertUnwindSafe(look)) {
                    Ok(sum) => assert_eq!(sum, 3),
                    Err(why) => assert!(why.is::<Killed>()),
                }
            });
            assert_eq!(sum(&world), 3);
            reaper.join().unwrap();
            assert_eq!(sum(&world), 3);
        });
    }
}

/// A dead process's slot gets a new owner while another process reads it.
#[test]
fn nobody_counts_the_dead_for_the_new_owner_of_their_slot() {
    explore(None, || {
        let world = Arc::new(World::with_processes(2));
        assert_eq!(claim(&world, 0, 6), Outcome::Granted);
        assert_eq!(claim(&world, 1, 3), Outcome::Granted);
        world.die(0);
        let taking = Arc::clone(&world);
        let taker = thread::spawn(move || {
            let process = Process::of(&taking);
            if let Some(slot) = slots::take(taking.table(), &process, GPU) {
                assert_eq!((slot, claim(&taking, 0, 2)), (0, Outcome::Granted));
                return 2;
            }
            // The other process was clearing the slot.
            0
        });
        let seen = sum(&world);
        assert!(seen == 3 || seen == 5, "{seen}");
        let held = taker.join().unwrap();
        assert_eq!(sum(&world), 3 + held);
    });
}

/// Two processes try to take the only free slot.
#[test]
fn a_slot_gets_one_owner() {
    explore(Some(3), || {
        let world = Arc::new(World::new(1));
        let taking = Arc::clone(&world);
        let take = |world: &World| slots::take(world.table(), &Process::of(world), GPU);
        let other = thread::spawn(move || take(&taking));
        let (mine, others) = (take(&world), other.join().unwrap());
        assert!(mine.is_none() || others.is_none());
        // Both may have blocked each other; then the slot is free for the next attempt.
        let taken = mine.or(others).or_else(|| take(&world));
        assert_eq!(taken, Some(0));
    });
}

#[test]
fn claims_and_releases_of_other_threads_are_not_taken_for_damage() {
    explore(None, || {
        let world = Arc::new(World::with_processes(1));
        assert_eq!(claim(&world, 0, 6), Outcome::Granted);
        let busy = Arc::clone(&world);
        let busy = thread::spawn(move || {
            release(&busy, 0, 6);
            claim(&busy, 0, 4)
        });
        assert!(!is_damaged(&world, 0));
        assert_eq!(busy.join().unwrap(), Outcome::Granted);
        assert!(!is_damaged(&world, 0));
        world.table().used[0].store(3, SeqCst);
        assert!(is_damaged(&world, 0));
    });
}

#[test]
fn two_busy_threads_are_not_taken_for_damage() {
    explore(Some(3), || {
        let world = Arc::new(World::with_processes(2));
        let threads = [3u64, 2].map(|bytes| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                assert_eq!(claim(&world, 0, bytes), Outcome::Granted);
                release(&world, 0, bytes);
            })
        });
        assert!(!is_damaged(&world, 0));
        threads.map(|thread| thread.join().unwrap());
        assert!(!is_damaged(&world, 0));
    });
}

#[test]
fn a_process_that_comes_is_not_taken_for_damage() {
    explore(None, || {
        let world = Arc::new(World::with_processes_of(1, 3));
        let newcomer = Arc::clone(&world);
        let newcomer = thread::spawn(move || {
            slots::take(newcomer.table(), &Process::of(&newcomer), GPU).unwrap()
        });
        assert!(!is_damaged(&world, 0));
        let slot = newcomer.join().unwrap();
        assert!(!is_damaged(&world, 0) && !is_damaged(&world, slot));
    });
}
