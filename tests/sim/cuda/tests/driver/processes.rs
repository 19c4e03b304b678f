//! Several processes on one machine: they see each other, and dead processes hold nothing.

use crate::probe::{GIB, MIB, Sim};

const TOTAL: u64 = 25_438_126_080;
const CONTEXT: u64 = 254 * MIB;

#[test]
fn one_process_sees_what_the_other_took() {
    let sim = Sim::new("rtx3090");
    let (mut one, mut other) = (sim.process_with_context(), sim.process_with_context());
    assert_eq!(one.alloc("a", 5 * GIB), 0);
    assert_eq!(other.free(), TOTAL - 2 * CONTEXT - 5 * GIB);
    assert_eq!(other.alloc("a", 19 * GIB), 2);
}

#[test]
fn a_killed_process_holds_nothing_at_the_next_query() {
    let sim = Sim::new("rtx3090");
    let (mut one, mut other) = (sim.process_with_context(), sim.process_with_context());
    assert_eq!(one.alloc("a", 5 * GIB), 0);
    one.kill();
    assert_eq!(other.free(), TOTAL - CONTEXT);
    assert_eq!(sim.device(0).processes.len(), 1);
}

#[test]
fn a_slot_is_used_again_after_a_kill() {
    let sim = Sim::new("rtx3090");
    for _ in 0..140 {
        let mut process = sim.process_with_context();
        assert_eq!(process.alloc("a", GIB), 0);
        process.kill();
    }
    assert_eq!(sim.device(0).used, 0);
}

#[test]
fn a_fork_child_is_not_initialised_and_takes_nothing_with_it() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", GIB), 0);
    assert_eq!(process.call("fork cuMemGetInfo_v2 @free @total"), 3);
    assert_eq!(process.call("fork cuInit 0"), 3);
    assert_eq!(process.call("fork cuMemFree_v2 $a"), 3);
    assert_eq!(process.call("fork nvmlInit_v2"), 0);
    assert_eq!(process.free(), TOTAL - CONTEXT - GIB);
}

#[test]
fn a_process_may_fork_before_it_initialises() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    process.ok("cuDriverGetVersion @version");
    assert_eq!(process.call("fork cuInit 0"), 0);
    process.context(0);
}

#[test]
fn a_program_that_execs_another_holds_nothing() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", GIB), 0);
    process.ok("exec");
    process.context(0);
    assert_eq!(process.free(), TOTAL - CONTEXT);
    assert_eq!(sim.device(0).processes.len(), 1);
}

#[test]
fn looking_on_from_the_same_process_does_not_make_it_look_dead() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    // NVML is a second library in the process that opens the same machine.
    process.ok("nvmlInit_v2");
    process.ok("nvmlShutdown");
    assert_eq!(process.alloc("a", GIB), 0);
    assert_eq!(sim.device(0).used, CONTEXT + GIB);
    assert_eq!(process.nvml(0).1[3], CONTEXT + GIB);
}

#[test]
fn another_scenario_in_the_same_state_is_refused() {
    let sim = Sim::new("rtx3090");
    drop(sim.process_with_context());
    let mut process = sim.process_with(&[("GPUSLICE_SIM", "gb10")]);
    assert_eq!(process.call("cuInit 0"), 1);
    assert_eq!(process.call("nvmlInit_v2"), 9);
}

#[test]
fn a_driver_limit_of_a_cgroup_is_stored_and_kept() {
    let sim = Sim::new("rtx3090@615");
    let mut process = sim.process_with_context();
    process.ok("nvmlInit_v2");
    process.ok("nvmlDeviceGetHandleByIndex_v2 0 @gpu");
    process.ok(&format!("put limits 8:\"/\" 8:{GIB} 8:{}", 2 * GIB));
    // The path is read during the call, so it must be in a variable to which the struct points.
    process.ok("put path 8:0x2f");
    process.ok(&format!("put limits 8:@path 8:{GIB} 8:{}", 2 * GIB));
    process.ok("nvmlDeviceSetMemoryLimits_v1 $gpu @limits");
    assert_eq!(process.alloc("a", GIB), 0);
    assert_eq!(process.alloc("b", GIB), 2);
    process.ok("put limits 8:@path 8:0 8:0 8:0");
    process.ok("nvmlDeviceGetMemoryLimits_v1 $gpu @limits");
    assert_eq!(
        [8, 16, 24].map(|at| process.show_at("limits", 8, at)),
        [GIB, 2 * GIB, CONTEXT + GIB]
    );
}
