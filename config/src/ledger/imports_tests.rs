//! Tests of what processes of a slice export and import, and of limits that are set for all of them.
//! Touches: files on tmpfs, real processes.

#![expect(clippy::unwrap_used, reason = "a helper of tests may panic")]

use super::processes::{Child, TestLedger, c_path, sleep};
use super::{Class, Device, Import, Kind, Ledger, ObjectSize, Record, SIZE, SetLimit, Snapshot};
use crate::words::units::Bytes;
use std::vec::Vec;

const OBJECT: Class = Class::numbered(3);

const fn mib(count: u64) -> Bytes {
    Bytes::mib(count)
}

/// The process ids of the slots, with what each is charged for imports.
fn charged(place: &TestLedger) -> Vec<(u32, u64)> {
    let mut bytes = [0; SIZE];
    let snapshot = Snapshot::read(&c_path(&place.path()), &mut bytes).unwrap();
    let vmm = |record: Record| {
        let kind = record.by_kind.iter().find(|(kind, _)| *kind == Kind::Vmm);
        (kind.map(|(_, bytes)| *bytes) == Some(record.used)).then_some((record.pid, record.used))
    };
    snapshot.slots().filter_map(vmm).collect()
}

/// A process that imports the object and keeps it as long as it lives.
fn imports(place: &TestLedger, size: Bytes, limit: Bytes) -> Child {
    let importer = Child::fork(|voice| {
        let import = place.ledger.import(place.gpu, OBJECT, size, limit);
        assert_eq!(import, Import::Shared);
        voice.say(1);
        sleep();
    });
    importer.hear();
    importer
}

fn exports(ledger: &Ledger, gpu: Device, size: Bytes) {
    ledger.claim(gpu, size, Kind::Vmm, Bytes::MAX);
    assert!(ledger.export(gpu, OBJECT, size), "there are free rows");
}

#[test]
fn exported_memory_is_charged_to_its_exporter_and_then_to_one_importer() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    exports(ledger, gpu, mib(4));
    let size = ObjectSize {
        bytes: mib(4),
        is_average: false,
    };
    assert_eq!(ledger.exported(gpu, OBJECT), Some(size));
    // There is no room for a second charge.
    let importers = [(); 2].map(|()| imports(&place, mib(4), mib(4)));
    assert_eq!(place.sum(), mib(4).get());
    ledger.unexport(gpu, OBJECT, mib(4));
    ledger.release(gpu, mib(4), Kind::Vmm);
    assert_eq!(ledger.exported(gpu, OBJECT), None);
    assert_eq!(place.sum(), mib(4).get(), "one importer pays");
    let [one, other] = importers;
    let pids = [&one, &other].map(|importer| importer.pid.cast_unsigned());
    let own = (std::process::id(), 0);
    let first = (pids[0], mib(4).get());
    assert_eq!(charged(&place), [own, first, (pids[1], 0)]);
    one.kill();
    // An observer sees it before a process of the slice has cleared the dead one's slot.
    for _ in 0..2 {
        let charged = charged(&place);
        assert!(charged.contains(&(pids[1], mib(4).get())), "{charged:?}");
        let all = charged.iter().map(|(_, bytes)| bytes);
        assert_eq!(all.sum::<u64>(), mib(4).get());
        assert_eq!(place.sum(), mib(4).get(), "the other pays");
    }
    other.kill();
    assert_eq!(place.sum(), 0);
}

#[test]
fn an_observer_adds_up_what_one_process_pays_for_several_objects() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    for (class, size) in [(3, 4), (5, 6)] {
        let class = Class::numbered(class);
        let import = ledger.import(gpu, class, mib(size), mib(10));
        assert_eq!(import, Import::Shared);
    }
    assert_eq!(charged(&place), [(std::process::id(), mib(10).get())]);
}

#[test]
fn an_import_for_which_nobody_pays_needs_room() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    ledger.claim(gpu, mib(2), Kind::Linear, Bytes::MAX);
    let refused = Import::Refused { used: mib(2) };
    assert_eq!(ledger.import(gpu, OBJECT, mib(4), mib(5)), refused);
    assert_eq!(place.sum(), mib(2).get());
    assert_eq!(ledger.import(gpu, OBJECT, mib(4), mib(6)), Import::Shared);
    assert_eq!(place.sum(), mib(6).get());
    ledger.unimport(gpu, OBJECT, mib(4));
    assert_eq!(place.sum(), mib(2).get());
}

#[test]
fn a_process_without_memory_can_export_and_import() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    // This process has the first slot, and an export without memory of its own.
    assert!(ledger.export(gpu, OBJECT, mib(2)));
    assert!(ledger.exported(gpu, OBJECT).is_some());
    ledger.unexport(gpu, OBJECT, mib(2));
    // The child has no slot before it imports.
    let importer = imports(&place, mib(8), mib(8));
    assert_eq!(place.sum(), mib(8).get());
    importer.kill();
    assert_eq!(place.sum(), 0);
}

#[test]
fn a_limit_that_is_set_is_read_by_every_process() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    assert_eq!(ledger.limit(gpu), SetLimit::NONE);
    let six = SetLimit::of(Bytes::gib(6)).unwrap();
    assert!(ledger.set_limit(gpu, six));
    assert_eq!(place.open().limit(gpu), six);
    assert!(!ledger.set_limit(Device::UNLISTED, six));
    assert_eq!(ledger.limit(Device::UNLISTED), SetLimit::NONE);
}

#[test]
fn the_size_of_one_of_several_objects_is_their_average() {
    let place = TestLedger::new();
    let (ledger, gpu) = (&place.ledger, place.gpu);
    let size = |size: u64, is_average: bool| {
        let bytes = mib(size);
        Some(ObjectSize { bytes, is_average })
    };
    exports(ledger, gpu, mib(2));
    exports(ledger, gpu, mib(6));
    assert_eq!(ledger.exported(gpu, OBJECT), size(4, true));
    ledger.unexport(gpu, OBJECT, mib(6));
    assert_eq!(ledger.exported(gpu, OBJECT), size(2, false));
}
