//! Tests of the table of GPUs.

use super::*;
use crate::driver::inventory::{Device, MigInstance};

/// A GPU of which slices hold 4 GiB and other programs 1 GiB.
fn card(uuid: &str) -> CardStatus {
    CardStatus {
        device: uuid.to_owned(),
        total: Some(25_438_126_080),
        used: Some(5 << 30),
        in_slices: 4 << 30,
        outside_slices: Some(1 << 30),
        limits_sum: 12 << 30,
        left_to_give: Some(12_553_224_192),
        ..CardStatus::default()
    }
}

#[test]
fn the_table_has_a_line_per_gpu_and_per_instance() {
    let uuid = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
    let gpu = Device {
        index: 0,
        cuda_ordinal: Some(1),
        uuid: uuid.parse().unwrap(),
        name: "NVIDIA GeForce RTX 3090".to_owned(),
        total: 25_438_126_080,
        integrated: false,
        minor: Some(0),
        driver_limits: false,
        mig: Vec::new(),
    };
    let divided = Device {
        index: 1,
        cuda_ordinal: None,
        uuid: uuid.replace("3c4", "3c5").parse().unwrap(),
        name: "NVIDIA H200".to_owned(),
        total: 150_754_820_096,
        mig: vec![MigInstance {
            uuid: uuid.replace("GPU", "MIG").parse().unwrap(),
            cuda_ordinal: Some(0),
            name: "NVIDIA H200 MIG 1g.18gb".to_owned(),
            total: 17_179_869_184,
        }],
        ..gpu.clone()
    };
    let inventory = Inventory {
        driver: None,
        backend: None,
        devices: vec![gpu, divided],
    };
    assert_eq!(
        table(&inventory, None, &[card(uuid)]),
        "\
INDEX  CUDA  UUID                                      MEMORY      USED      IN SLICES  LEFT TO GIVE  FENCE    KIND      NAME
0      1     GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4  23.69 GiB   5.00 GiB  4.00 GiB   11.69 GiB     preload  discrete  NVIDIA GeForce RTX 3090
1      -     GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c5  140.40 GiB  -         -          -             preload  divided   NVIDIA H200
       0     MIG-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4  16.00 GiB   -         -          -             preload  instance  NVIDIA H200 MIG 1g.18gb
"
    );
}

#[test]
fn inside_a_slice_its_limit_stands_beside_the_gpus_memory() {
    let uuid = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
    let inventory = Inventory {
        driver: None,
        backend: Some(DriverLimit::Dmem),
        devices: vec![Device {
            index: 0,
            cuda_ordinal: Some(0),
            uuid: uuid.parse().unwrap(),
            name: "NVIDIA GeForce RTX 3090".to_owned(),
            total: 25_438_126_080,
            integrated: false,
            minor: Some(0),
            driver_limits: true,
            mig: Vec::new(),
        }],
    };
    let text = br#"{"version":1,"name":"llama","memory":8589934592}"#;
    let slice = gpuslice_config::slice::parse(text).unwrap();
    let cards = [card(uuid)];
    assert_eq!(
        table(&inventory, Some(&slice), &cards),
        "\
INDEX  CUDA  UUID                                      MEMORY     USED      IN SLICES  LEFT TO GIVE  SLICE             FENCE          KIND      NAME
0      0     GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4  23.69 GiB  5.00 GiB  4.00 GiB   11.69 GiB     8.00 GiB (llama)  driver (dmem)  discrete  NVIDIA GeForce RTX 3090
"
    );
    let json: serde_json::Value =
        serde_json::from_str(&json(&inventory, Some(&slice), &cards).unwrap()).unwrap();
    let device = &json["devices"][0];
    assert_eq!(device["limit"], 8u64 << 30);
    assert_eq!(json["slice"]["name"], "llama");
    assert_eq!(
        (&device["fence"], &device["driver_limit"]),
        (&"driver".into(), &"dmem".into())
    );
    assert!(device["fence_reason"].is_null());
    assert_eq!(device["used"], 5u64 << 30);
    assert_eq!(device["left_to_give"], 12_553_224_192u64);
}
