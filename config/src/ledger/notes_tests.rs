//! Tests of the other records of a ledger: refusals, the size of a context, turns, and memory that is
//! counted only.
//! Touches: files on tmpfs, real processes.

use super::Claim;
use super::processes::{Child, End, LIMIT, TestLedger, UUID, c_path, claim, close};
use super::protocol::layout::SIZE;
use super::snapshot::Snapshot;
use crate::ledger::{Kind, Refusals};
use crate::sys::Fd;
use crate::words::units::Bytes;
use std::vec::Vec;

#[test]
fn refusals_are_remembered_with_the_most_that_was_missing() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    for short_by in [41, 143, 12] {
        ledger.refused(gpu, Bytes::mib(short_by));
    }
    let refusals = Refusals {
        count: 3,
        regret: Bytes::mib(143),
    };
    assert_eq!(place.open().refusals(gpu), refusals);
    let mut bytes = [0; SIZE];
    let path = c_path(&place.path());
    let snapshot = Snapshot::read(&path, &mut bytes).unwrap();
    let seen: Vec<_> = snapshot.refusals().collect();
    assert_eq!(seen, [(UUID, refusals)]);
}

#[test]
fn what_a_context_costs_is_learned_once() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    assert_eq!(ledger.context(gpu), None);
    ledger.learn_context(gpu, Bytes::mib(254));
    ledger.learn_context(gpu, Bytes::mib(300));
    assert_eq!(place.open().context(gpu), Some(Bytes::mib(254)));
}

/// A process that gets the turn and keeps it as long as it lives.
fn holds_the_turn(place: &TestLedger) -> Child {
    let holder = Child::fork(|voice| {
        let turn = place.ledger.turn(place.gpu);
        assert!(turn.is_some(), "nobody else has it");
        voice.say(1);
        super::processes::sleep();
    });
    holder.hear();
    holder
}

/// A program may close all descriptors, and open others, while the driver creates a context.
#[test]
fn a_turn_keeps_no_descriptor_open() {
    let place = TestLedger::new();
    let mut child = Child::fork(|_| {
        let (ledger, gpu) = (&place.ledger, place.gpu);
        let turn = ledger.turn(gpu).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        assert!(open.all(|path| path != place.path()));
        (3..100).for_each(close);
        let other = std::fs::File::open(place.path()).unwrap();
        let byte = super::notes::turn_byte(ledger.table.nodes.len(), gpu, 0);
        let is_locked = || {
            let number = usize::try_from(std::os::fd::AsRawFd::as_raw_fd(&other)).unwrap();
            let fd = core::mem::ManuallyDrop::new(Fd::numbered(number));
            fd.locked(byte).unwrap()
        };
        assert!(is_locked());
        drop(turn);
        assert!(!is_locked());
        assert!(other.metadata().is_ok(), "another file was closed");
    });
    assert_eq!(child.wait(), End::Exit(0));
}

#[test]
fn a_turn_ends_with_its_holder() {
    let place = TestLedger::new();
    let holder = holds_the_turn(&place);
    let other = place.open();
    assert!(other.turn(place.gpu).is_none(), "two seconds of waiting");
    holder.kill();
    assert!(other.turn(place.gpu).is_some());
    assert!(
        place.ledger.turn(place.gpu).is_some(),
        "and by being dropped"
    );
}

#[test]
fn a_thread_that_is_gone_in_its_turn_makes_nobody_wait() {
    let place = TestLedger::new();
    for _ in 0..3 {
        // As if it had been cancelled in the driver: no destructor runs.
        let ledger = place.open();
        let abandons = || core::mem::forget(ledger.turn(place.gpu).unwrap());
        std::thread::scope(|scope| scope.spawn(abandons).join().unwrap());
    }
    let turn = place.open().turn(place.gpu).map(|_| ());
    assert_eq!(turn, Some(()), "not after two seconds of waiting");
    let _holder = holds_the_turn(&place);
    let other = place.open();
    assert!(other.turn(place.gpu).is_none(), "the living are waited for");
}

#[test]
fn a_turn_lasts_though_its_holder_claims_meanwhile() {
    let place = TestLedger::new();
    let turn = place.ledger.turn(place.gpu).unwrap();
    assert_eq!(place.claim(5), Claim::Granted);
    assert_eq!(place.sum(), 5);
    let other = place.open();
    assert!(other.turn(place.gpu).is_none(), "two seconds of waiting");
    drop(turn);
    assert!(other.turn(place.gpu).is_some());
}

/// Memory whose limit the driver holds is counted, whatever the others hold. Processes that claim see
/// it.
#[test]
fn counted_memory_is_never_refused_and_leaves_less_to_claims() {
    let place = TestLedger::new();
    let second = place.open();
    assert_eq!(place.claim(400), Claim::Granted);
    for ledger in [&place.ledger, &second] {
        for _ in 0..2 {
            let counted = ledger.count(place.gpu, Bytes::new(200), Kind::Vmm);
            assert_eq!(counted, Claim::Granted);
        }
    }
    assert_eq!(place.sum(), 1200);
    let refused = Claim::Refused {
        used: Bytes::new(1200),
    };
    assert_eq!(claim(&second, place.gpu, 1), refused);
    second.release(place.gpu, Bytes::new(400), Kind::Vmm);
    assert_eq!(place.sum(), 800);
    assert_eq!(claim(&second, place.gpu, LIMIT - 800), Claim::Granted);
    let absurd = place.ledger.count(place.gpu, Bytes::MAX, Kind::Vmm);
    assert!(matches!(absurd, Claim::Refused { .. }), "{absurd:?}");
}
