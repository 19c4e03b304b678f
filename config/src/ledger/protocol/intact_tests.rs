//! Tests that distinguish overwritten slots from those that their owners have written.

#![expect(clippy::indexing_slicing, reason = "a helper of tests may panic")]

use super::holding::{are_damaged, seem_intact};
use super::layout::{Device, Head};
use super::model::{GPU, Process, World};
use super::slots;
use core::sync::atomic::Ordering::SeqCst;

/// Two processes, of which the first holds 6 bytes, in a table with room for more.
fn world() -> World {
    let world = World::with_processes_of(2, 4);
    world.holdings[0].add(6);
    world.table().used[0].store(6, SeqCst);
    world
}

/// Whether the first process finds its ledger intact, by the quick check and by the thorough one.
fn is_intact(world: &World, slot: usize) -> [bool; 2] {
    let (table, own) = (world.table(), Some((slot, &world.holdings[0])));
    [seem_intact(table, GPU, own), !are_damaged(table, GPU, own)]
}

#[test]
fn what_an_owner_has_written_is_intact_and_more_is_too() {
    let world = world();
    assert_eq!(is_intact(&world, 0), [true; 2]);
    assert!(seem_intact(world.table(), GPU, None) && !are_damaged(world.table(), GPU, None));
    // A claim that is under way adds to the slot first.
    world.table().used[0].store(7, SeqCst);
    assert_eq!(is_intact(&world, 0), [true; 2]);
}

#[test]
fn a_slot_that_holds_less_or_is_another_devices_is_damaged() {
    let smaller = world();
    smaller.table().used[0].store(5, SeqCst);
    assert_eq!(is_intact(&smaller, 0), [false; 2]);
    let moved = world();
    moved.table().nodes[0].set_head(Head(0).take(Device(4)));
    assert_eq!(is_intact(&moved, 0), [false; 2]);
    assert_eq!(is_intact(&world(), 9), [false; 2]);
}

#[test]
fn an_extent_that_hides_a_neighbour_is_damage() {
    let world = world();
    let table = world.table();
    table.extent.store(1, SeqCst);
    assert_eq!(is_intact(&world, 0), [false; 2]);
    assert!(!seem_intact(table, GPU, None) && are_damaged(table, GPU, None));
}

#[test]
fn a_new_process_takes_the_slot_of_a_dead_one_then_a_free_one_then_a_dead_ones_without_a_hint() {
    let world = World::with_processes_of(3, 4);
    let table = world.table();
    let take = || slots::take(table, &Process::of(&world), GPU);
    world.die(1);
    world.die(2);
    // The hint of slot 1 is that of a living thread.
    table.nodes[1].set_word(7);
    assert_eq!(
        [take(), take(), take(), take()],
        [Some(2), Some(3), Some(1), None]
    );
}

#[test]
fn a_slot_that_is_given_up_is_free() {
    let world = world();
    let table = world.table();
    slots::give_up(table, 1);
    assert!(!table.nodes[1].head().taken() && table.nodes[0].head().taken());
}
