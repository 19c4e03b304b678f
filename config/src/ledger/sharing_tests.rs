//! Charges for exported and imported memory, in rows that tests write.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "small numbers; a test may panic"
)]

use super::protocol::layout::{Device, Head, KINDS, Node, Table};
use super::protocol::sharing::{self, Class, ObjectSize, Sharer, key_of};
use super::protocol::sync::{AtomicU32, AtomicU64};
use super::{Import, Ledger};
use crate::words::units::Bytes;
use proptest::prelude::*;
use std::vec::Vec;

const GPU: Device = Device(0);
const OTHER: Device = Device(1);
const SLOTS: usize = 6;
const MIB: u64 = 1 << 20;

/// A ledger with taken slots, and with rows.
struct Rows {
    extent: AtomicU32,
    sharers: AtomicU32,
    used: Vec<AtomicU64>,
    pending: Vec<AtomicU64>,
    nodes: Vec<Node>,
    kinds: Vec<[AtomicU64; KINDS]>,
    sharing: Vec<Sharer>,
}

impl Rows {
    fn new(rows: usize) -> Rows {
        let word32 = || AtomicU32::new(0);
        let word64 = || AtomicU64::new(0);
        let node = |slot: usize| Node {
            // The last slot is on another device.
            head: AtomicU64::new(Head(0).take(if slot + 1 < SLOTS { GPU } else { OTHER }).0),
            pid: word32(),
            spare: [(); 3].map(|()| word32()),
            prev: word64(),
            next: word64(),
        };
        Rows {
            extent: AtomicU32::new(1),
            sharers: word32(),
            used: (0..SLOTS).map(|_| word64()).collect(),
            pending: (0..SLOTS).map(|_| word64()).collect(),
            nodes: (0..SLOTS).map(node).collect(),
            kinds: (0..SLOTS).map(|_| [(); KINDS].map(|()| word64())).collect(),
            sharing: (0..rows).map(|_| Sharer::empty()).collect(),
        }
    }

    fn table(&self) -> Table<'_> {
        Table {
            extent: &self.extent,
            used: &self.used,
            pending: &self.pending,
            nodes: &self.nodes,
            kinds: &self.kinds,
            sharers: &self.sharers,
            sharing: &self.sharing,
        }
    }

    fn row(&self, slot: usize) -> &Sharer {
        sharing::row_for(self.table(), slot).unwrap()
    }

    /// The charge when only these slots are alive.
    fn charge(&self, device: Device, alive: impl Fn(usize) -> bool) -> u64 {
        sharing::imported(self.table(), device, |slot, _| alive(slot)) / MIB
    }
}

fn mib(mib: u64) -> Bytes {
    Bytes::mib(mib)
}

#[test]
fn the_exporter_pays_then_the_importers_do_once() {
    let rows = Rows::new(8);
    let class = Class::of(7);
    rows.row(0).export(class, mib(512));
    assert_eq!(rows.extent.load(core::sync::atomic::Ordering::SeqCst), 2);
    rows.row(1).import(class, mib(512));
    rows.row(2).import(class, mib(512));
    assert_eq!(rows.charge(GPU, |_| true), 0);
    assert_eq!(
        rows.charge(GPU, |slot| slot != 0),
        512,
        "the exporter is dead"
    );
    assert_eq!(rows.charge(GPU, |slot| slot == 2), 512);
    assert_eq!(rows.charge(OTHER, |_| true), 0);
    rows.row(0).unexport(class, mib(512));
    assert_eq!(rows.charge(GPU, |_| true), 512);
    sharing::wipe(rows.table(), 1);
    assert_eq!(rows.charge(GPU, |_| true), 512);
    rows.row(2).unimport(class, mib(512));
    assert_eq!(rows.charge(GPU, |_| true), 0);
}

#[test]
fn small_objects_are_charged_by_their_pages() {
    let rows = Rows::new(8);
    let charge = || sharing::imported(rows.table(), GPU, |_, _| true);
    for number in 0..500 {
        rows.row(1).import(Class::of(number), Bytes::kib(256));
    }
    assert_eq!(charge(), 125 * MIB);
    // An export hides no more than its size.
    rows.row(0).export(Class::of(0), Bytes::kib(4));
    assert_eq!(charge(), 125 * MIB - 4096);
    let all = |_, _| true;
    let growth = sharing::growth(rows.table(), GPU, Class::of(0), 1, Bytes::kib(12), all);
    assert_eq!(growth, Bytes::kib(12));
    let object = sharing::object(rows.table(), GPU, Class::of(0), all);
    assert_eq!(object.unwrap().bytes, Bytes::kib(4));
    rows.row(0).unexport(Class::of(0), Bytes::kib(4));
    for number in 0..500 {
        rows.row(1).unimport(Class::of(number), Bytes::kib(256));
    }
    assert_eq!(charge(), 0);
}

#[test]
fn objects_that_cannot_be_told_apart_are_never_charged_twice() {
    let rows = Rows::new(8);
    let class = Class::of(1);
    for _ in 0..10 {
        rows.row(0).export(class, mib(512));
        for worker in 1..4 {
            rows.row(worker).import(class, mib(512));
        }
    }
    assert_eq!(rows.charge(GPU, |_| true), 0);
    for released in 1..=10 {
        rows.row(0).unexport(class, mib(512));
        assert_eq!(rows.charge(GPU, |_| true), released * 512);
    }
    assert_eq!(rows.charge(GPU, |slot| slot == 3), 5120);
}

#[test]
fn an_import_that_somebody_pays_for_does_not_grow_the_charge() {
    let rows = Rows::new(8);
    let class = Class::of(3);
    rows.row(0).export(class, mib(6));
    rows.row(0).export(class, mib(2));
    let all = |_, _| true;
    let size = ObjectSize {
        bytes: mib(4),
        is_average: true,
    };
    assert_eq!(sharing::object(rows.table(), GPU, class, all), Some(size));
    assert_eq!(sharing::object(rows.table(), OTHER, class, all), None);
    let growth = |slot, more| sharing::growth(rows.table(), GPU, class, slot, mib(more), all);
    assert_eq!(growth(1, 8), mib(0));
    assert_eq!(growth(1, 10), mib(2));
    rows.row(1).import(class, mib(8));
    assert_eq!((growth(1, 2), growth(2, 8)), (mib(2), mib(0)));
    rows.row(0).unexport(class, mib(6));
    assert_eq!(rows.charge(GPU, all_alive), 6);
    assert_eq!((growth(1, 2), growth(2, 8)), (mib(2), mib(0)));
}

fn all_alive(_: usize) -> bool {
    true
}

#[test]
fn a_full_table_has_no_row_for_another_sharer() {
    let rows = Rows::new(2);
    assert!(sharing::row_for(rows.table(), 0).is_some());
    assert!(sharing::row_for(rows.table(), 1).is_some());
    assert!(sharing::row_for(rows.table(), 2).is_none());
    sharing::wipe(rows.table(), 0);
    assert!(sharing::row_for(rows.table(), 2).is_some());
    assert!(sharing::row(rows.table(), 0).is_none());
}

#[test]
fn a_ledger_that_cannot_be_used_refuses_imports() {
    let ledger = Ledger::closed(None);
    let limit = mib(4096);
    let import = ledger.import(GPU, Class::of(1), mib(2), limit);
    assert_eq!(import, Import::Refused { used: limit });
    assert!(!ledger.export(GPU, Class::of(1), mib(2)));
}

#[test]
fn keys_of_different_bytes_fall_into_many_classes() {
    let mut counts = [0; sharing::CLASSES];
    for number in 0..1280u32 {
        let class = Class::of(key_of(&number.to_le_bytes()));
        counts[usize::from(class.number())] += 1;
    }
    assert!(
        counts.iter().all(|count| (1..=30).contains(count)),
        "{counts:?}"
    );
}

proptest! {
    /// Any objects, of one class or of many. The charge plus the exporters' own memory is at least
    /// the most that one process has imported, and at most the size of all objects.
    #[test]
    fn a_charge_is_between_the_most_that_one_has_and_all_there_is(
        objects in proptest::collection::vec((0u64..4, 1u64..100, any::<bool>(), 1u8..16), 0..40)
    ) {
        let rows = Rows::new(8);
        let (mut held, mut there, mut most) = (0u64, 0u64, [0u64; 4]);
        for (class, size, exported, importers) in objects {
            let (class, size) = (Class::of(class), mib(2 * size));
            if exported {
                rows.row(4).export(class, size);
                held += size.get() / MIB;
            }
            there += size.get() / MIB;
            for (importer, most) in (0..4).zip(&mut most) {
                if importers >> importer & 1 != 0 {
                    rows.row(importer).import(class, size);
                    *most += size.get() / MIB;
                }
            }
        }
        let charge = rows.charge(GPU, all_alive);
        prop_assert!(charge + held >= most.into_iter().max().unwrap_or(0));
        prop_assert!(charge + held <= there);
    }
}
