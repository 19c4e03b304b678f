//! Tests of what words of the file stand for.

use super::header::{Locks, beginning};
use super::layout::{Device, KINDS, Kind, SLOTS, slots_for};

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
