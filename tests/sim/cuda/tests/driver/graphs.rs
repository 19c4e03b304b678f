//! Graphs: they are charged when they are launched, until their idle memory is trimmed.

use crate::probe::{MIB, Probe, Sim};

fn attributes(process: &mut Probe) -> [u64; 4] {
    [0, 1, 2, 3].map(|attribute| {
        process.ok(&format!(
            "cuDeviceGetGraphMemAttribute 0 {attribute} @value"
        ));
        process.show("value")
    })
}

#[test]
fn a_captured_allocation_is_charged_when_its_graph_is_launched() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    process.ok("cuMemAlloc_v2 @other 4096");
    let before = process.free();
    process.ok("cuStreamCreate @stream 0");
    process.ok("cuStreamBeginCapture_v2 $stream 0");
    process.ok("cuStreamIsCapturing $stream @value");
    assert_eq!(process.show("value") & 0xffff_ffff, 1);
    process.ok(&format!("cuMemAllocAsync @a {} $stream", 5 * MIB));
    process.ok(&format!("cuMemAllocAsync @b {} $stream", 3 * MIB));
    process.ok("cuMemFreeAsync $a $stream");
    assert_eq!(
        process.call("cuMemFreeAsync $other $stream"),
        1,
        "the memory is not a graph's"
    );
    process.ok("cuStreamEndCapture $stream @graph");
    process.ok("cuGraphInstantiateWithFlags @exec $graph 0");
    assert_eq!(process.free(), before);
    process.ok("cuGraphLaunch $exec $stream");
    assert_eq!(before - process.free(), 8 * MIB);
    assert_eq!(
        attributes(&mut process),
        [3 * MIB, 8 * MIB, 8 * MIB, 8 * MIB]
    );
    assert_eq!(process.call("cuGraphLaunch $exec $stream"), 1, "not freed");
    process.ok("cuMemFree_v2 $b");
    process.ok("cuGraphExecDestroy $exec");
    process.ok("cuGraphDestroy $graph");
    assert_eq!(before - process.free(), 8 * MIB, "still reserved");
    process.ok("cuDeviceGraphMemTrim 0");
    assert_eq!(process.free(), before);
}

#[test]
fn a_graph_that_does_not_fit_is_out_of_memory_and_takes_nothing() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok("cuStreamCreate @stream 0");
    process.ok("cuStreamBeginCapture_v2 $stream 0");
    process.ok(&format!("cuMemAllocAsync @a {} $stream", before + MIB));
    process.ok("cuStreamEndCapture $stream @graph");
    process.ok("cuGraphInstantiateWithFlags @exec $graph 0");
    assert_eq!(process.call("cuGraphLaunch $exec $stream"), 2);
    assert_eq!(process.free(), before);
}

#[test]
fn a_green_context_keeps_the_primary_one() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok("put resource 8:1");
    process.ok("cuDevResourceGenerateDesc @description @resource 1");
    process.ok("cuGreenCtxCreate @green $description 0 1");
    assert_eq!(process.free(), before, "it is there already");
    process.ok("cuDevicePrimaryCtxRelease_v2 0");
    process.ok("cuCtxFromGreenCtx @context $green");
    process.ok("cuCtxSetCurrent $context");
    process.ok(&format!("cuMemAlloc_v2 @a {}", 4 * MIB));
    assert_eq!(before - process.free(), 4 * MIB);
    process.ok("cuGreenCtxDestroy $green");
    assert_eq!(process.call("cuCtxSetCurrent $context"), 201, "gone");
}

#[test]
fn a_destroyed_pool_keeps_what_it_reserved_until_the_last_of_it_is_freed() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok("put properties 4:1 4:0 4:1 4:0 8:0 8:0 8:0");
    process.ok("cuMemPoolCreate @pool @properties");
    process.ok(&format!("cuMemAllocFromPoolAsync @a {MIB} $pool 0"));
    process.ok("cuMemPoolDestroy $pool");
    assert_eq!(process.call("cuMemPoolTrimTo $pool 0"), 1, "destroyed");
    assert_eq!(before - process.free(), 32 * MIB);
    process.ok("cuMemFreeAsync $a 0");
    assert_eq!(process.free(), before);
}
