//! Tests of snapshots: an observer sees what each process holds.
//! Touches: files on tmpfs, real processes.

use super::processes::{Child, LIMIT, TestLedger, UUID, c_path, claim};
use super::protocol::header::{EXTENT_AT, LOCKS_AT};
use super::protocol::layout::SIZE;
use super::snapshot::{Snapshot, mixed};
use super::{Claim, Ledger, LedgerError, Open, SetLimit};
use crate::ledger::Kind;
use crate::words::device::{DeviceKind, DeviceUuid};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::SeqCst;
use std::fs;
use std::path::Path;
use std::vec::Vec;

#[test]
fn devices_are_counted_apart() {
    let place = TestLedger::new();
    let mig = DeviceUuid {
        kind: DeviceKind::Mig,
        ..UUID
    };
    let mig = place.ledger.device(&mig).unwrap();
    assert_eq!(place.claim(LIMIT), Claim::Granted);
    assert_eq!(claim(&place.ledger, mig, 7), Claim::Granted);
    assert_eq!((place.sum(), place.ledger.sum(mig)), (LIMIT, Bytes::new(7)));
    let mig = place.ledger.header.uuid(mig);
    let devices: Vec<_> = place.ledger.slots().map(|record| record.device).collect();
    assert_eq!(devices, [Some(UUID), mig]);
}

#[test]
fn who_looks_from_outside_sees_what_is_held_and_by_whom() {
    let place = TestLedger::new();
    assert_eq!(place.claim(5), Claim::Granted);
    let (pinned, two) = (Kind::Pinned, Bytes::new(2));
    assert_eq!(
        place.ledger.claim(place.gpu, two, pinned, Bytes::MAX),
        Claim::Granted
    );
    // The bytes of another ledger, as an observer of several has them.
    let mut bytes = [0xff; SIZE];
    let snapshot = Snapshot::read(&c_path(&place.path()), &mut bytes).unwrap();
    let records: Vec<_> = snapshot.slots().collect();
    assert_eq!(records, place.ledger.slots().collect::<Vec<_>>());
    let [record] = records[..] else {
        panic!("one slot");
    };
    assert_eq!(
        (record.pid, record.device),
        (std::process::id(), Some(UUID))
    );
    assert_eq!((record.used, record.alive), (7, true));
    let held = record.by_kind.map(|(_, bytes)| bytes);
    assert_eq!(held, [5, 0, 0, 0, 0, 2, 0, 0]);
    assert_eq!(snapshot.uncounted(), 0);
}

#[test]
fn an_observer_reads_the_id_the_limits_and_the_claims_without_a_slot() {
    let place = TestLedger::new();
    let look = |path: &Path, seen: &dyn Fn(&Snapshot<'_>)| {
        let mut bytes = [0; SIZE];
        seen(&Snapshot::read(&c_path(path), &mut bytes).unwrap());
    };
    look(&place.path(), &|snapshot| {
        assert_eq!((snapshot.id(), snapshot.uncounted()), (0, 0));
        assert_eq!(snapshot.limits().count(), 0);
    });
    assert!(place.ledger.identify(7));
    let six = SetLimit::of(Bytes::gib(6)).unwrap();
    assert!(place.ledger.set_limit(place.gpu, six));
    let until = &place.ledger.private.full_until;
    until.store(u64::MAX, SeqCst);
    for _ in 0..2 {
        assert!(matches!(place.claim(1), Claim::NoSlot(_)));
    }
    look(&place.path(), &|snapshot| {
        assert_eq!((snapshot.id(), snapshot.uncounted()), (7, 2));
        assert!(!snapshot.is_sealed());
        assert_eq!(
            snapshot.limits().collect::<Vec<_>>(),
            [(UUID, Bytes::gib(6))]
        );
    });
    let sealed = place.folder.path().join("sealed");
    let mut bytes = fs::read(place.path()).unwrap();
    bytes[LOCKS_AT..][..4].copy_from_slice(&1u32.to_ne_bytes());
    fs::write(&sealed, bytes).unwrap();
    fs::write(place.folder.path().join("locks"), "").unwrap();
    look(&sealed, &|snapshot| assert!(snapshot.is_sealed()));
}

#[test]
fn an_overwritten_extent_hides_no_process_from_an_observer() {
    let place = TestLedger::new();
    assert_eq!(place.claim(5), Claim::Granted);
    let path = place.folder.path().join("copy");
    let sound = fs::read(place.path()).unwrap();
    for extent in [0, 1, 7, u32::MAX] {
        let mut bytes = sound.clone();
        bytes[EXTENT_AT..][..4].copy_from_slice(&extent.to_ne_bytes());
        fs::write(&path, bytes).unwrap();
        let mut bytes = [0xff; SIZE];
        let snapshot = Snapshot::read(&c_path(&path), &mut bytes).unwrap();
        let used: Vec<_> = snapshot.slots().map(|record| record.used).collect();
        assert_eq!(used, [5], "{extent}");
    }
}

#[test]
fn a_removed_ledger_is_read_by_a_descriptor_and_shows_each_change() {
    use std::os::fd::AsRawFd;
    let place = TestLedger::new();
    let path = place.path();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let link = c_path(Path::new(&std::format!(
        "/proc/self/fd/{}",
        file.as_raw_fd()
    )));
    let look = || super::fingerprint(&link).unwrap();
    let empty = look();
    assert_eq!(look(), empty);
    assert_eq!(place.claim(5), Claim::Granted);
    let held = look();
    fs::remove_file(&path).unwrap();
    place.ledger.refused(place.gpu, Bytes::new(3));
    let refused = look();
    place.ledger.release(place.gpu, Bytes::new(5), Kind::Linear);
    let all = [empty, held, refused, look()];
    for (index, one) in all.iter().enumerate() {
        assert_eq!(
            all.iter().position(|other| other == one),
            Some(index),
            "{all:?}"
        );
    }
    let mut bytes = [0; SIZE];
    let snapshot = Snapshot::read_link(&link, &mut bytes).unwrap();
    assert_eq!(snapshot.refusals().count(), 1);
    file.set_len(100).unwrap();
    assert_eq!(super::fingerprint(&link), Err(LedgerError::Length(100)));
    assert_eq!(
        Snapshot::read_link(&link, &mut bytes).err(),
        Some(LedgerError::Length(100))
    );
    // The ledger is mapped here, and cut: it must not be touched again.
    // The ledger writes to its file once more when it is dropped.
    file.set_len(SIZE as u64).unwrap();
}

#[test]
fn who_looks_from_outside_is_told_that_the_dead_are_dead() {
    let place = TestLedger::new();
    let holder = Child::fork(|voice| {
        assert_eq!(place.claim(5), Claim::Granted);
        voice.say(1);
        super::processes::sleep();
    });
    assert_eq!(holder.hear(), 1);
    holder.kill();
    let mut bytes = [0; SIZE];
    let snapshot = Snapshot::read(&c_path(&place.path()), &mut bytes).unwrap();
    assert!(snapshot.slots().all(|record| !record.alive));
}

#[test]
fn what_is_held_by_kind_adds_up_to_what_is_held_while_it_changes() {
    let place = TestLedger::new();
    let _busy = Child::fork(|voice| {
        voice.say(1);
        loop {
            for kind in [Kind::Pool, Kind::Linear, Kind::Vmm] {
                let claimed = place
                    .ledger
                    .claim(place.gpu, Bytes::new(5), kind, Bytes::MAX);
                assert_eq!(claimed, Claim::Granted);
                place.ledger.release(place.gpu, Bytes::new(5), kind);
            }
        }
    });
    let (mut bytes, mut seen) = ([0; SIZE], [false; 2]);
    while seen != [true; 2] {
        for _ in 0..1000 {
            let snapshot = Snapshot::read(&c_path(&place.path()), &mut bytes).unwrap();
            for record in snapshot.slots() {
                let parts = record.by_kind.iter().map(|(_, held)| held);
                assert_eq!(parts.sum::<u64>(), record.used, "{record:?}");
                seen[usize::from(record.used > 0)] = true;
            }
        }
    }
}

#[test]
fn the_locks_of_a_sealed_ledger_are_on_the_file_beside_it() {
    let place = TestLedger::new();
    let [path, _] = place.sealed();
    let sealed = Ledger::open(&c_path(&path), Open::Existing).unwrap();
    let gpu = sealed.device(&UUID).unwrap();
    assert_eq!(claim(&sealed, gpu, 5), Claim::Granted);
    let mut bytes = [0; SIZE];
    let snapshot = Snapshot::read(&c_path(&path), &mut bytes).unwrap();
    let alive: Vec<_> = snapshot.slots().map(|record| record.alive).collect();
    assert_eq!(alive, [true]);
}

#[test]
fn a_change_of_any_word_changes_the_number_whatever_came_before() {
    let words = |first: u64, second: u64| [first, second].map(u64::to_ne_bytes).concat();
    for sum in [0, 1, u64::MAX, 0xcbf2_9ce4_8422_2325] {
        let before = mixed(sum, &words(1, 2));
        for other in [words(3, 2), words(1, 3), words(2, 1), words(0, 2)] {
            assert_ne!(mixed(sum, &other), before, "{sum:x}");
        }
    }
}
