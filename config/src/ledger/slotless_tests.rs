//! Processes without a slot, and processes that must not query the kernel.
//! Touches: files on tmpfs, real processes.

#![expect(clippy::unwrap_used, reason = "a helper of tests may panic")]

use super::kernel::map;
use super::processes::{
    Child, End, LIMIT, TestLedger, UUID, allow_only_writing, c_path, claim, close,
};
use super::protocol::layout::VERSION;
use super::slotless;
use super::{Claim, Ledger, LedgerError, NoSlot, Open};
use super::{Device, Kind, SIZE, SLOTS, set_quiet, size_for};
use crate::sys::{Access, Fd, Placeholders};
use crate::words::device::{DeviceKind, DeviceUuid};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::SeqCst;
use std::fs;
use std::os::unix::fs::FileExt;

const OTHER: DeviceUuid = DeviceUuid {
    kind: DeviceKind::Gpu,
    bytes: *b"another, beside!",
};

fn count(ledger: &Ledger, device: Device, bytes: u64) -> Claim {
    ledger.claim(device, Bytes::new(bytes), Kind::Context, Bytes::MAX)
}

#[test]
fn a_closed_ledger_grants_nothing_and_fails_no_free() {
    let place = TestLedger::new();
    let mut child = Child::fork(|_| {
        let ledger = Ledger::closed(Some(map::private().unwrap()));
        let gpu = ledger.device(&UUID).unwrap();
        assert!(!ledger.counts(gpu));
        assert_eq!(claim(&ledger, gpu, 1), Claim::NoSlot(NoSlot::Closed));
        let counted = Claim::Private(NoSlot::Closed);
        assert_eq!(count(&ledger, gpu, 7), counted);
        ledger.release(gpu, Bytes::new(3), Kind::Context);
        ledger.release(gpu, Bytes::new(99), Kind::Linear);
        assert_eq!(ledger.slots().count(), 0);
        assert!(ledger.turn(gpu).is_none());
    });
    assert_eq!(child.wait(), End::Exit(0));
    assert_eq!(place.sum(), 0);
}

#[test]
fn what_was_counted_alone_moves_into_the_ledger_that_can_be_used_again() {
    let place = TestLedger::new();
    // The file lists the devices in another order.
    assert_eq!(place.gpu.number(), 0);
    let mut child = Child::fork(|_| {
        let private = map::private().unwrap();
        let closed = Ledger::closed(Some(private));
        let (other, gpu) = (
            closed.device(&OTHER).unwrap(),
            closed.device(&UUID).unwrap(),
        );
        assert_eq!((other.number(), gpu.number()), (0, 1));
        count(&closed, gpu, 40);
        count(&closed, other, 5);
        closed.release(gpu, Bytes::new(10), Kind::Context);
        let path = c_path(&place.path());
        let ledger = Ledger::open_with(&path, c"", Open::Existing, private).unwrap();
        assert_eq!(ledger.device(&UUID), Some(gpu));
        assert!(ledger.counts(gpu) && ledger.counts(other));
        assert_eq!([gpu, other].map(|device| ledger.sum(device).get()), [30, 5]);
        assert_eq!(place.sum(), 30);
        assert_eq!(claim(&ledger, gpu, LIMIT - 30), Claim::Granted);
        assert!(matches!(claim(&ledger, gpu, 1), Claim::Refused { .. }));
        ledger.release(gpu, Bytes::new(30), Kind::Context);
        assert_eq!(place.sum(), LIMIT - 30);
    });
    assert_eq!(child.wait(), End::Exit(0));
}

/// A thread began to free memory that only the process had counted, and another thread moved the
/// count into a slot meanwhile.
#[test]
fn memory_that_has_moved_into_a_slot_is_freed_there() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    assert_eq!(count(ledger, gpu, 7), Claim::Granted);
    let tally = map::tally_made(&ledger.private.tally).unwrap();
    assert!(tally.add(gpu, 2, Kind::Context));
    slotless::release(ledger, gpu, Bytes::new(5), Kind::Context);
    assert_eq!(place.sum(), 4, "2 were in the tally, and 3 in the slot");
    assert!(!ledger.is_damaged());
}

#[test]
fn a_file_that_is_no_ledger_is_not_written_to() {
    let place = TestLedger::new();
    let path = place.folder.path().join("other");
    for (at, word) in [(0, 1u64), (8, 1), (12, 1), (0, 0x2141_5441_4459_4d00)] {
        let file = fs::File::create(&path).unwrap();
        file.set_len(SIZE as u64).unwrap();
        file.write_all_at(&word.to_ne_bytes(), at).unwrap();
        let before = fs::read(&path).unwrap();
        let opened = Ledger::open(&c_path(&path), Open::Existing);
        assert_eq!(opened.unwrap_err(), LedgerError::Magic);
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_ledger_is_never_open_as_a_standard_stream() {
    let place = TestLedger::new();
    let path = c_path(&place.path());
    let mut child = Child::fork(|_| {
        (0..3).for_each(close);
        let fd = Fd::open(&path, Access::Write).unwrap();
        assert!(fd.number() > 2);
        let other = Fd::open(c"/dev/null", Access::Read).unwrap();
        assert!(other.number() > 2);
        assert_eq!(place.claim(5), Claim::Granted);
    });
    assert_eq!(child.wait(), End::Exit(0));
    let mut child = Child::fork(|_| {
        close(2);
        assert!(Fd::open(&path, Access::Write).unwrap().number() > 2);
    });
    assert_eq!(child.wait(), End::Exit(0));
}

/// A program that has closed a standard stream may open one again at any moment.
#[test]
fn a_placeholder_is_closed_and_a_stream_in_its_place_is_not() {
    let mut child = Child::fork(|_| {
        close(0);
        let taken = Placeholders::of_standard_streams();
        let above = fs::File::open("/").unwrap();
        assert!(std::os::fd::AsRawFd::as_raw_fd(&above) > 2);
        drop(taken);
        let stream = fs::File::open("/").unwrap();
        assert_eq!(
            std::os::fd::AsRawFd::as_raw_fd(&stream),
            0,
            "it is free again"
        );
        drop(stream);
        let taken = Placeholders::of_standard_streams();
        close(0);
        let stream = fs::File::open("/").unwrap();
        assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&stream), 0);
        drop(taken);
        assert!(stream.metadata().is_ok(), "the stream is closed");
    });
    assert_eq!(child.wait(), End::Exit(0));
}

#[test]
fn a_ledger_for_eight_devices_has_eight_times_the_slots() {
    let place = TestLedger::new();
    let path = place.folder.path().join("large");
    let open = Open::Create {
        mode: 0o600,
        devices: 8,
    };
    let ledger = Ledger::open(&c_path(&path), open).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), size_for(8) as u64);
    assert_eq!(ledger.table.nodes.len(), 8 * SLOTS);
    let mut wrong = fs::read(&path).unwrap();
    wrong.truncate(size_for(7));
    fs::write(&path, wrong).unwrap();
    let opened = Ledger::open(&c_path(&path), Open::Existing);
    assert_eq!(opened.unwrap_err(), LedgerError::Version(VERSION));
}

/// Runs a process under a filter while its neighbour is killed; returns the first one's fate.
fn in_a_filter_when_a_neighbour_ends(quiet: bool) -> Result<(), ()> {
    let place = TestLedger::new();
    let neighbour = Child::fork(|voice| {
        assert_eq!(place.claim(10), Claim::Granted);
        voice.say(1);
        super::processes::sleep();
    });
    assert_eq!(neighbour.hear(), 1);
    let mut filtered = Child::fork(|voice| {
        assert_eq!(place.claim(5), Claim::Granted);
        let _ = place.sum();
        set_quiet(quiet);
        allow_only_writing();
        loop {
            let held = place.sum();
            assert_eq!(place.claim(2), Claim::Granted);
            place.ledger.release(place.gpu, Bytes::new(2), Kind::Linear);
            assert!(matches!(place.claim(LIMIT), Claim::Refused { .. }));
            voice.say(i32::try_from(held).unwrap());
        }
    });
    if !quiet {
        assert_eq!(filtered.wait(), End::Signal(libc::SIGSYS));
        return Err(());
    }
    assert_eq!(filtered.hear(), 15);
    neighbour.kill();
    // More than the pipe holds, so that it continues after the other process's end.
    for _ in 0..100_000 {
        assert_eq!(filtered.hear(), 15, "the dead one stays counted");
    }
    // Until a process that may query the kernel has cleared its slot.
    assert_eq!(place.claim(1), Claim::Granted);
    while filtered.hear() != 6 {}
    Ok(())
}

#[test]
fn a_neighbours_end_kills_no_process_under_a_filter() {
    assert_eq!(in_a_filter_when_a_neighbour_ends(true), Ok(()));
}

#[test]
fn the_filter_of_this_test_ends_a_process_that_asks_the_kernel() {
    assert_eq!(in_a_filter_when_a_neighbour_ends(false), Err(()));
}

/// As on a full ledger: the process looks for a slot once a second.
#[test]
fn a_process_that_had_no_slot_moves_what_it_holds_into_the_one_that_it_gets() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    let other = ledger.device(&OTHER).unwrap();
    let until = &ledger.private.full_until;
    until.store(u64::MAX, SeqCst);
    let Claim::NoSlot(why @ NoSlot::Full(_)) = claim(ledger, gpu, 1) else {
        panic!("it has no slot");
    };
    assert!(!ledger.counts(gpu), "there is still none");
    assert!(ledger.counts(other), "it was not refused one");
    assert_eq!(count(ledger, gpu, 300), Claim::Private(why));
    ledger.release(gpu, Bytes::new(100), Kind::Context);
    assert_eq!(ledger.uncounted(), 2);
    until.store(0, SeqCst);
    assert!(ledger.counts(gpu));
    let sums = || [ledger, &place.open()].map(|ledger| ledger.sum(gpu).get());
    assert_eq!(sums(), [200; 2]);
    assert_eq!(claim(ledger, gpu, 50), Claim::Granted);
    assert_eq!(sums(), [250; 2]);
    // It knows that it holds what it has moved.
    let used = ledger.table.used.first().unwrap();
    used.store(100, SeqCst);
    assert_eq!(claim(ledger, gpu, 1), Claim::NoSlot(NoSlot::Damaged));
}
