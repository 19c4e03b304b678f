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
    assert_eq!(attributes(&mut process), [8 * MIB; 4]);
    assert_eq!(process.call("cuGraphLaunch $exec $stream"), 1, "not freed");
    process.ok("cuMemFree_v2 $b");
    process.ok("cuGraphExecDestroy $exec");
    process.ok("cuGraphDestroy $graph");
    process.ok("cuStreamSynchronize $stream");
    assert_eq!(before - process.free(), 8 * MIB, "still reserved");
    process.ok("cuDeviceGraphMemTrim 0");
    assert_eq!(process.free(), before);
}

/// The modes of a capture: global, thread-local, relaxed.
#[test]
fn a_capture_is_ended_by_the_thread_that_began_it_unless_it_is_relaxed() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    for mode in [0, 1] {
        process.ok("cuStreamCreate @stream 0");
        process.ok(&format!("cuStreamBeginCapture_v2 $stream {mode}"));
        let ended = process.call("thread cuStreamEndCapture $stream @graph");
        assert_eq!(ended, 908, "mode {mode}");
        process.ok("cuStreamIsCapturing $stream @value");
        assert_eq!(process.show("value") & 0xffff_ffff, 1, "mode {mode}");
        process.ok("cuStreamEndCapture $stream @graph");
    }
    process.ok("cuStreamCreate @stream 0");
    process.ok("cuStreamBeginCapture_v2 $stream 2");
    process.ok("thread cuStreamEndCapture $stream @graph");
    assert_eq!(process.call("cuStreamEndCapture $stream @graph"), 401);
}

/// Instantiates a graph of one allocation. Its address is in the variable `at`.
fn instantiate(process: &mut Probe, exec: &str, at: &str, is_freed: bool, flags: u32) {
    process.ok("cuStreamCreate @captured 0");
    process.ok("cuStreamBeginCapture_v2 $captured 0");
    process.ok(&format!("cuMemAllocAsync @{at} {} $captured", 8 * MIB));
    if is_freed {
        process.ok(&format!("cuMemFreeAsync ${at} $captured"));
    }
    process.ok("cuStreamEndCapture $captured @graph");
    process.ok(&format!(
        "cuGraphInstantiateWithFlags @{exec} $graph {flags}"
    ));
}

/// The amounts of the vendor's sample graphMemoryFootprint.
#[test]
fn graphs_share_memory_as_in_the_vendors_sample() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    for exec in ["first", "second"] {
        instantiate(&mut process, exec, "a", true, 0);
    }
    process.ok("cuStreamCreate @one 0");
    process.ok("cuStreamCreate @other 0");
    let footprint = |process: &mut Probe| attributes(process)[0] / MIB;
    assert_eq!(footprint(&mut process), 0, "instantiating maps nothing");
    for exec in ["first", "first", "second"] {
        process.ok(&format!("cuGraphLaunch ${exec} $one"));
        assert_eq!(footprint(&mut process), 8, "{exec}, in one stream");
    }
    process.ok("cuGraphLaunch $second $other");
    assert_eq!(footprint(&mut process), 16, "in another stream");
    process.ok("cuDeviceGraphMemTrim 0");
    assert_eq!(footprint(&mut process), 16, "they still run");
    process.ok("cuStreamSynchronize $one");
    assert_eq!(footprint(&mut process), 16, "it stays mapped");
    process.ok("cuDeviceGraphMemTrim 0");
    assert_eq!(footprint(&mut process), 8, "the other stream's graph runs");
    process.ok("cuCtxSynchronize");
    process.ok("cuDeviceGraphMemTrim 0");
    assert_eq!(footprint(&mut process), 0);
}

#[test]
fn memory_that_a_graph_leaves_allocated_is_shared_with_none() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let footprint = |process: &mut Probe| attributes(process)[0] / MIB;
    for (number, exec) in ["first", "second"].into_iter().enumerate() {
        instantiate(&mut process, exec, &format!("{exec}_at"), false, 0);
        process.ok(&format!("cuGraphLaunch ${exec} 0"));
        assert_eq!(footprint(&mut process), 8 * (number as u64 + 1));
    }
    process.ok("cuStreamSynchronize 0");
    process.ok("cuDeviceGraphMemTrim 0");
    assert_eq!(footprint(&mut process), 16, "it is allocated");
    process.ok("cuMemFree_v2 $first_at");
    assert_eq!(footprint(&mut process), 16, "it stays mapped");
    process.ok("cuDeviceGraphMemTrim 0");
    assert_eq!(footprint(&mut process), 8);
}

#[test]
fn a_graph_that_frees_at_its_launch_is_launched_again_in_the_same_memory() {
    /// CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.
    const AUTO_FREE: u32 = 1;
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    instantiate(&mut process, "exec", "a", false, AUTO_FREE);
    let before = process.free();
    for _ in 0..3 {
        process.ok("cuGraphLaunch $exec 0");
        assert_eq!(before - process.free(), 8 * MIB);
    }
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
