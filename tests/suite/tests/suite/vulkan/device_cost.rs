//! The memory that a device takes before its first allocation: measured, and charged as a context.

use super::{MIB, NO_ROOM, WAYS, Way, by_manifest, client, seen, take};
use gpuslice_suite::place;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Worker};
use serde_json::json;

const COST: u64 = 96 * MIB;

/// A client whose driver takes memory for each device.
fn on_costly_driver(slice: &Counted, way: Way) -> Worker {
    let run = slice.run(env!("CARGO_BIN_EXE_client-vulkan"));
    client(run.env("GPUSLICE_SIM_FAULTS", "vulkan-device=96MiB"), way)
}

/// The ledger and the machine agree on what the slice holds.
fn holds(slice: &Counted, bytes: u64) {
    assert_eq!((slice.held(), slice.counted()), (bytes, bytes));
}

#[test]
fn each_device_is_charged_what_the_first_one_took() {
    for way in WAYS {
        let slice = Counted::new("rtx3090", GIB);
        let mut vulkan = on_costly_driver(&slice, way);
        vulkan.must("open 0 0 1");
        holds(&slice, COST);
        assert_eq!(seen(&mut vulkan).free, GIB - COST, "{way:?}");
        vulkan.must("open 1 0 1");
        holds(&slice, 2 * COST);
        vulkan.must("shut 0");
        holds(&slice, COST);
        vulkan.kill();
        slice.buried(0);
        holds(&slice, 0);
    }
}

#[test]
fn a_device_for_which_the_slice_has_no_room_is_refused() {
    let slice = Counted::new("rtx3090", GIB);
    let mut vulkan = on_costly_driver(&slice, Way::Loader);
    vulkan.must("open 0 0 1");
    assert_eq!(take(&mut vulkan, 0, GIB - COST - COST / 2), 0);
    assert_eq!(vulkan.code("open 1 0 1"), NO_ROOM);
    assert_eq!(slice.refusals().count, 1);
    holds(&slice, GIB - COST / 2);
    vulkan.must("free 0");
    vulkan.must("open 1 0 1");
    holds(&slice, 2 * COST);
}

#[test]
fn a_device_beside_a_context_of_cuda_is_charged_its_own_growth() {
    let slice = Counted::new("rtx3090", 2 * GIB);
    let mut vulkan = on_costly_driver(&slice, Way::Loader);
    vulkan.must("cuda");
    let context = slice.counted();
    vulkan.must(&format!("alloc 0 {}", 512 * MIB));
    vulkan.must("open 0 0 1");
    holds(&slice, context + 512 * MIB + COST);
}

#[test]
fn a_device_that_nvml_does_not_measure_is_not_charged() {
    // NVML lists no processes on a DGX Spark.
    let slice = Counted::new("gb10", 4 * GIB);
    let mut vulkan = on_costly_driver(&slice, Way::Loader);
    vulkan.must("open 0 0 1");
    assert_eq!((slice.held(), slice.counted()), (COST, 0));
    // NVML's figure for a process is that of one card.
    let slice = Counted::of_devices("2xrtx3090", &json!({"memory": 2 * GIB}), 2);
    let mut vulkan = on_costly_driver(&slice, Way::Loader);
    vulkan.must("open 0 0 2");
    assert_eq!((slice.held(), slice.counted()), (COST, 0));
}

#[test]
fn a_device_that_the_driver_does_not_create_is_not_charged() {
    let slice = Counted::new("rtx3090", 100 * GIB);
    let mut vulkan = on_costly_driver(&slice, Way::Loader);
    vulkan.must("open 0 0 1");
    let program = env!("CARGO_BIN_EXE_client-vulkan");
    let outside = slice
        .machine()
        .place(gpuslice_suite::run::Run::new(program));
    let driver = place::sim().join("libGLX_nvidia.so.0");
    let mut neighbour = Worker::start(by_manifest(outside).arg(driver));
    neighbour.must("open 0 0 1");
    let mut taken = 0;
    for bytes in [GIB, 64 * MIB] {
        while take(&mut neighbour, taken, bytes) == 0 {
            taken += 1;
        }
    }
    assert_eq!(vulkan.code("open 1 0 1"), NO_ROOM);
    assert_eq!(slice.counted(), COST);
}
