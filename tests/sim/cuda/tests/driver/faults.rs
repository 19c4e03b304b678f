//! Faults that are injected on purpose.

use crate::probe::{GIB, MIB, Sim, built};
use std::time::{Duration, Instant};

fn with(fault: &str) -> (Sim, crate::probe::Probe) {
    let sim = Sim::new("rtx3090");
    let process = sim.process_with(&[("GPUSLICE_SIM_FAULTS", fault)]);
    (sim, process)
}

#[test]
fn the_nth_allocation_is_out_of_memory() {
    let (_sim, mut process) = with("oom@2");
    process.context(0);
    let codes = ["a", "b", "c"].map(|name| process.alloc(name, MIB));
    assert_eq!(codes, [0, 2, 0]);
}

#[test]
fn a_lost_gpu_answers_nothing_any_more() {
    let (_sim, mut process) = with("lost@4");
    process.context(0);
    assert_eq!(process.call("cuMemGetInfo_v2 @free @total"), 999);
    process.ok("nvmlInit_v2");
    process.ok("nvmlDeviceGetCount_v2 @count");
    process.ok("nvmlDeviceGetHandleByIndex_v2 0 @gpu");
    process.ok("nvmlDeviceGetMemoryInfo $gpu @memory");
    assert_eq!(
        process.call("nvmlDeviceGetMemoryInfo $gpu @memory"),
        15,
        "each library counts its own calls"
    );
    process.ok("nvmlSystemGetDriverVersion @version 80");
}

#[test]
fn a_slow_call_takes_its_time() {
    let (_sim, mut process) = with("slow:cuMemGetInfo_v2=50ms");
    process.context(0);
    let start = Instant::now();
    process.free();
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[test]
fn free_may_move_between_two_calls() {
    let (_sim, mut process) = with("free-moves=64MiB");
    process.context(0);
    let first = process.free();
    assert_eq!(first - process.free(), 64 * MIB);
}

#[test]
fn a_driver_that_looks_itself_up_says_the_same() {
    let (sim, mut process) = with("self-dlsym");
    process.context(0);
    let mut other = sim.process();
    other.context(0);
    assert_eq!(process.info(), other.info());
    process.ok("nvmlInit_v2");
    process.ok("nvmlDeviceGetHandleByIndex_v2 0 @gpu");
    process.ok("nvmlDeviceGetMemoryInfo $gpu @memory");
    assert_eq!(process.show_at("memory", 8, 8), process.free());
}

#[test]
fn an_unknown_fault_stops_everything() {
    let (_sim, mut process) = with("oom@2,frobnicate");
    assert_eq!(process.call("cuInit 0"), 1);
}

#[test]
fn in_an_old_driver_the_names_are_really_missing() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_of_driver(&built().join("old"));
    process.context(0);
    assert_eq!(process.say("cuMemAllocAsync @a 1 0"), "missing");
    assert_eq!(process.say("cuGetProcAddress_v2 0 0 0 0 0"), "missing");
    assert_eq!(process.say("nvmlDeviceGetMemoryInfo_v2 0 0"), "missing");
    assert_eq!(
        process.call("cuGetProcAddress \"cuMemAllocAsync\" @found 13000 0"),
        500
    );
    assert_eq!(
        process.call("cuGetProcAddress \"cuMemAlloc\" @found 13000 0"),
        0
    );
    assert_eq!(process.alloc("a", GIB), 0);
    process.ok("nvmlInit_v2");
}
