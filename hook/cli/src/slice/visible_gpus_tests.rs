//! Tests the GPUs that a program sees, and the messages about GPUs without a limit.

use super::*;
use crate::driver::inventory::{Device, MigInstance};
use gpuslice_config::slice::ListedDevice;
use gpuslice_config::words::units::Bytes;

const UUIDS: [&str; 3] = [
    "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4",
    "GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4",
    "GPU-3b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4",
];
const INSTANCES: [&str; 2] = [
    "MIG-11111111-6b0b-4c59-9b62-5cd0c0a1a3c4",
    "MIG-22222222-6b0b-4c59-9b62-5cd0c0a1a3c4",
];

/// Cards with these ordinals, in the order of nvidia-smi.
fn cards(ordinals: &[u32]) -> Inventory {
    let devices = (0u32..).zip(ordinals).zip(UUIDS);
    let device = |((index, ordinal), uuid): ((u32, &u32), &str)| Device {
        index,
        cuda_ordinal: Some(*ordinal),
        uuid: uuid.parse().unwrap(),
        name: "Card".to_owned(),
        total: Bytes::gib(24).get(),
        integrated: false,
        minor: None,
        driver_limits: false,
        mig: Vec::new(),
    };
    Inventory {
        driver: None,
        backend: None,
        devices: devices.map(device).collect(),
    }
}

/// A card that MIG divides, of which CUDA lists the first instance.
fn divided() -> Inventory {
    let mut inventory = cards(&[0]);
    let instance = |uuid: &str, cuda_ordinal| MigInstance {
        uuid: uuid.parse().unwrap(),
        cuda_ordinal,
        name: "Card MIG".to_owned(),
        total: Bytes::gib(10).get(),
    };
    inventory.devices[0].cuda_ordinal = None;
    let [first, second] = INSTANCES;
    inventory.devices[0].mig = vec![instance(first, Some(0)), instance(second, None)];
    inventory
}

/// A slice that names these GPUs.
fn slice(uuids: &[&str]) -> Slice {
    let mut slice = Slice::default();
    for uuid in uuids {
        let listed = ListedDevice {
            uuid: uuid.parse().unwrap(),
            memory: Some(Bytes::gib(8)),
            headroom: None,
            integrated: None,
            driver_limit: None,
            driver_backstop: false,
        };
        slice.list(listed).unwrap();
    }
    slice
}

fn refusal(value: Option<&str>, named: &[&str], inventory: &Inventory) -> Option<String> {
    let checked = Seen::with(value, inventory).check(&slice(named), inventory);
    checked.err().map(|unseen| unseen.to_string())
}

fn gap(value: Option<&str>, named: &[&str], inventory: &Inventory) -> Option<String> {
    Seen::with(value, inventory).gap(&slice(named))
}

#[test]
fn a_gpu_that_cuda_shows_and_the_slice_does_not_limit_is_named() {
    let three = cards(&[0, 1, 2]);
    let [first, second, third] = UUIDS;
    for (value, named, message) in [
        (None, &UUIDS[..], None),
        (Some("0"), &[first], None),
        (Some(""), &[first], None),
        (
            None,
            &[first, second],
            Some(
                "the program sees GPU 0, GPU 1 and GPU 2, and the slice does not limit GPU 2; \
                 CUDA_VISIBLE_DEVICES=0,1 hides it",
            ),
        ),
        (
            Some("2,1,0"),
            &[third],
            Some(
                "the program sees GPU 0, GPU 1 and GPU 2, and the slice does not limit GPU 0 and \
                 GPU 1; CUDA_VISIBLE_DEVICES=2 hides them",
            ),
        ),
        // A value of an unknown form may show all of them.
        (
            Some("MIG-GPU-1b7d/1/0"),
            &[first, second],
            Some(
                "the program sees GPU 0, GPU 1 and GPU 2, and the slice does not limit GPU 2; \
                 CUDA_VISIBLE_DEVICES=0,1 hides it",
            ),
        ),
    ] {
        assert_eq!(gap(value, named, &three).as_deref(), message, "{value:?}");
        assert_eq!(refusal(value, named, &three), None, "{value:?}");
    }
}

#[test]
fn a_slice_that_limits_no_gpu_that_cuda_shows_is_refused() {
    let two = cards(&[0, 1]);
    let [first, second, _] = UUIDS;
    let message = "the program would not be limited: it sees GPU 1 (CUDA_VISIBLE_DEVICES=1), and the \
                   slice limits GPU 0; set CUDA_VISIBLE_DEVICES=0";
    assert_eq!(refusal(Some("1"), &[first], &two).as_deref(), Some(message));
    assert_eq!(refusal(Some("1"), &[second], &two), None);
    // The program sees no GPU, so no GPU lacks a limit.
    assert_eq!(refusal(Some("-1"), &[first], &two), None);
    // A limit that exceeds the card's memory does not count.
    let mut over = Slice::default();
    over.memory = Some(Bytes::gib(80));
    assert!(Seen::with(None, &two).check(&over, &two).is_err());
}

#[test]
fn ordinals_are_those_of_the_order_that_the_program_has() {
    // FASTEST_FIRST: nvidia-smi's GPU 1 is CUDA's device 0.
    let two = cards(&[1, 0]);
    let [first, second, _] = UUIDS;
    assert_eq!(refusal(Some("1"), &[first], &two), None);
    let message = "the program would not be limited: it sees GPU 0 (CUDA_VISIBLE_DEVICES=1), and the \
                   slice limits GPU 1; set CUDA_VISIBLE_DEVICES=0";
    assert_eq!(
        refusal(Some("1"), &[second], &two).as_deref(),
        Some(message)
    );
}

#[test]
fn of_a_divided_gpu_one_instance_is_seen_unless_another_is_named() {
    let divided = divided();
    let [first, second] = INSTANCES;
    assert_eq!(refusal(None, &[first], &divided), None);
    assert_eq!(gap(None, &[first], &divided), None);
    let message = format!(
        "the program would not be limited: it sees {first} (CUDA_VISIBLE_DEVICES is not set), and \
         the slice limits {second}; set CUDA_VISIBLE_DEVICES={second}"
    );
    assert_eq!(refusal(None, &[second], &divided), Some(message));
    assert_eq!(refusal(Some("MIG-2222"), &[second], &divided), None);
    assert_eq!(named("0", &divided), Some(vec![first.parse().unwrap()]));
}
