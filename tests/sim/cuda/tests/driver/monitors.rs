//! NVML on cards that answer.

use crate::probe::{GIB, MIB, Probe, Sim};

const CUDA_TOTAL: u64 = 25_438_126_080;
const CONTEXT: u64 = 254 * MIB;

#[test]
fn total_is_used_and_free_and_reserved() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", GIB), 0);
    let (rc, [total, reserved, free, used]) = process.nvml(0);
    assert_eq!(rc, 0);
    assert_eq!(
        (total, total - reserved, used),
        (24_576 * MIB, CUDA_TOTAL, CONTEXT + GIB)
    );
    assert_eq!(total, used + free + reserved);
    assert_eq!(free, process.free());
    process.ok("nvmlDeviceGetMemoryInfo $gpu @old");
    let [old_total, old_free, old_used] = [0, 8, 16].map(|at| process.show_at("old", 8, at));
    assert_eq!(
        (old_total, old_free, old_used),
        (total, free, used + reserved)
    );
}

#[test]
fn a_wrong_struct_version_is_said_so() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    process.nvml(0);
    process.ok("put memory 4:0x1000028 4:0");
    assert_eq!(process.call("nvmlDeviceGetMemoryInfo_v2 $gpu @memory"), 25);
    assert_eq!(process.call("nvmlDeviceGetMemoryInfo_v2 $gpu 0"), 2);
    assert_eq!(process.call("nvmlDeviceGetMemoryInfo 4711 @memory"), 2);
}

#[test]
fn before_init_and_after_the_last_shutdown_nothing_is_initialised() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    assert_eq!(process.call("nvmlDeviceGetCount_v2 @count"), 1);
    process.ok("nvmlInit_v2");
    process.ok("nvmlInitWithFlags 0");
    process.ok("nvmlShutdown");
    process.ok("nvmlDeviceGetCount_v2 @count");
    process.ok("nvmlShutdown");
    assert_eq!(process.call("nvmlDeviceGetCount_v2 @count"), 1);
    assert_eq!(process.call("nvmlShutdown"), 1);
}

#[test]
fn a_list_that_is_too_short_gets_its_length() {
    let sim = Sim::new("rtx3090");
    let (one, mut other) = (sim.process_with_context(), sim.process_with_context());
    other.nvml(0);
    assert_eq!(
        other.call("nvmlDeviceGetComputeRunningProcesses_v3 $gpu 0 0"),
        2
    );
    other.ok("put count 4:0");
    assert_eq!(
        other.call("nvmlDeviceGetComputeRunningProcesses_v3 $gpu @count 0"),
        7
    );
    assert_eq!(other.show_at("count", 4, 0), 2);
    other.ok("nvmlDeviceGetComputeRunningProcesses $gpu @count @old");
    other.ok("nvmlDeviceGetComputeRunningProcesses_v2 $gpu @count @new");
    let mut pids = [other.show_at("old", 4, 0), other.show_at("old", 4, 16)];
    pids.sort_unstable();
    let mut expected = [u64::from(one.pid()), u64::from(other.pid())];
    expected.sort_unstable();
    assert_eq!(pids, expected);
    assert_eq!(other.show_at("new", 8, 32), CONTEXT);
    assert_eq!(
        other.show_at("new", 4, 16),
        u64::from(u32::MAX),
        "no MIG instance"
    );
    other.ok("nvmlDeviceGetGraphicsRunningProcesses_v3 $gpu @count 0");
    assert_eq!(other.show_at("count", 4, 0), 0);
}

#[test]
fn a_mig_instance_answers_for_itself_and_its_gpu_for_all() {
    let sim = Sim::new("h200-mig");
    let mut process = sim.process_with(&[("CUDA_VISIBLE_DEVICES", "MIG-b2222222")]);
    process.context(0);
    assert_eq!(process.alloc("a", GIB), 0);
    let held = 300 * MIB + GIB;
    assert_eq!(process.nvml(0).1[3], held);
    let instance = |process: &mut Probe, index: u32| {
        process.ok(&format!(
            "nvmlDeviceGetMigDeviceHandleByIndex $gpu {index} @mig"
        ));
        process.ok("nvmlDeviceGetMemoryInfo_v2 $mig @memory");
        [8, 32].map(|at| process.show_at("memory", 8, at))
    };
    assert_eq!(instance(&mut process, 0), [71_424 * MIB, 0]);
    assert_eq!(instance(&mut process, 1), [16_384 * MIB, held]);
    process.ok("nvmlDeviceGetGpuInstanceId $mig @id");
    assert_eq!(process.show_at("id", 4, 0), 9);
    process.ok("nvmlDeviceGetAttributes_v2 $mig @attributes");
    assert_eq!(process.show_at("attributes", 8, 32), 16_384);
    process.ok("nvmlDeviceGetUUID $mig @uuid 96");
    assert!(process.say("text uuid").starts_with("MIG-b2222222"));
    process.ok("nvmlDeviceGetDeviceHandleFromMigDeviceHandle $mig @parent");
    assert_eq!(process.show("parent"), process.show("gpu"));
    assert_eq!(
        process.call("nvmlDeviceGetMigDeviceHandleByIndex $gpu 3 @mig"),
        6
    );
    assert_eq!(process.call("nvmlDeviceGetGpuInstanceId $gpu @id"), 2);
}

#[test]
fn devices_are_found_by_every_name() {
    let sim = Sim::new("2xh200");
    let mut process = sim.process();
    process.nvml(1);
    let second = process.show("gpu");
    process.ok("nvmlDeviceGetUUID $gpu @uuid 96");
    process.ok("nvmlDeviceGetHandleByUUID @uuid @found");
    assert_eq!(process.show("found"), second);
    process.ok("nvmlDeviceGetPciInfo_v3 $gpu @pci");
    assert_eq!(process.say("text pci 36"), "00000000:1A:00.0");
    process.ok("nvmlDeviceGetHandleByPciBusId_v2 \"0000:1A:00.0\" @found");
    assert_eq!(process.show("found"), second);
    assert_eq!(
        process.call("nvmlDeviceGetHandleByUUID \"GPU-none\" @found"),
        6
    );
    assert_eq!(process.call("nvmlDeviceGetUUID $gpu @uuid 8"), 7);
}

#[test]
fn everything_nobody_wrote_is_not_supported() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    process.nvml(0);
    assert_eq!(process.call("nvmlDeviceGetVgpuMetadata $gpu 0 0"), 3);
    assert_eq!(process.call("cuTexRefCreate @texture"), 801);
}
