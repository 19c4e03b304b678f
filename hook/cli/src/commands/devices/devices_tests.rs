//! Tests of the table of GPUs.

use super::*;
use crate::driver::inventory::{Device, MigInstance};

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
        devices: vec![gpu, divided],
    };
    assert_eq!(
        table(&inventory, None),
        "\
INDEX  CUDA  UUID                                      MEMORY      KIND      NAME
0      1     GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4  23.69 GiB   discrete  NVIDIA GeForce RTX 3090
1      -     GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4  140.40 GiB  divided   NVIDIA H200
       0     MIG-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4  16.00 GiB   instance  NVIDIA H200 MIG 1g.18gb
"
    );
}

#[test]
fn inside_a_slice_its_limit_stands_beside_the_gpus_memory() {
    let uuid = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
    let inventory = Inventory {
        driver: None,
        devices: vec![Device {
            index: 0,
            cuda_ordinal: Some(0),
            uuid: uuid.parse().unwrap(),
            name: "NVIDIA GeForce RTX 3090".to_owned(),
            total: 25_438_126_080,
            integrated: false,
            minor: Some(0),
            driver_limits: false,
            mig: Vec::new(),
        }],
    };
    let text = br#"{"version":1,"memory":8589934592}"#;
    let slice = gpuslice_config::slice::parse(text).unwrap();
    assert_eq!(
        table(&inventory, Some(&slice)),
        "\
INDEX  CUDA  UUID                                      MEMORY     SLICE     KIND      NAME
0      0     GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4  23.69 GiB  8.00 GiB  discrete  NVIDIA GeForce RTX 3090
"
    );
    let json: serde_json::Value =
        serde_json::from_str(&json(&inventory, Some(&slice)).unwrap()).unwrap();
    assert_eq!(json["devices"][0]["slice"], 8u64 << 30);
}
