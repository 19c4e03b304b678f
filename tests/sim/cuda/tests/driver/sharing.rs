//! Memory other than plain allocations: VMM handles and IPC, within and between processes.

use crate::probe::{GIB, MIB, Probe, Sim};

/// A device allocation that may be exported as a file descriptor.
const PROP: &str = "put prop 4:1 4:1 4:1 4:0 8:0 8:0";

fn create(process: &mut Probe, bytes: u64) {
    process.ok(PROP);
    process.ok(&format!("cuMemCreate @handle {bytes} @prop 0"));
}

fn map(process: &mut Probe, bytes: u64) {
    process.ok(&format!("cuMemAddressReserve @at {bytes} 0 0 0"));
    process.ok(&format!("cuMemMap $at {bytes} 0 $handle 0"));
    process.ok("put access 4:1 4:0 4:3");
    process.ok(&format!("cuMemSetAccess $at {bytes} @access 1"));
}

#[test]
fn a_handle_costs_until_its_last_mapping_and_its_last_reference_are_gone() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok(&format!("cuMemAddressReserve @nothing {GIB} 0 0 0"));
    assert_eq!(process.free(), before, "addresses cost nothing");
    create(&mut process, GIB);
    assert_eq!(before - process.free(), GIB);
    map(&mut process, GIB);
    assert_eq!(before - process.free(), GIB);
    process.ok("cuMemsetD8_v2 $at 7 64");
    process.ok("cuMemRelease $handle");
    assert_eq!(before - process.free(), GIB, "still mapped");
    process.ok("cuMemRetainAllocationHandle @again $at");
    process.ok(&format!("cuMemUnmap $at {GIB}"));
    assert_eq!(before - process.free(), GIB, "still referenced");
    process.ok("cuMemRelease $again");
    assert_eq!(process.free(), before);
    process.ok(&format!("cuMemAddressFree $at {GIB}"));
    assert_eq!(process.call("cuMemRelease $again"), 1);
}

#[test]
fn a_host_handle_costs_no_device_memory_and_odd_sizes_are_refused() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok(PROP);
    assert_eq!(process.call("cuMemCreate @handle 4096 @prop 0"), 1);
    process.ok("put prop 4:1 4:0 4:2 4:0 8:0 8:0");
    process.ok(&format!("cuMemCreate @handle {GIB} @prop 0"));
    assert_eq!(process.free(), before);
}

#[test]
fn an_imported_handle_costs_nothing_and_outlives_its_exporter() {
    let sim = Sim::new("rtx3090");
    let (mut one, mut other) = (sim.process_with_context(), sim.process_with_context());
    create(&mut one, GIB);
    let before = other.free();
    one.ok("cuMemExportToShareableHandle @fd $handle 1 0");
    let fd = one.show_at("fd", 4, 0);
    other.ok(&format!("file fd /proc/{}/fd/{fd}", one.pid()));
    other.ok("cuMemImportFromShareableHandle @handle $fd 1");
    assert_eq!(other.free(), before);
    map(&mut one, GIB);
    map(&mut other, GIB);
    one.ok("cuMemsetD8_v2 $at 0x42 8");
    other.ok("cuMemcpyDtoH_v2 @to $at 8");
    assert_eq!(
        other.show("to"),
        0x4242_4242_4242_4242,
        "it is the same memory"
    );
    one.kill();
    assert_eq!(
        sim.device(0).used,
        GIB + 254 * MIB,
        "one context is gone, the memory stays"
    );
    assert_eq!(
        sim.device(0).processes[0].used,
        GIB + 254 * MIB,
        "and now it counts for its holder"
    );
    other.ok("cuMemRelease $handle");
    other.ok(&format!("cuMemUnmap $at {GIB}"));
    assert_eq!(sim.device(0).used, 254 * MIB);
}

#[test]
fn ipc_memory_costs_its_exporter_alone() {
    let sim = Sim::new("rtx3090");
    let (mut one, mut other) = (sim.process_with_context(), sim.process_with_context());
    assert_eq!(one.alloc("a", GIB), 0);
    let before = other.free();
    one.ok("cuIpcGetMemHandle @handle $a");
    let handle: Vec<String> = (0..8)
        .map(|i| format!("8:{}", one.show_at("handle", 8, i * 8)))
        .collect();
    other.ok(&format!("put handle {}", handle.join(" ")));
    other.ok("cuIpcOpenMemHandle_v2 @b *handle 1");
    assert_eq!(other.free(), before);
    let used = |process: &Probe| {
        let device = sim.device(0);
        device
            .processes
            .iter()
            .find(|it| it.pid == process.pid())
            .unwrap()
            .used
    };
    assert_eq!((used(&one), used(&other)), (GIB + 254 * MIB, 254 * MIB));
    assert_eq!(
        other.call("cuMemFree_v2 $b"),
        1,
        "an import is closed, not freed"
    );
    other.ok("cuIpcCloseMemHandle $b");
    one.ok("cuMemFree_v2 $a");
    assert_eq!(sim.device(0).used, 2 * 254 * MIB);
}
