//! Contexts: which threads have one, what each costs, and what ends with it.

use crate::probe::{GIB, MIB, Sim};

const TOTAL: u64 = 25_438_126_080;
const CONTEXT: u64 = 254 * MIB;

#[test]
fn before_init_nothing_is_initialised_and_without_a_context_there_is_none() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    assert_eq!(process.call("cuMemGetInfo_v2 @free @total"), 3);
    assert_eq!(process.call("cuDeviceGetCount @count"), 3);
    assert_eq!(process.call("cuInit 1"), 1);
    process.ok("cuDriverGetVersion @version");
    process.ok("cuInit 0");
    assert_eq!(process.call("cuMemGetInfo_v2 @free @total"), 201);
    assert_eq!(process.call("cuMemAlloc_v2 @a 4096"), 201);
    assert_eq!(process.call("cuCtxGetDevice @device"), 201);
    assert_eq!(process.call("cuDeviceTotalMem_v2 @total 1"), 101);
    process.ok("cuDeviceTotalMem_v2 @total 0");
    assert_eq!(process.show("total"), TOTAL);
}

#[test]
fn a_worker_thread_has_no_context_of_its_own() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.call("thread cuMemGetInfo_v2 @free @total"), 201);
    assert_eq!(process.call("thread cuCtxSetCurrent $context"), 0);
    assert_eq!(process.call("cuMemGetInfo_v2 @free @total"), 0);
}

#[test]
fn every_created_context_costs_and_a_primary_one_costs_once() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    process.ok("cuDevicePrimaryCtxRetain @again 0");
    assert_eq!(process.free(), TOTAL - CONTEXT);
    process.ok("cuCtxCreate_v2 @one 0 0");
    process.ok("cuCtxCreate_v4 @two 0 0 0");
    assert_eq!(process.free(), TOTAL - 3 * CONTEXT);
    process.ok("cuCtxDestroy_v2 $two");
    process.ok("cuCtxDestroy_v2 $one");
    assert_eq!(process.free(), TOTAL - CONTEXT);
    assert_eq!(process.call("cuCtxDestroy_v2 $one"), 201);
}

#[test]
fn what_a_context_allocated_dies_with_it() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", GIB), 0);
    assert_eq!(process.alloc("b", 100), 0);
    process.ok(&format!("cuMemAllocAsync @c {GIB} 0"));
    process.ok("cuDevicePrimaryCtxRelease_v2 0");
    assert_eq!(sim.device(0).used, 0);
    assert_eq!(process.call("cuMemGetInfo_v2 @free @total"), 709);
    assert_eq!(process.call("cuDevicePrimaryCtxRelease_v2 0"), 201);
    process.ok("cuDevicePrimaryCtxRetain @context 0");
    assert_eq!(process.free(), TOTAL - CONTEXT);
}

#[test]
fn contexts_stack_up() {
    let sim = Sim::new("2xh200");
    let mut process = sim.process_with_context();
    process.ok("cuDevicePrimaryCtxRetain @second 1");
    process.ok("cuCtxPushCurrent_v2 $second");
    process.ok("cuCtxGetDevice @device");
    assert_eq!(process.show_at("device", 4, 0), 1);
    process.ok("cuCtxPopCurrent_v2 @popped");
    process.ok("cuCtxGetDevice @device");
    assert_eq!(process.show_at("device", 4, 0), 0);
    process.ok("cuCtxSetCurrent 0");
    assert_eq!(process.call("cuCtxGetDevice @device"), 201);
}

#[test]
fn visible_devices_are_chosen_by_number_and_by_uuid() {
    let sim = Sim::new("2xh200+rtx3090");
    let count = |list: &str| {
        let mut process = sim.process_with(&[("CUDA_VISIBLE_DEVICES", list)]);
        let rc = process.call("cuInit 0");
        process.call("cuDeviceGetCount @count");
        (rc, process.show_at("count", 4, 0))
    };
    assert_eq!(count("0,2"), (0, 2));
    assert_eq!(count("2,9,0"), (0, 1));
    assert_eq!(count("GPU-3090"), (0, 1));
    assert_eq!(count(""), (100, 0));
    assert_eq!(count("-1"), (100, 0));
    let mut process = sim.process_with(&[("CUDA_VISIBLE_DEVICES", "GPU-3090aaaa")]);
    process.context(0);
    assert_eq!(process.info(), (TOTAL - CONTEXT, TOTAL));
    process.ok("cuDeviceGetName @name 100 0");
    assert_eq!(process.say("text name"), "NVIDIA GeForce RTX 3090");
}

#[test]
fn a_mig_machine_shows_one_instance_at_a_time() {
    let sim = Sim::new("h200-mig");
    let mut first = sim.process_with_context();
    assert_eq!(first.info(), ((71_300 - 300) * MIB, 71_300 * MIB));
    first.ok("cuDeviceGetCount @count");
    assert_eq!(first.show_at("count", 4, 0), 1);
    let mut second = sim.process_with(&[("CUDA_VISIBLE_DEVICES", "MIG-b2222222")]);
    second.context(0);
    assert_eq!(second.info(), ((16_334 - 300) * MIB, 16_334 * MIB));
    assert_eq!(first.info().0, (71_300 - 300) * MIB);
    second.ok("cuDeviceGetUuid @gpu 0");
    second.ok("cuDeviceGetUuid_v2 @mig 0");
    assert_eq!(second.show_at("gpu", 2, 0), 0x0a20);
    assert_eq!(second.show_at("mig", 2, 0), 0x22b2);
}
