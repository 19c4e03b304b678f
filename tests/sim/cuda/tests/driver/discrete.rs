//! A card with memory of its own, and the cost of plain allocations.

use crate::probe::{GIB, MIB, Sim};
use gpuslice_sim_machine::Kind;

const TOTAL: u64 = 25_438_126_080;
const CONTEXT: u64 = 254 * MIB;

#[test]
fn an_idle_card_has_all_but_the_context_free() {
    let sim = Sim::new("rtx3090");
    assert_eq!(sim.process_with_context().info(), (TOTAL - CONTEXT, TOTAL));
}

#[test]
fn memory_goes_in_steps_of_two_mebibytes() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    assert_eq!(process.alloc("a", 3 * MIB), 0);
    assert_eq!(before - process.free(), 4 * MIB);
    assert_eq!(process.alloc("b", 2 * MIB + 1), 0);
    assert_eq!(before - process.free(), 8 * MIB);
    process.ok("cuMemFree_v2 $a");
    process.ok("cuMemFree_v2 $b");
    assert_eq!(process.free(), before);
}

#[test]
fn small_allocations_share_a_step() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    for i in 0..8 {
        assert_eq!(process.alloc(&format!("v{i}"), 256), 0);
    }
    assert_eq!(before - process.free(), 2 * MIB);
    for i in 0..8 {
        process.ok(&format!("cuMemFree_v2 $v{i}"));
    }
    assert_eq!(process.free(), before);
}

#[test]
fn freeing_nothing_is_fine_and_freeing_twice_is_not() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", GIB), 0);
    assert_eq!(process.call("cuMemFree_v2 0"), 0);
    assert_eq!(process.call("cuMemFree_v2 $a"), 0);
    assert_eq!(process.call("cuMemFree_v2 $a"), 1);
    assert_eq!(process.alloc("a", 0), 1);
}

#[test]
fn what_is_free_can_be_allocated_and_one_step_more_is_out_of_memory() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let whole_steps = process.free() / (2 * MIB) * (2 * MIB);
    assert_eq!(process.alloc("a", whole_steps + 2 * MIB), 2);
    assert_eq!(
        process.free(),
        TOTAL - CONTEXT,
        "a refused allocation changes nothing"
    );
    assert_eq!(process.alloc("a", whole_steps), 0);
    assert_eq!(process.alloc("b", 2 * MIB), 2);
    assert_eq!(process.alloc("b", u64::MAX), 2);
}

#[test]
fn the_32_bit_functions_say_all_ones_when_it_does_not_fit() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    process.ok("put free 8:0");
    process.ok("put total 8:0");
    process.ok("cuMemGetInfo @free @total");
    process.ok("cuDeviceTotalMem @size 0");
    let all_ones = u64::from(u32::MAX);
    assert_eq!(
        (
            process.show("free"),
            process.show("total"),
            process.show("size")
        ),
        (all_ones, all_ones, all_ones)
    );
    let before = process.free();
    process.ok("cuMemAlloc @low 1073741824");
    assert!(process.show_at("low", 8, 0) < 1 << 32);
    assert_eq!(before - process.free(), GIB);
    process.ok("cuMemFree $low");
    assert_eq!(process.free(), before);
}

#[test]
fn a_pitched_allocation_costs_its_real_pitch() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok("cuMemAllocPitch_v2 @a @pitch 1000 100000 4");
    assert_eq!(process.show("pitch"), 1024);
    assert_eq!(
        before - process.free(),
        (1024 * 100_000_u64).next_multiple_of(2 * MIB)
    );
}

#[test]
fn arrays_cost_what_their_requirements_say() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    // 4096 x 4096 texels of four 32-bit floats.
    process.ok("put described 8:4096 8:4096 4:0x20 4:4");
    process.ok("cuArrayCreate_v2 @array @described");
    assert_eq!(before - process.free(), 256 * MIB);
    let requirements = "cuArrayGetMemoryRequirements @needs $array 0";
    assert_eq!(process.call(requirements), 1, "its memory is mapped");
    process.ok("cuArrayDestroy $array");
    assert_eq!(process.call("cuArrayDestroy $array"), 400);
    assert_eq!(process.free(), before);
    process.ok("put described 8:1024 8:1024 8:0 4:0x01 4:4 4:0");
    process.ok("cuMipmappedArrayCreate @array @described 11");
    // 4 MiB and a third of it for the smaller levels.
    assert_eq!(before - process.free(), 6 * MIB);
    process.ok("cuMipmappedArrayDestroy $array");
    // Of deferred mapping: it holds nothing, and says what it needs.
    process.ok("put described 8:4096 8:4096 8:0 4:0x20 4:4 4:0x80");
    process.ok("cuArray3DCreate_v2 @array @described");
    assert_eq!(process.free(), before);
    process.ok("cuArrayGetMemoryRequirements @needs $array 0");
    assert_eq!(process.show("needs"), 256 * MIB);
}

#[test]
fn managed_memory_costs_when_it_is_moved_and_spills_when_it_does_not_fit() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok(&format!("cuMemAllocManaged @a {} 1", 30 * GIB));
    assert_eq!(process.free(), before);
    process.ok(&format!("cuMemPrefetchAsync $a {GIB} 0 0"));
    assert_eq!(before - process.free(), GIB);
    process.ok(&format!("cuMemPrefetchAsync $a {} 0 0", 30 * GIB));
    assert!(process.free() < 2 * MIB);
    // To the host by its location: type 2, id 0.
    process.ok(&format!("cuMemPrefetchAsync_v2 $a {} 2 0 0", 30 * GIB));
    assert_eq!(process.free(), before);
    process.ok(&format!("cuMemPrefetchAsync $a {GIB} 0 0"));
    process.ok("cuMemFree_v2 $a");
    assert_eq!(process.free(), before);
}

#[test]
fn pinned_host_memory_costs_no_device_memory() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok(&format!("cuMemHostAlloc @a {GIB} 0"));
    process.ok(&format!("cuMemAllocHost_v2 @b {GIB}"));
    assert_eq!(process.free(), before);
    process.ok("cuMemFreeHost $a");
    assert_eq!(process.call("cuMemFreeHost $a"), 1);
}

#[test]
fn copies_really_happen() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", GIB), 0);
    process.ok("put from 8:0x1122334455667788");
    process.ok("cuMemcpyHtoD_v2 $a @from 8");
    process.ok("cuMemcpyDtoH_v2 @to $a 8");
    assert_eq!(process.show("to"), 0x1122_3344_5566_7788);
    process.ok("cuMemsetD8_v2 $a 0x5a 4");
    process.ok("cuMemcpyDtoHAsync_v2 @to $a 8 0");
    assert_eq!(process.show("to"), 0x1122_3344_5a5a_5a5a);
}

#[test]
fn an_address_knows_its_allocation() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", GIB), 0);
    let base = process.show("a");
    process.ok(&format!(
        "cuMemGetAddressRange_v2 @base @bytes {}",
        base + 4096
    ));
    assert_eq!((process.show("base"), process.show("bytes")), (base, GIB));
    process.ok(&format!("cuPointerGetAttribute @kind 2 {}", base + 4096));
    assert_eq!(process.show_at("kind", 4, 0), 2);
    assert_eq!(process.call("cuPointerGetAttribute @kind 2 4096"), 1);
}

#[test]
fn the_truth_names_every_kind() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", 2 * GIB), 0);
    process.ok(&format!("cuMemAllocAsync @b {} 0", 64 * MIB));
    let device = sim.device(0);
    let own = &device.processes[0];
    assert_eq!(
        (own.pid, own.contexts, device.used),
        (process.pid(), 1, own.used)
    );
    assert_eq!(
        [Kind::Context, Kind::Alloc, Kind::Pool, Kind::Vmm].map(|kind| own.kind(kind)),
        [CONTEXT, 2 * GIB, 64 * MIB, 0]
    );
    assert_eq!(device.free, process.free());
}
