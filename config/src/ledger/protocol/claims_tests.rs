//! Random programs on a ledger in plain memory, and claims that exceed the limit by one byte.

#![expect(clippy::arithmetic_side_effects, reason = "small numbers")]

use super::claims::{self, MOST, Outcome};
use super::columns::Amount;
use super::kernel::Step;
use super::layout::{Kind, OWNER_DIED};
use super::model::{GPU, Process, World};
use super::{slots, totals};
use core::panic::AssertUnwindSafe;
use core::sync::atomic::Ordering::SeqCst;
use proptest::prelude::*;

fn amount(bytes: u64) -> Amount {
    let kind = Kind::Vmm;
    Amount { bytes, kind }
}

fn claim(world: &World, slot: usize, bytes: u64, limit: u64) -> Outcome {
    let (process, own) = (Process::of(world), world.own(slot));
    claims::claim(world.table(), &process, &own, GPU, amount(bytes), limit)
}

fn release(world: &World, slot: usize, bytes: u64) {
    let (process, own) = (Process::of(world), world.own(slot));
    claims::release(world.table(), &process, slot, own.holding, amount(bytes));
}

fn sum(world: &World) -> u64 {
    totals::sum(world.table(), &Process::of(world), GPU)
}

#[test]
fn what_is_left_is_granted_and_one_byte_more_is_refused() {
    let world = World::with_processes(2);
    assert_eq!(claim(&world, 0, 6, 10), Outcome::Granted);
    assert_eq!(claim(&world, 1, 5, 10), Outcome::Refused { used: 6 });
    assert_eq!(claim(&world, 1, 4, 10), Outcome::Granted);
    assert_eq!(claim(&world, 1, 1, 10), Outcome::Refused { used: 10 });
}

#[test]
fn releasing_more_than_is_held_gives_back_all_and_no_more() {
    let world = World::with_processes(2);
    assert_eq!(claim(&world, 0, 6, 10), Outcome::Granted);
    assert_eq!(claim(&world, 1, 3, 10), Outcome::Granted);
    release(&world, 0, u64::MAX);
    assert_eq!(sum(&world), 3);
}

#[test]
fn a_request_that_no_machine_can_hold_is_refused_without_wrapping() {
    let world = World::with_processes(1);
    for bytes in [MOST + 1, u64::MAX] {
        assert_eq!(
            claim(&world, 0, bytes, u64::MAX),
            Outcome::Refused { used: 0 }
        );
    }
    assert_eq!(claim(&world, 0, MOST, u64::MAX), Outcome::Granted);
}

#[test]
fn garbage_from_a_neighbour_makes_the_slice_full_and_nothing_else() {
    let world = World::with_processes(3);
    let table = world.table();
    table.used[1].store(u64::MAX, SeqCst);
    table.used[2].store(u64::MAX, SeqCst);
    table.pending[1].store(u64::MAX, SeqCst);
    table.nodes[2].next.store(u64::MAX, SeqCst);
    table.extent.store(u32::MAX, SeqCst);
    let used = u64::MAX;
    assert_eq!(sum(&world), used);
    assert_eq!(claim(&world, 0, 1, 10), Outcome::Refused { used });
}

#[test]
fn a_slot_without_a_lock_does_not_count_once_it_is_looked_at() {
    let world = World::with_processes(2);
    assert_eq!(claim(&world, 0, 6, 10), Outcome::Granted);
    world.die(0);
    // The kernel could not write the hint: the word still names a thread.
    world.table().nodes[0].set_word(7);
    assert_eq!(sum(&world), 6);
    // But no claim is refused because of that slot, and a verifying process does not count it.
    assert_eq!(claim(&world, 1, 10, 10), Outcome::Granted);
    assert_eq!(sum(&world), 10);
}

#[test]
fn a_thread_that_ended_is_no_dead_process() {
    let world = World::with_processes(2);
    assert_eq!(claim(&world, 0, 6, 10), Outcome::Granted);
    world.table().nodes[0].set_word(OWNER_DIED);
    assert_eq!(sum(&world), 6);
}

/// The next action of one of the processes.
#[derive(Clone, Copy, Debug)]
enum Act {
    Claim(u64),
    Release(u64),
    Die,
    DieClaiming(u64, Step),
    Look,
}

fn program() -> impl Strategy<Value = std::vec::Vec<(usize, Act)>> {
    let fate = prop_oneof![
        Just(Step::Published),
        Just(Step::Granted),
        Just(Step::Sorted),
        Just(Step::Withdrawn),
    ];
    let act = prop_oneof![
        (0u64..40).prop_map(Act::Claim),
        (0u64..40).prop_map(Act::Release),
        Just(Act::Die),
        (0u64..40, fate).prop_map(|(bytes, fate)| Act::DieClaiming(bytes, fate)),
        Just(Act::Look),
    ];
    proptest::collection::vec((0usize..4, act), 0..60)
}

proptest! {
    #[test]
    fn the_sum_is_what_the_living_hold_after_any_program(program in program()) {
        const LIMIT: u64 = 100;
        let world = World::with_processes(4);
        let mut held = [0u64; 4];
        for (process, act) in program {
            match act {
                Act::Claim(bytes) => {
                    let before = held.iter().sum::<u64>();
                    let expected = match before + bytes <= LIMIT {
                        true => Outcome::Granted,
                        false => Outcome::Refused { used: before },
                    };
                    prop_assert_eq!(claim(&world, process, bytes, LIMIT), expected);
                    if expected == Outcome::Granted {
                        held[process] += bytes;
                    }
                }
                Act::Release(bytes) => {
                    release(&world, process, bytes);
                    held[process] = held[process].saturating_sub(bytes);
                }
                Act::Die | Act::DieClaiming(..) => {
                    if let Act::DieClaiming(bytes, fate) = act {
                        let doomed = Process::doomed(&world, fate);
                        let (table, own) = (world.table(), world.own(process));
                        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
                            claims::claim(table, &doomed, &own, GPU, amount(bytes), LIMIT)
                        }));
                    }
                    world.die(process);
                    held[process] = 0;
                    prop_assert_eq!(sum(&world), held.iter().sum::<u64>());
                    let taken = slots::take(world.table(), &Process::of(&world), GPU);
                    prop_assert_eq!(taken, Some(process));
                }
                Act::Look => {}
            }
            prop_assert_eq!(sum(&world), held.iter().sum::<u64>());
        }
    }
}
