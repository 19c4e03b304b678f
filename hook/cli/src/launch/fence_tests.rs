//! The choice between the limit of the driver and that of the library, for a run.

use super::*;
use crate::driver::inventory::{Device, MigInstance};
use gpuslice_config::slice::ListedDevice;

const CARD: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const SPARK: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";
const INSTANCE: &str = "MIG-b10aaaaa-4444-4555-8666-777788880001";

fn gpu(uuid: &str, integrated: bool, driver_limits: bool) -> Device {
    Device {
        index: 0,
        cuda_ordinal: Some(0),
        uuid: uuid.parse().unwrap(),
        name: "a card".to_owned(),
        total: Bytes::gib(24).get(),
        integrated,
        minor: None,
        driver_limits,
        mig: Vec::new(),
    }
}

fn divided() -> Device {
    Device {
        mig: vec![MigInstance {
            uuid: INSTANCE.parse().unwrap(),
            cuda_ordinal: Some(0),
            name: "an instance".to_owned(),
            total: Bytes::gib(18).get(),
        }],
        ..gpu(CARD, false, false)
    }
}

fn slice(uuids: &[&str]) -> Slice {
    let mut slice = Slice::default();
    for uuid in uuids {
        let listed = ListedDevice {
            uuid: uuid.parse().unwrap(),
            memory: Some(Bytes::gib(6)),
            headroom: None,
            integrated: None,
            driver_limit: None,
            driver_backstop: false,
        };
        slice.list(listed).unwrap();
    }
    slice
}

fn machine(devices: Vec<Device>) -> Inventory {
    Inventory {
        driver: None,
        backend: Some(DriverLimit::Dmem),
        devices,
    }
}

fn planned(wanted: Fence, slice: &Slice, devices: Vec<Device>) -> Result<FencePlan, String> {
    let plan = decide(wanted, slice, &machine(devices), None);
    plan.map_err(|error| error.to_string())
}

#[test]
fn auto_takes_the_driver_where_it_limits_cgroups() {
    let plan = planned(Fence::Auto, &slice(&[CARD]), vec![gpu(CARD, false, true)]).unwrap();
    assert_eq!(plan.devices, [(CARD.parse().unwrap(), Bytes::gib(6))]);
    assert_eq!((plan.name(), plan.why_not.as_deref()), ("driver", None));
    let older = planned(Fence::Auto, &slice(&[CARD]), vec![gpu(CARD, false, false)]).unwrap();
    assert_eq!((older.name(), older.devices.len()), ("preload", 0));
}

#[test]
fn driver_names_the_gpu_that_it_cannot_limit() {
    let both = slice(&[CARD, SPARK]);
    for (devices, why) in [
        (
            vec![gpu(CARD, false, false)],
            "GPU 0 (a card, 24.00 GiB): its driver cannot limit cgroups (R615 and later can)",
        ),
        (
            vec![gpu(CARD, false, true), gpu(SPARK, true, false)],
            "GPU 0 (a card, 24.00 GiB): it shares the host's memory",
        ),
    ] {
        let refused = planned(Fence::Driver, &both, devices).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let refused = planned(Fence::Driver, &slice(&[INSTANCE]), vec![divided()]).unwrap_err();
    assert!(refused.contains("it is a MIG instance"), "{refused}");
}

#[test]
fn a_slice_that_the_driver_holds_in_part_is_not_called_held_by_it() {
    let devices = vec![gpu(CARD, false, true), gpu(SPARK, true, false)];
    let plan = planned(Fence::Auto, &slice(&[CARD, SPARK]), devices).unwrap();
    assert_eq!(plan.devices.len(), 1);
    assert_eq!(plan.name(), "preload");
}

#[test]
fn what_a_slice_shows_or_does_not_refuse_excludes_the_driver() {
    let devices = || vec![gpu(CARD, false, true)];
    let [mut counting, mut percent, mut growing] = [(); 3].map(|()| slice(&[CARD]));
    counting.enforce = false;
    percent.total = Total::Device;
    growing.maximum = Some(Bytes::gib(20));
    for slice in [counting, percent, growing] {
        let plan = planned(Fence::Auto, &slice, devices()).unwrap();
        assert!(plan.devices.is_empty() && plan.why_not.is_some());
        planned(Fence::Driver, &slice, devices()).unwrap_err();
    }
    let plan = planned(Fence::Preload, &slice(&[CARD]), devices()).unwrap();
    assert!(plan.devices.is_empty() && plan.why_not.is_none());
}

#[test]
fn a_limit_above_the_gpus_memory_is_left_to_nobody() {
    let small = Device {
        total: Bytes::gib(4).get(),
        ..gpu(CARD, false, true)
    };
    let plan = planned(Fence::Auto, &slice(&[CARD]), vec![small]).unwrap();
    assert_eq!(plan.devices, []);
}
