//! Tests with files that are not a ledger, or no longer one: they are refused, or do no harm.
//! Touches: files on tmpfs, real processes.

#![expect(clippy::unwrap_used, reason = "a helper of tests may panic")]

use super::processes::{Child, End, LIMIT, TestLedger, UUID, c_path, claim, is_root, unshare};
use super::protocol::header::ID_AT;
use super::protocol::layout::SIZE;
use super::snapshot::Snapshot;
use super::{Claim, Ledger, LedgerError, NoSlot, Open};
use crate::ledger::DEVICES;
use crate::sys::Errno;
use crate::words::device::{DeviceKind, DeviceUuid};
use crate::words::units::Bytes;
use std::format;
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

/// Opens the ledger as a process that is given the path of a descriptor.
fn open_beside(place: &TestLedger, descriptor: &str, open: Open) -> Result<Ledger, LedgerError> {
    let descriptor = std::ffi::CString::new(descriptor).unwrap();
    let private = super::kernel::map::private().unwrap();
    Ledger::open_with(&c_path(&place.path()), &descriptor, open, private)
}

/// The path of a descriptor, for another process.
fn path_of(file: &fs::File) -> std::string::String {
    let number = std::os::fd::AsRawFd::as_raw_fd(file);
    format!("/proc/{}/fd/{number}", std::process::id())
}

#[test]
fn a_ledger_whose_path_is_gone_is_opened_by_a_descriptor_of_it() {
    let place = TestLedger::new();
    let kept = fs::File::open(place.path()).unwrap();
    fs::remove_file(place.path()).unwrap();
    let opened = |descriptor: &str| open_beside(&place, descriptor, Open::Existing);
    let descriptor = path_of(&kept);
    assert!(opened(&descriptor).is_ok());
    let absent = LedgerError::Open(Errno(libc::ENOENT));
    // A longer path than a descriptor has is ignored.
    let long = descriptor.replace("/fd/", "/./././././././././fd/");
    assert_eq!(opened(&long).unwrap_err(), absent);
    assert_eq!(opened("").unwrap_err(), absent);
}

#[test]
fn a_copy_of_a_ledger_is_refused_while_the_ledger_is_open() {
    let place = TestLedger::new();
    assert!(place.ledger.identify(7));
    let kept = fs::File::open(place.path()).unwrap();
    let opened = |descriptor: &str| {
        let opened = open_beside(&place, descriptor, Open::Known(7));
        opened.map(drop)
    };
    assert_eq!(opened(&path_of(&kept)), Ok(()), "the ledger itself");
    let bytes = fs::read(place.path()).unwrap();
    fs::remove_file(place.path()).unwrap();
    fs::write(place.path(), &bytes).unwrap();
    assert_eq!(opened(&path_of(&kept)), Err(LedgerError::Another));
    // Nothing tells the copy from the ledger where the descriptor is gone, or is that of another file.
    assert_eq!(opened(""), Ok(()));
    let mut other = bytes;
    other[ID_AT] ^= 1;
    for content in [&b"no ledger, and no short file"[..], b"four", &other] {
        let file = place.folder.path().join("another file");
        fs::write(&file, content).unwrap();
        let file = fs::File::open(file).unwrap();
        assert_eq!(opened(&path_of(&file)), Ok(()));
    }
    let null = fs::File::open("/dev/null").unwrap();
    assert_eq!(opened(&path_of(&null)), Ok(()));
}

#[test]
fn another_lock_file_beside_a_sealed_ledger_is_not_taken_for_its_own() {
    let place = TestLedger::new();
    let [path, locks] = place.sealed();
    let sealed = open(&path).unwrap();
    let devices: [_; 3] = core::array::from_fn(|number| {
        let mut uuid = UUID;
        uuid.bytes[0] = b'0' + u8::try_from(number).unwrap();
        sealed.device(&uuid).unwrap()
    });
    assert_eq!(claim(&sealed, devices[0], 5), Claim::Granted);
    assert_eq!(claim(&sealed, devices[1], 5), Claim::Granted);
    fs::remove_file(&locks).unwrap();
    fs::write(&locks, "").unwrap();
    let stale = Claim::NoSlot(NoSlot::Unreachable(Errno(libc::ESTALE)));
    assert_eq!(claim(&sealed, devices[2], 5), stale);
}

#[test]
fn a_path_of_255_bytes_is_the_longest() {
    let place = TestLedger::new();
    let longest = |length: usize| {
        let folder = place.folder.path().as_os_str().len();
        place.folder.path().join("x".repeat(length - folder - 1))
    };
    fs::hard_link(place.path(), longest(255)).unwrap();
    let opened = open(&longest(255)).unwrap();
    assert!(!opened.is_closed());
    assert!(format!("{opened:?}").contains("xxx"));
    assert_eq!(open(&longest(256)).unwrap_err(), LedgerError::Path);
    assert!(Ledger::closed(None).is_closed());
}
