//! Tests the GPUs on which a run counts, and which runs fit beside each other.
//! Touches: its arguments.

use super::*;
use crate::driver::inventory::{Device, MigInstance};
use crate::slice::options::{DeviceLimit, SliceOptions};
use gpuslice_config::words::device::Selector;

const A: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const B: &str = "GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const SPARK: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";
const DIVIDED: &str = "GPU-3b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const ONE: &str = "MIG-11111111-6b0b-4c59-9b62-5cd0c0a1a3c4";
const TWO: &str = "MIG-22222222-6b0b-4c59-9b62-5cd0c0a1a3c4";

fn device(index: u32, uuid: &str, integrated: bool) -> Device {
    Device {
        index,
        cuda_ordinal: Some(index),
        uuid: uuid.parse().unwrap(),
        name: "Card".to_owned(),
        total: Bytes::gib(24).get(),
        integrated,
        minor: None,
        driver_limits: false,
        mig: Vec::new(),
    }
}

fn machine_of_four() -> Inventory {
    let instance = |uuid: &str| MigInstance {
        uuid: uuid.parse().unwrap(),
        cuda_ordinal: None,
        name: "Card MIG".to_owned(),
        total: Bytes::gib(10).get(),
    };
    let mut divided = device(3, DIVIDED, false);
    divided.mig = vec![instance(ONE), instance(TWO)];
    Inventory {
        driver: None,
        backend: None,
        devices: vec![
            device(0, A, false),
            device(1, B, false),
            device(2, SPARK, true),
            divided,
        ],
    }
}

fn counted(visible: Option<&str>, named: &[&str]) -> Vec<String> {
    let inventory = machine_of_four();
    let options = SliceOptions {
        memory: Some(Bytes::gib(8)),
        device: named
            .iter()
            .map(|uuid| DeviceLimit {
                selector: Selector::Uuid(uuid.parse().unwrap()),
                memory: Bytes::gib(4),
            })
            .collect(),
        ..SliceOptions::default()
    };
    let budget =
        crate::slice::budget::budget(&options, &inventory, "x", &Default::default()).unwrap();
    let named: Vec<DeviceUuid> = named.iter().map(|uuid| uuid.parse().unwrap()).collect();
    let cards = cards(&named, &inventory, &budget.slice, visible);
    cards.iter().map(|card| card.uuid.to_string()).collect()
}

#[test]
fn a_run_counts_on_the_cards_that_its_program_can_see() {
    assert_eq!(counted(None, &[]), [A, B, ONE, TWO]);
    for (visible, seen) in [
        ("0", &[A][..]),
        ("1,0", &[A, B]),
        ("1, 0", &[A, B]),
        ("0,7,1", &[A]),
        ("-1", &[]),
        ("", &[]),
        ("2", &[]),
        ("3", &[ONE, TWO]),
        ("GPU-2b7d", &[B]),
        (TWO, &[TWO]),
        (DIVIDED, &[ONE, TWO]),
        ("MIG-GPU-3b7d/1/0", &[A, B, ONE, TWO]),
    ] {
        assert_eq!(counted(Some(visible), &[]), seen, "{visible}");
    }
    // A GPU that is named counts even if `CUDA_VISIBLE_DEVICES` hides it.
    assert_eq!(counted(Some("0"), &[B]), [A, B]);
}

fn card(asked: u64) -> Card {
    Card {
        uuid: A.parse().unwrap(),
        shown: "GPU 0 (Card, 24.00 GiB)".to_owned(),
        total: Bytes::gib(24),
        asked: Bytes::gib(asked),
    }
}

fn tenant(name: &str, memory: u64) -> Tenant {
    let budget = |uuid: &str| DeviceBudget {
        uuid: uuid.parse().unwrap(),
        memory: Bytes::gib(memory),
        integrated: false,
    };
    Tenant {
        file: PathBuf::new(),
        uid: 0,
        owner: None,
        name: name.to_owned(),
        devices: vec![budget(A), budget(B)],
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_names_of_who_has_the_rest() {
    let held = [tenant("llama", 12), tenant("team/pod", 8)];
    assert_eq!(full(&[card(4)], &held), None);
    let refusal = no_room("run-7", full(&[card(5)], &held).unwrap(), &[card(5)]);
    assert_eq!(
        refusal.to_string(),
        "no room for run-7: GPU 0 (Card, 24.00 GiB) has 4.00 GiB left, 5.00 GiB requested; held \
         by llama 12.00 GiB, team/pod 8.00 GiB\nUse --overcommit to start anyway; FREE is \
         then the memory that is actually free on the GPU"
    );
    // A record with more memory than the card has counts as the whole card.
    let (left, holders) = card(1).left(&[tenant("liar", 1 << 30)]);
    assert_eq!((left, holders.0[0].1), (Bytes::ZERO, Bytes::gib(24)));
}
