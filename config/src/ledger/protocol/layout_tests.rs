//! Tests of the words of the file, of the keys of objects, and of the driver's steps.

use super::header::{Locks, beginning};
use super::layout::{Device, Head, KINDS, Kind, SLOTS, slots_for};
use super::sharing::{CLASSES, Class, key_of};
use super::step::{rounded, spoken_for, stepped};
use crate::words::units::Bytes;

#[test]
fn each_kind_has_a_name() {
    let names = [
        "linear", "managed", "array", "pool", "vmm", "pinned", "context", "code",
    ];
    assert_eq!(Kind::ALL.map(Kind::name), names);
}

#[test]
fn what_no_kind_claims_is_linear() {
    let words: [u64; KINDS] = [99, 1, 0, 2, 0, 0, 0, 0];
    let word = |index: usize| words.get(index).copied().unwrap_or_default();
    let (used, by_kind) = Kind::by_kind(10, word);
    assert_eq!(
        (used, by_kind.map(|(_, held)| held)),
        (10, [7, 1, 0, 2, 0, 0, 0, 0])
    );
    // Between two writes the sum is smaller.
    let (used, by_kind) = Kind::by_kind(2, word);
    assert_eq!(
        (used, by_kind.map(|(_, held)| held)),
        (3, [0, 1, 0, 2, 0, 0, 0, 0])
    );
}

#[test]
fn there_are_64_devices() {
    assert_eq!(Device::numbered(0), Device(0));
    assert_eq!(Device::numbered(63).number(), 63);
    assert_eq!(Device::numbered(64), Device::UNLISTED);
    assert_eq!(Device::numbered(255), Device::UNLISTED);
    let slots = [0, 1, 2, 64, 65].map(|devices| slots_for(devices) / SLOTS);
    assert_eq!(slots, [1, 1, 2, 64, 64]);
}

#[test]
fn the_beginning_of_a_file_says_where_its_locks_are() {
    let word = |locks| {
        beginning(1, locks)
            .last_chunk()
            .map(|word| u32::from_ne_bytes(*word))
    };
    assert_eq!(word(Locks::Ledger), Some(0));
    assert_eq!(word(Locks::Beside), Some(1));
}

#[test]
fn a_slot_counts_how_often_it_was_taken() {
    let mut heads = std::vec![Head(0)];
    for number in [0, 63, 0] {
        let head = heads.last().copied().unwrap_or(Head(0)).freed();
        assert!(!head.taken() && head.word() == 0);
        let device = Device(number);
        let head = head.take(device);
        assert!(head.taken() && head.is(device) && head.device() == device);
        assert!(!heads.contains(&head) && !heads.contains(&head.freed()));
        heads.push(head);
    }
}

#[test]
fn amounts_are_rounded_as_the_driver_hands_them_out() {
    let (mib, kib) = (Bytes::mib, |count: u64| Bytes::new(count << 10));
    let in_steps = [0, 1, 2 << 20, (2 << 20) + 1].map(stepped);
    assert_eq!(in_steps, [0, 2, 2, 4].map(mib));
    assert_eq!(
        [1, 512, 1025].map(rounded),
        [Bytes::new(512), Bytes::new(512), Bytes::new(1536)]
    );
    assert_eq!(spoken_for(mib(1), mib(5)), mib(1));
    assert_eq!(spoken_for(mib(1), mib(6)), mib(2));
    assert_eq!(spoken_for(kib(0), kib(2049)), kib(1));
}

/// Processes with different builds of the library share a ledger, so they must agree.
#[test]
fn keys_and_classes_are_part_of_the_format() {
    assert_eq!(key_of(b""), 0x6606_42d8_3e1e_828e);
    assert_eq!(key_of(b"gpuslice"), 0xe16a_a42d_3815_c550);
    assert_eq!(Class::of(0x12_3456_7890).number(), 0x02);
    let mut counts = [0; CLASSES];
    for number in 0u16..12_800 {
        let class = Class::of(key_of(&number.to_le_bytes()));
        if let Some(count) = counts.get_mut(usize::from(class.number())) {
            *count += 1;
        }
    }
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(least > Some(&60) && most < Some(&150), "{counts:?}");
}
