//! Tests with a ledger that is overwritten while in use: all its processes refuse it from then on.
//! Touches: files on tmpfs, which are written to in place.

#![expect(clippy::unwrap_used, reason = "a helper of tests may panic")]

use super::processes::{Child, End, LIMIT, TestLedger, UUID, c_path, claim};
use super::protocol::layout::{SIZE, SLOTS, columns_at};
use super::{Claim, Ledger, LedgerError, NoSlot, Open};
use super::{Device, Kind};
use crate::words::device::{DeviceKind, DeviceUuid};
use crate::words::units::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::vec;
use std::vec::Vec;

const OTHER: DeviceUuid = DeviceUuid {
    kind: DeviceKind::Gpu,
    bytes: *b"another, beside!",
};

fn overwrite(place: &TestLedger, at: usize, bytes: &[u8]) {
    let file = File::options().write(true).open(place.path()).unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
}

/// Records a context, as every process has that holds memory on a device.
fn count(ledger: &Ledger, gpu: Device, bytes: u64) -> Claim {
    ledger.claim(gpu, Bytes::new(bytes), Kind::Context, Bytes::MAX)
}

fn is_granted(ledger: &Ledger, gpu: Device, bytes: u64) -> bool {
    claim(ledger, gpu, bytes) == Claim::Granted
}

/// Every word of the header, and every word of the first slots that two processes have.
fn words() -> Vec<usize> {
    let [used, pending, nodes, kinds] = columns_at(SLOTS);
    let slots = [(used, 16), (pending, 16), (nodes, 80), (kinds, 128)];
    let words = slots.map(|(from, length)| (from..).step_by(8).take(length / 8));
    let header = (0..4096).step_by(8);
    header.chain(words.into_iter().flatten()).collect()
}

/// Two processes hold 600 of 1000, and one word is overwritten. Afterwards no process, old or new,
/// is granted memory over the limit.
fn no_word_lifts_the_limit(garbage: [u8; 8]) {
    for at in words() {
        let place = TestLedger::new();
        let second = place.open();
        for ledger in [&second, &place.ledger] {
            assert_eq!(count(ledger, place.gpu, 100), Claim::Granted);
            assert!(is_granted(ledger, place.gpu, 200));
        }
        overwrite(&place, at, &garbage);
        let told = [&place.ledger, &second].map(|ledger| ledger.sum(place.gpu).get());
        assert!(told.iter().all(|held| *held >= 600), "{at}: {told:?}");
        assert!(!is_granted(&place.ledger, place.gpu, 500), "{at}");
        assert!(!is_granted(&second, place.gpu, 500), "{at}");
        let late = Ledger::open(&c_path(&place.path()), Open::Existing);
        if let Ok(late) = late {
            let gpu = late.device(&UUID).unwrap_or(Device::UNLISTED);
            assert!(!is_granted(&late, gpu, 500), "{at}");
        }
        // Held memory can be released, whatever has happened.
        place
            .ledger
            .release(place.gpu, Bytes::new(300), Kind::Linear);
        second.release(place.gpu, Bytes::new(300), Kind::Linear);
    }
}

#[test]
fn no_word_of_zeros_lifts_the_limit() {
    no_word_lifts_the_limit([0; 8]);
}

#[test]
fn no_word_of_ones_or_of_noise_lifts_the_limit() {
    no_word_lifts_the_limit([0xff; 8]);
    no_word_lifts_the_limit([0x5b, 0x0a, 0xc3, 0x91, 0x77, 0x2e, 0x68, 0xd4]);
}

#[test]
fn one_process_whose_words_are_gone_is_granted_nothing_more() {
    for at in words().into_iter().filter(|at| *at < 32 || *at >= 4096) {
        let place = TestLedger::new();
        assert!(is_granted(&place.ledger, place.gpu, 600));
        overwrite(&place, at, &[0; 8]);
        assert!(!is_granted(&place.ledger, place.gpu, 500), "{at}");
        assert!(place.sum() >= 600, "{at}");
    }
}

#[test]
fn zeros_in_a_device_are_no_second_budget() {
    for at in [32, 40, 48] {
        let place = TestLedger::new();
        assert!(is_granted(&place.ledger, place.gpu, 600));
        overwrite(&place, at, &[0; 8]);
        let late = place.open();
        // A new process lists another device first, which would take the first device's position.
        let other = late.device(&OTHER);
        let gpu = late.device(&UUID).unwrap_or(Device::UNLISTED);
        assert!(!is_granted(&late, gpu, 500), "{at}: {other:?}");
    }
}

#[test]
fn who_finds_the_damage_tells_everybody() {
    let place = TestLedger::new();
    let (second, third) = (place.open(), place.open());
    for ledger in [&place.ledger, &second] {
        assert!(is_granted(ledger, place.gpu, 100));
    }
    let [used, ..] = columns_at(SLOTS);
    overwrite(&place, used, &[0; 8]);
    assert!(!place.ledger.is_damaged());
    assert_eq!(place.ledger.sum(place.gpu), Bytes::MAX);
    assert!(place.ledger.is_damaged());
    assert_eq!(second.sum(place.gpu), Bytes::MAX);
    let damaged = Claim::NoSlot(NoSlot::Damaged);
    for ledger in [&place.ledger, &second, &third] {
        assert_eq!(claim(ledger, place.gpu, 1), damaged);
        assert!(!ledger.counts(place.gpu));
    }
    let opened = Ledger::open(&c_path(&place.path()), Open::Existing);
    assert_eq!(opened.unwrap_err(), LedgerError::Damaged);
    // Restoring the old contents does not help: other processes may have lost more.
    overwrite(&place, 0, &super::beginning(1, super::Locks::Ledger));
    assert_eq!(claim(&second, place.gpu, 1), damaged);
    assert_eq!(claim(&place.ledger, place.gpu, 1), damaged);
}

#[test]
fn what_the_driver_has_given_already_is_counted_all_the_same() {
    let place = TestLedger::new();
    assert!(is_granted(&place.ledger, place.gpu, 100));
    overwrite(&place, 0, &[0; 64]);
    let counted = count(&place.ledger, place.gpu, 7);
    assert_eq!(counted, Claim::Private(NoSlot::Damaged));
    assert_eq!(place.ledger.own(place.gpu), Bytes::new(107));
    place
        .ledger
        .release(place.gpu, Bytes::new(7), Kind::Context);
    place
        .ledger
        .release(place.gpu, Bytes::new(100), Kind::Linear);
    assert_eq!(place.ledger.own(place.gpu), Bytes::ZERO);
}

/// A file of zeros is a ledger only to the process that creates it.
#[test]
fn a_ledger_that_was_zeroed_is_no_empty_ledger_to_new_processes() {
    let place = TestLedger::new();
    assert!(is_granted(&place.ledger, place.gpu, 600));
    overwrite(&place, 0, &vec![0; SIZE]);
    let opened = Ledger::open(&c_path(&place.path()), Open::Existing);
    assert_eq!(opened.unwrap_err(), LedgerError::Magic);
}

#[test]
fn threads_that_claim_and_release_at_once_are_not_taken_for_damage() {
    let place = TestLedger::new();
    std::thread::scope(|scope| {
        for bytes in [10, 20, 30, 40] {
            let place = &place;
            scope.spawn(move || {
                for _ in 0..20_000 {
                    assert!(is_granted(&place.ledger, place.gpu, bytes));
                    let bytes = Bytes::new(bytes);
                    place.ledger.release(place.gpu, bytes, Kind::Linear);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20_000 {
                assert!(place.sum() <= LIMIT);
            }
        });
    });
    assert!(!place.ledger.is_damaged());
    assert_eq!(place.sum(), 0);
}

#[test]
fn a_forked_child_does_not_miss_what_its_parent_holds() {
    let place = TestLedger::new();
    assert!(is_granted(&place.ledger, place.gpu, 600));
    let mut child = Child::fork(|_| {
        assert_eq!(place.sum(), 600);
        assert!(is_granted(&place.ledger, place.gpu, 100));
        assert_eq!(place.sum(), 700);
        assert!(!place.ledger.is_damaged());
    });
    assert_eq!(child.wait(), End::Exit(0));
    assert_eq!(place.sum(), 600);
}

#[test]
fn a_ledger_that_is_put_back_stays_refused() {
    let place = TestLedger::new();
    assert!(is_granted(&place.ledger, place.gpu, 5));
    let sound = std::fs::read(place.path()).unwrap();
    let [used, ..] = columns_at(SLOTS);
    overwrite(&place, used, &[0; 8]);
    let damaged = Claim::NoSlot(NoSlot::Damaged);
    assert_eq!(claim(&place.ledger, place.gpu, 1), damaged);
    overwrite(&place, 0, &sound);
    assert_eq!(claim(&place.ledger, place.gpu, 1), damaged);
    let opened = Ledger::open(&c_path(&place.path()), Open::Existing);
    assert_eq!(
        opened.unwrap_err(),
        LedgerError::Damaged,
        "it is marked again"
    );
}
