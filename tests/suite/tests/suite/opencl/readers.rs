//! Programs that ask OpenCL how much memory a device has.
//! Touches: clinfo and pyopencl, unmodified.

use super::{fact, on_the_card};
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use gpuslice_suite::worker::Counted;
use serde_json::json;

/// An RTX 3090, as CUDA and OpenCL report it.
const CARD: u64 = 25_438_126_080;

fn clinfo(run: Run) -> [u64; 2] {
    let answer = on_the_card(run).arg("--raw").answer();
    let number = |name| fact(&answer.stdout, name).parse().unwrap();
    ["CL_DEVICE_GLOBAL_MEM_SIZE", "CL_DEVICE_MAX_MEM_ALLOC_SIZE"].map(number)
}

#[test]
fn clinfo_reports_the_slice() {
    let machine = Machine::new("rtx3090");
    let bare = machine.place(Run::new("clinfo"));
    assert_eq!(clinfo(bare), [CARD, CARD / 4]);

    let slice = Counted::new("rtx3090", 4 * GIB);
    assert_eq!(clinfo(slice.run("clinfo")), [4 * GIB, 4 * GIB]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn clinfo_reports_the_slice_through_khronos_loader_too() {
    let loader = place::target().join("khronos");
    let folders = format!("{}:{}", loader.display(), place::sim().display());
    let slice = Counted::new("rtx3090", 4 * GIB);
    let run = slice.run("clinfo").env("LD_LIBRARY_PATH", folders);
    let said = on_the_card(run).arg("--raw").answer();
    assert_eq!(
        fact(&said.stdout, "CL_DEVICE_GLOBAL_MEM_SIZE"),
        (4 * GIB).to_string()
    );
    assert!(
        said.stdout.contains("Khronos OpenCL ICD Loader"),
        "{said:?}"
    );
}

#[test]
fn without_a_slice_the_driver_answers() {
    let machine = Machine::new("rtx3090");
    let run = machine.place(Run::new("clinfo")).with_shim();
    assert_eq!(clinfo(run), [CARD, CARD / 4]);
    // A slice without a ledger reports its numbers, too.
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = machine.place(Run::new("clinfo")).with_shim().slice(&file);
    assert_eq!(clinfo(run), [8 * GIB, CARD / 4]);
}

#[test]
fn pyopencl_reports_the_slice_and_is_refused_beyond_it() {
    let script = place::source("python/opencl.py");
    let run = |run: Run| {
        on_the_card(run)
            .arg(&script)
            .arg((100u64 << 20).to_string())
            .answer()
    };
    let slice = Counted::new("rtx3090", GIB);
    let said = run(slice.run(place::venv("python"))).clean();
    let expected = "NVIDIA GeForce RTX 3090 1073741824 1073741824\n\
        10 buffers, then create_buffer failed: MEM_OBJECT_ALLOCATION_FAILURE\n\
        9 buffers beside a part of 52428800\n";
    assert_eq!(said, expected);
    slice.buried(0);
    assert_eq!(slice.counted(), 0);
}

#[test]
fn each_device_of_a_machine_has_its_own_limit() {
    let uuid = |last| format!("GPU-200aaaaa-2222-4333-8444-55556666000{last}");
    let keys = json!({"devices": [
        {"uuid": uuid(0), "memory": 8 * GIB},
        {"uuid": uuid(1), "memory": 20 * GIB},
    ]});
    let slice = Counted::of_devices("2xh200", &keys, 2);
    let script = place::source("python/opencl.py");
    let run = on_the_card(slice.run(place::venv("python"))).arg(&script);
    let line = |bytes: u64| format!("NVIDIA H200 {bytes} {bytes}\n");
    assert_eq!(run.answer().clean(), line(8 * GIB) + &line(20 * GIB));
}

#[test]
fn a_device_that_the_slice_does_not_limit_is_the_drivers() {
    let uuid = "GPU-200aaaaa-2222-4333-8444-555566660001";
    let keys = json!({"devices": [{"uuid": uuid, "memory": 8 * GIB}]});
    let slice = Counted::of_devices("2xh200", &keys, 1);
    let script = place::source("python/opencl.py");
    let run = on_the_card(slice.run(place::venv("python"))).arg(&script);
    let card: u64 = 150_119_383_040;
    let (first, second) = ((card, card / 4), (8 * GIB, 8 * GIB));
    let line = |(total, most)| format!("NVIDIA H200 {total} {most}\n");
    assert_eq!(run.answer().clean(), line(first) + &line(second));
}

#[test]
fn a_mig_instance_has_its_limit() {
    let slice = Counted::new("h200-mig", 8 * GIB);
    let [total, _] = clinfo(slice.run("clinfo"));
    assert_eq!(total, 8 * GIB);
}

#[test]
fn on_unified_memory_opencl_reports_what_cuda_reports() {
    let slice = Counted::new("gb10", 8 * GIB);
    let [total, most] = clinfo(slice.run("clinfo"));
    assert_eq!([total, most], [8 * GIB, 8 * GIB]);
}
