//! Tests with files that are not a ledger, or no longer one: they are refused, or do no harm.
//! Touches: files on tmpfs, real processes.

use super::processes::{Child, End, LIMIT, TestLedger, UUID, c_path, claim, is_root, unshare};
use super::protocol::header::EXTENT_AT;
use super::protocol::layout::SIZE;
use super::snapshot::Snapshot;
use super::{Claim, Ledger, LedgerError, NoSlot, Open};
use crate::ledger::{DEVICES, Kind, Refusals};
use crate::sys::Errno;
use crate::words::device::{DeviceKind, DeviceUuid};
use crate::words::units::Bytes;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::vec::Vec;

fn open(path: &Path) -> Result<Ledger, LedgerError> {
    Ledger::open(&c_path(path), Open::Existing)
}

fn look(path: &Path) -> Result<(), LedgerError> {
    let mut bytes = [0; SIZE];
    Snapshot::read(&c_path(path), &mut bytes).map(drop)
}

#[test]
fn what_is_no_ledger_is_refused() {
    let place = TestLedger::new();
    let at = |name: &str| place.folder.path().join(name);
    assert_eq!(
        open(&at("absent")).unwrap_err(),
        LedgerError::Open(Errno(2))
    );

    std::os::unix::fs::symlink(place.path(), at("link")).unwrap();
    let link = LedgerError::Open(Errno(libc::ELOOP));
    assert_eq!(open(&at("link")).unwrap_err(), link);
    assert_eq!(look(&at("link")).unwrap_err(), link);

    let made = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status();
    assert!(made.unwrap().success());
    assert_eq!(open(&at("pipe")).unwrap_err(), LedgerError::NotAFile);
    assert_eq!(look(&at("pipe")).unwrap_err(), LedgerError::NotAFile);
    assert_eq!(
        look(place.folder.path()).unwrap_err(),
        LedgerError::NotAFile
    );

    for length in [0, 1, 4096, SIZE - 1, SIZE + 1] {
        fs::write(at("length"), std::vec![0; length]).unwrap();
        let wrong = LedgerError::Length(length as u64);
        assert_eq!(open(&at("length")).unwrap_err(), wrong);
        assert_eq!(look(&at("length")).unwrap_err(), wrong);
    }

    fs::write(at("other"), std::vec![b'x'; SIZE]).unwrap();
    assert_eq!(open(&at("other")).unwrap_err(), LedgerError::Magic);
    assert_eq!(look(&at("other")).unwrap_err(), LedgerError::Magic);

    let mut newer = fs::read(place.path()).unwrap();
    newer[8] = 9;
    fs::write(at("newer"), newer).unwrap();
    assert_eq!(open(&at("newer")).unwrap_err(), LedgerError::Version(9));
    assert_eq!(look(&at("newer")).unwrap_err(), LedgerError::Version(9));

    let long = at(&"x".repeat(250));
    assert_eq!(open(&long).unwrap_err(), LedgerError::Path);
}

#[test]
fn another_ledger_than_the_slices_own_is_refused() {
    let place = TestLedger::new();
    assert!(place.ledger.identify(7) && place.ledger.identify(7));
    assert!(!place.ledger.identify(8));
    let known = |id| Ledger::open(&c_path(&place.path()), Open::Known(id));
    assert_eq!(known(8).unwrap_err(), LedgerError::Another);
    assert_eq!(claim(&known(7).unwrap(), place.gpu, 1), Claim::Granted);
    // A process without an expected id accepts any ledger.
    assert_eq!(claim(&place.open(), place.gpu, 1), Claim::Granted);
    let other = place.folder.path().join("other");
    let (mode, devices) = (0o600, 1);
    Ledger::open(&c_path(&other), Open::Create { mode, devices }).unwrap();
    fs::rename(other, place.path()).unwrap();
    assert_eq!(known(7).unwrap_err(), LedgerError::Another);
}

#[test]
fn a_ledger_is_made_with_the_mode_that_was_asked_for() {
    let place = TestLedger::new();
    for mode in [0o600, 0o666] {
        let path = place.folder.path().join(std::format!("{mode:o}"));
        for _ in 0..2 {
            Ledger::open(&c_path(&path), Open::Create { mode, devices: 1 }).unwrap();
        }
        let made = fs::metadata(&path).unwrap();
        assert_eq!(
            (made.permissions().mode() & 0o777, made.len()),
            (mode, SIZE as u64)
        );
    }
}

#[test]
fn the_beginning_is_what_whoever_makes_a_ledger_writes() {
    let place = TestLedger::new();
    let path = place.folder.path().join("made");
    Ledger::open(
        &c_path(&path),
        Open::Create {
            mode: 0o600,
            devices: 1,
        },
    )
    .unwrap();
    let made = fs::read(&path).unwrap();
    let (first, rest) = made.split_at(super::beginning(1, super::Locks::Ledger).len());
    assert_eq!(first, super::beginning(1, super::Locks::Ledger));
    assert!(rest.iter().all(|byte| *byte == 0));
}

#[test]
fn many_may_make_the_same_ledger_at_once() {
    let place = TestLedger::new();
    let path = c_path(&place.folder.path().join("new"));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let ledger = Ledger::open(
                    &path,
                    Open::Create {
                        mode: 0o600,
                        devices: 1,
                    },
                )
                .unwrap();
                assert!(ledger.device(&UUID).is_some());
            });
        }
    });
}

#[test]
fn threads_that_come_first_at_once_share_one_slot() {
    let place = TestLedger::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(place.claim(10), Claim::Granted));
        }
    });
    assert_eq!(place.sum(), 80);
    assert_eq!(place.ledger.slots().count(), 1);
}

#[test]
fn devices_keep_their_places_and_there_is_an_end_to_them() {
    let place = TestLedger::new();
    let numbered = |number: u8, kind| DeviceUuid {
        kind,
        bytes: [number; 16],
    };
    let gpu = numbered(0, DeviceKind::Gpu);
    let mig = numbered(0, DeviceKind::Mig);
    let devices = [gpu, mig].map(|uuid| place.ledger.device(&uuid).unwrap());
    let again = place.open();
    assert_eq!([gpu, mig].map(|uuid| again.device(&uuid).unwrap()), devices);
    assert_eq!(
        devices.map(|device| place.ledger.header.uuid(device)),
        [Some(gpu), Some(mig)]
    );
    let places: Vec<_> = (3..DEVICES)
        .map(|number| {
            place
                .ledger
                .device(&numbered(number.try_into().unwrap(), DeviceKind::Gpu))
        })
        .collect();
    assert!(places.iter().all(Option::is_some));
    assert_eq!(place.ledger.device(&numbered(200, DeviceKind::Gpu)), None);
    assert_eq!(place.ledger.device(&UUID), Some(place.gpu));
}

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
fn any_bytes_after_the_first_words_are_read_without_a_crash() {
    let place = TestLedger::new();
    let sound = fs::read(place.path()).unwrap();
    let mut dice = 1u64;
    for round in 0..50 {
        let garbled = place.folder.path().join(std::format!("garbled{round}"));
        let mut bytes = sound.clone();
        for byte in bytes.iter_mut().skip(16) {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (dice >> 56) as u8;
        }
        fs::write(&garbled, bytes).unwrap();
        look(&garbled).unwrap();
        let ledger = open(&garbled).unwrap();
        let _ = ledger.device(&UUID);
        // No byte is locked, so every slot is dead, whatever it contains.
        let _ = ledger.slots().count();
        assert_eq!(ledger.slots().count(), 0);
        let first = super::protocol::layout::Device(0);
        // But free slots with used bytes cannot be a ledger's.
        assert_eq!(ledger.sum(first), Bytes::MAX);
        assert_ne!(claim(&ledger, first, 1), Claim::Granted);
    }
}

/// The one way in which a process can end the others of its own slice; see `map`.
#[test]
fn a_ledger_cut_short_ends_processes_of_its_own_slice_and_of_no_other() {
    let (place, other) = {
        let place = TestLedger::new();
        let other = place.folder.path().join("other");
        let other = Ledger::open(
            &c_path(&other),
            Open::Create {
                mode: 0o600,
                devices: 1,
            },
        )
        .unwrap();
        (place, other)
    };
    let gpu = other.device(&UUID).unwrap();
    assert_eq!(claim(&other, gpu, 5), Claim::Granted);
    let mut neighbour = Child::fork(|_| {
        let ledger = place.open();
        assert_eq!(claim(&ledger, place.gpu, 5), Claim::Granted);
        let file = fs::OpenOptions::new()
            .write(true)
            .open(place.path())
            .unwrap();
        file.set_len(0).unwrap();
        let _ = ledger.sum(place.gpu);
    });
    assert_eq!(neighbour.wait(), End::Signal(libc::SIGBUS));
    assert_eq!(other.sum(gpu), Bytes::new(5));
    // An observer outside the slice only sees a file of the wrong length.
    assert_eq!(look(&place.path()).unwrap_err(), LedgerError::Length(0));
    assert_eq!(open(&place.path()).unwrap_err(), LedgerError::Length(0));
}

#[test]
fn a_ledger_whose_file_was_replaced_goes_on_for_those_who_have_it() {
    let place = TestLedger::new();
    assert_eq!(place.claim(5), Claim::Granted);
    fs::remove_file(place.path()).unwrap();
    Ledger::open(
        &c_path(&place.path()),
        Open::Create {
            mode: 0o666,
            devices: 1,
        },
    )
    .unwrap();
    assert_eq!(place.sum(), 5);
    assert_eq!(place.claim(6), Claim::Granted);
    assert!(matches!(place.claim(LIMIT), Claim::Refused { .. }));
    // It cannot lock a file that is gone.
    let mut child = Child::fork(|_| {
        let gone = Claim::NoSlot(NoSlot::Unreachable(crate::sys::ESTALE));
        assert_eq!(place.claim(1), gone);
    });
    assert_eq!(child.wait(), End::Exit(0));
}

/// overlayfs maps the file below it, so its own locks end with the descriptor.
#[test]
fn a_file_system_that_drops_locks_is_noticed() {
    if !is_root() {
        std::eprintln!("skipped: needs root");
        return;
    }
    let place = TestLedger::new();
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(place.folder.path().join(name)).unwrap();
    }
    let mut child = Child::fork(|_| {
        assert!(unshare(libc::CLONE_NEWNS));
        let mounted = std::process::Command::new("sh")
            .current_dir(place.folder.path())
            .args(["-c", "mount --make-rprivate / && mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged"])
            .status();
        if !mounted.unwrap().success() {
            super::processes::exit(77);
        }
        let path = place.folder.path().join("merged/ledger");
        let ledger = Ledger::open(
            &c_path(&path),
            Open::Create {
                mode: 0o600,
                devices: 1,
            },
        )
        .unwrap();
        let gpu = ledger.device(&UUID).unwrap();
        let claimed = claim(&ledger, gpu, 5);
        assert_eq!(claimed, Claim::NoSlot(NoSlot::LocksDoNotStay));
        assert_eq!(ledger.sum(gpu), Bytes::ZERO);
    });
    match child.wait() {
        End::Exit(77) => std::eprintln!("skipped: no overlayfs here"),
        end => assert_eq!(end, End::Exit(0)),
    }
}

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
