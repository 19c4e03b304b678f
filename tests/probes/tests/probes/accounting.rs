//! How much every allocating call takes from FREE in a counted slice, by every route; and refusals.
//! Touches: simulated machines, ledgers on tmpfs.

use gpuslice_config::ledger::Refusals;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_probes::{Bench, Linked, ROUTES, compile, patience};
use gpuslice_suite::run::Run;
use std::process::{Child, Stdio};

const MIB: u64 = 1 << 20;
const SLICE: u64 = 8 << 30;
const EIGHT: &str = "\"memory\":8589934592";
/// The MiB that a context holds on a simulated RTX 3090.
const CONTEXT: u64 = 254;
const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

/// Asserts that a probe prints the same by every route, and leaves nothing in the ledger.
fn says(probe: &str, expected: &str) {
    says_on("rtx3090", EIGHT, probe, expected);
}

/// Asserts the same on another machine.
fn says_on(scenario: &str, keys: &str, probe: &str, expected: &str) {
    for route in ROUTES {
        let bench = Bench::counted(scenario, keys);
        let said = bench.probe(probe, 12, route);
        assert_eq!(said, expected, "{probe} by {route}");
        assert_eq!(bench.ledger().slots().count(), 0, "{probe} by {route}");
    }
}

#[test]
fn linear_memory_takes_whole_steps_and_small_requests_share_one() {
    let took = |mib: u64| mib * MIB;
    let expected = format!(
        "cuMemAlloc_v2 0 took={four}\n\
         cuMemAlloc_v2 0 took={six}\n\
         cuMemFree_v2 0 took={two}\n\
         cuMemFree_v2 0 took=0\n\
         cuMemAlloc 0 took={six}\n\
         cuMemFree 0 took=0\n\
         cuMemAllocPitch_v2 0 pitch=1536 took={six}\n\
         cuMemAllocPitch 801 took=0\n\
         cuMemAllocManaged 0 took={four}\n",
        two = took(2),
        four = took(4),
        six = took(6),
    );
    says("cuda_linear", &expected);
}

#[test]
fn contexts_are_counted_and_take_what_was_allocated_in_them_along() {
    let row = |name: &str, used: u64| format!("{name} 0 used={used}\n");
    let (one, held) = (CONTEXT, CONTEXT + 8);
    let expected = [
        row("cuDevicePrimaryCtxRetain", one),
        row("cuDevicePrimaryCtxRetain", one),
        row("cuDevicePrimaryCtxRelease", one),
        row("cuDevicePrimaryCtxRelease_v2", held),
        row("cuDevicePrimaryCtxRelease_v2", 0),
        row("cuDevicePrimaryCtxReset", 0),
        row("cuDevicePrimaryCtxReset_v2", 0),
        row("cuCtxCreate", one),
        row("cuCtxCreate_v2", 2 * one),
        row("cuCtxCreate_v3", 3 * one),
        row("cuCtxCreate_v4", 4 * one),
        row("four", 4 * held),
        row("cuCtxDestroy", 3 * held),
        row("cuCtxDestroy_v2", 2 * held),
        row("cuCtxDestroy_v2", held),
        row("cuCtxDestroy_v2", 0),
        row("cuGLCtxCreate", one),
        row("cuGLCtxCreate_v2", 2 * one),
        row("cuVDPAUCtxCreate", 3 * one),
        row("cuVDPAUCtxCreate_v2", 4 * one),
        row("none", 0),
    ];
    says("cuda_context", &expected.concat());
}

#[test]
fn what_is_free_is_granted_and_one_byte_more_is_out_of_memory() {
    for route in ROUTES {
        let bench = Bench::counted("rtx3090", EIGHT);
        let program = compile("cuda_linear", Linked::All(12));
        let run = bench.run(&program).arg(route).arg("over").with_shim();
        let answer = run.env("GPUSLICE_LOG", "warn").answer();
        let expected = "over 2 2 2 took=0\nall 0 free=0 one more 2 took=0\n";
        assert!(answer.stdout.ends_with(expected), "{answer:?}");
        let free = SLICE - CONTEXT * MIB;
        let [refused, free, all] = [free + 2 * MIB, free, SLICE].map(Bytes::new);
        let line = format!(
            " WARN refused {} on GPU 0: {} free of {all} (1st)\n",
            refused.beside(free),
            free.beside(refused),
        );
        assert!(answer.stderr.ends_with(&line), "{answer:?}");
        let ledger = bench.ledger();
        let uuid: DeviceUuid = UUID.parse().unwrap();
        let refusals = Refusals {
            count: 4,
            regret: Bytes::mib(2),
        };
        assert_eq!(ledger.refusals(ledger.device(&uuid).unwrap()), refusals);
    }
}

#[test]
fn a_slice_that_does_not_enforce_only_counts() {
    let keys = "\"memory\":314572800,\"enforce\":false";
    let bench = Bench::counted("rtx3090", keys);
    let program = compile("cuda_linear", Linked::All(12));
    let run = bench.run(&program).arg("plt").with_shim();
    let counted = run.answer().clean();
    assert!(
        counted.starts_with("cuMemAlloc_v2 0 took=4194304\n"),
        "{counted}"
    );
    let run = bench.run(&program).arg("plt").arg("over").with_shim();
    let said = run.answer().clean();
    assert!(said.contains("over 0 0 0 "), "{said}");
    // Three requests exceed the limit. Two more requests come while the memory of the three is
    // held.
    let ledger = bench.ledger();
    let uuid: DeviceUuid = UUID.parse().unwrap();
    let refusals = ledger.refusals(ledger.device(&uuid).unwrap());
    assert_eq!(refusals.count, 5);
}

/// The lines of `cuda_pool`: a call with its code, and the MiB that are taken after it.
const POOL: &[(&str, u64)] = &[
    ("cuMemAllocAsync 0", 32),
    ("cuMemAllocAsync_ptsz 0", 64),
    ("cuMemFreeAsync 0", 64),
    ("cuMemPoolTrimTo 0", 10),
    ("cuMemFreeAsync_ptsz 0", 10),
    ("cuStreamSynchronize 0", 0),
    ("cuEventSynchronize 0", 0),
    ("cuStreamSynchronize_ptsz 0", 0),
    ("cuCtxSynchronize 0", 0),
    ("cuCtxSynchronize_v2 0", 0),
    ("cuMemPoolCreate 0", 0),
    ("cuMemAllocFromPoolAsync 0", 64),
    ("cuMemAllocFromPoolAsync_ptsz 0", 64),
    ("cuMemPoolDestroy 0", 0),
    ("in use 0", 32),
    ("one 0", 32),
    ("both 0", 0),
    ("in use 0", 32),
    ("one 0", 32),
    ("both 0", 0),
];

/// Lines of names, the driver's codes, and the MiB that are taken after each call.
fn rows(all: &[(&str, u64)]) -> String {
    let row = |(name, took): &(&str, u64)| format!("{name} took={took}\n");
    all.iter().map(row).collect()
}

/// The answer of a probe that goes on to request more than the slice has.
fn over(probe: &str) -> String {
    over_on("rtx3090", EIGHT, probe)
}

fn over_on(scenario: &str, keys: &str, probe: &str) -> String {
    let bench = Bench::counted(scenario, keys);
    let program = compile(probe, Linked::All(12));
    let run = bench.run(&program).arg("plt").arg("over").with_shim();
    let said = run.answer().clean();
    said.lines().next_back().unwrap_or_default().to_owned()
}

#[test]
fn captures_and_the_runtimes_memory_are_as_the_driver_has_them() {
    let expected = "cuStreamBeginCapture 0\ncuStreamEndCapture 0\n\
        cuStreamBeginCapture_ptsz 0\ncuStreamEndCapture_ptsz 0\n\
        cuStreamBeginCapture_v2 0\ncuStreamBeginCapture_v2_ptsz 0\n\
        cuStreamBeginCaptureToGraph 801\ncuStreamBeginCaptureToGraph_ptsz 801\n\
        cudaMalloc 0 took=16\n";
    for keys in [
        EIGHT.to_owned(),
        format!("{EIGHT},\"pressure\":\"release\""),
    ] {
        for route in ROUTES {
            let bench = Bench::counted("rtx3090", &keys);
            assert_eq!(bench.probe("cuda_capture", 12, route), expected, "{route}");
        }
    }
}

#[test]
fn a_pool_takes_what_it_has_reserved_until_it_gives_it_back() {
    says("cuda_pool", &rows(POOL));
}

#[test]
fn a_graph_allocates_at_launch_and_keeps_its_memory_until_trimmed() {
    let expected = rows(&[
        ("cuGraphInstantiate 0", 0),
        ("cuGraphInstantiate_v2 0", 0),
        ("cuGraphInstantiateWithFlags 0", 0),
        ("cuGraphInstantiateWithParams 0", 0),
        ("cuGraphUpload 0", 8),
        ("cuGraphLaunch 0", 8),
        ("again 1", 8),
        ("cuGraphLaunch_ptsz 0", 8),
        ("cuDeviceGraphMemTrim 0", 4),
        ("cuGraphUpload_ptsz 0", 12),
        ("cuGraphInstantiateWithParams_ptsz 0", 8),
        ("cuGraphExecDestroy 0", 8),
        ("cuGraphExecDestroy 0", 8),
        ("cuGraphExecDestroy 0", 8),
        ("cuGraphExecDestroy 0", 8),
        ("cuGraphExecDestroy 0", 8),
        ("captured 0", 0),
        ("launched 0", 34),
        ("cuDeviceGraphMemTrim 0", 0),
    ]);
    says("cuda_graph", &expected);
}

#[test]
fn a_graph_that_does_not_fit_is_refused_at_launch_and_capture_goes_on() {
    let expected = "over 2 took=0 meanwhile 2 ends 0 runs 0 all 0 free=0";
    assert_eq!(over("cuda_graph"), expected);
}

#[test]
fn green_contexts_keep_the_primary_one_and_the_last_to_detach_destroys() {
    let row = |name: &str, used: u64| format!("{name} 0 used={used}\n");
    let (one, held) = (CONTEXT, CONTEXT + 6);
    let expected = [
        row("cuGreenCtxCreate", one),
        row("cuGreenCtxCreate", one),
        row("cuCtxFromGreenCtx", one),
        row("allocated", held),
        row("cuGreenCtxDestroy", held),
        row("cuGreenCtxDestroy", 0),
        row("cuCtxCreate_v2", one),
        row("cuCtxAttach", one),
        row("cuCtxDetach", one),
        row("allocated", held),
        row("cuCtxDetach", 0),
    ];
    says("cuda_green", &expected.concat());
}

#[test]
fn what_is_idle_in_pools_does_not_stand_in_the_way_of_a_request() {
    let expected = "over 2 all 0 more 2 free=0 idle 0 free=0";
    assert_eq!(over("cuda_pool"), expected);
}

#[test]
fn physical_memory_is_held_until_its_last_handle_and_mapping_are_gone() {
    let expected = rows(&[
        ("cuMemCreate 0", 6),
        // The host's memory is not the device's.
        ("cuMemCreate 0", 6),
        ("cuMemMap 0", 6),
        ("cuMemMap 0", 6),
        ("cuMemRelease 0", 6),
        ("cuMemRetainAllocationHandle 0", 6),
        ("cuMemExportToShareableHandle 0", 6),
        ("cuMemImportFromShareableHandle 0", 6),
        ("cuMemUnmap 0", 6),
        ("cuMemRelease 0", 6),
        ("cuMemRelease 0", 0),
        ("cuMemRelease 0", 0),
        ("mapped 0", 4),
        ("cuMemUnmap 0", 0),
        ("cuMemMapArrayAsync 0", 4),
        ("cuMemMapArrayAsync_ptsz 0", 4),
        ("mapped 0", 4),
        ("destroyed 0", 0),
    ]);
    says("cuda_vmm", &expected);
    assert_eq!(over("cuda_vmm"), "over 2 all 0 free=0");
}

#[test]
fn ipc_memory_is_its_exporters_then_its_importers() {
    let expected = rows(&[
        ("allocated 0", 6),
        ("cuIpcGetMemHandle 0", 6),
        ("cuIpcOpenMemHandle 0", 6),
        ("cuIpcOpenMemHandle_v2 0", 6),
        ("freed 0", 6),
        ("cuIpcCloseMemHandle 0", 6),
        ("cuIpcCloseMemHandle 0", 0),
    ]);
    says("cuda_ipc", &expected);
}

#[test]
fn an_array_takes_the_size_of_its_texels() {
    let expected = rows(&[
        ("cuArrayCreate_v2 0", 16),
        ("cuArray3DCreate_v2 0", 34),
        ("cuMipmappedArrayCreate 0", 56),
        ("cuArrayCreate 801", 56),
        ("cuArray3DCreate 801", 56),
        ("cuArrayDestroy 0", 40),
        ("cuArrayDestroy 0", 22),
        ("cuMipmappedArrayDestroy 0", 0),
    ]);
    says("cuda_array", &expected);
    assert_eq!(over("cuda_array"), "over 2 2 2 0 took=0");
}

/// A slice of 40 GiB on a DGX Spark.
const SPARK: &str = "\"memory\":42949672960,\"reserve\":8589934592";

/// All requests for more than FREE are refused, also those with flags that only the driver knows: it
/// has granted them, and their memory was freed again.
const PINNED_OVER: &str = "over 2 2 newer 2 2 again 0 0 took=0";

#[test]
fn pinned_memory_is_the_devices_where_both_share_it_and_nobodys_elsewhere() {
    let all = [
        ("cuMemAllocHost 0", 6),
        ("cuMemAllocHost_v2 0", 12),
        ("cuMemHostAlloc 0", 14),
        ("cuMemHostRegister 0", 16),
        ("cuMemHostRegister_v2 0", 18),
        ("cuMemHostUnregister 0", 16),
        ("cuMemHostUnregister 0", 14),
        ("cuMemFreeHost 0", 8),
        ("cuMemFreeHost 0", 2),
        ("cuMemFreeHost 0", 0),
    ];
    says_on("gb10", SPARK, "cuda_pinned", &rows(&all));
    assert_eq!(over_on("gb10", SPARK, "cuda_pinned"), PINNED_OVER);
    says("cuda_pinned", &rows(&all.map(|(name, _)| (name, 0))));
}

#[test]
fn on_unified_memory_what_the_host_has_left_decides_too() {
    // The slice may have 100 GiB, and the host keeps 90 GiB of about 121 GiB for itself.
    let keys = "\"memory\":107374182400,\"reserve\":96636764160";
    assert_eq!(over_on("gb10", keys, "cuda_pinned"), PINNED_OVER);
    let said = over_on("gb10", keys, "cuda_linear");
    assert!(said.starts_with("all 0 "), "{said}");
}

/// A program that holds memory until it is dropped.
struct Holder(Child);

impl Holder {
    fn of(run: Run) -> Holder {
        let mut command = run.into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = patience::lines(&mut child, "the program that holds memory");
        assert_eq!(said.next(), "held");
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        patience::kill(&mut self.0);
    }
}

fn lists(compute: &str, count: usize) -> String {
    let versions = ["", "_v2", "_v3"];
    let row = |kind: &str, said: &str| {
        versions
            .map(|version| format!("nvmlDeviceGet{kind}RunningProcesses{version} 0 count={said}\n"))
    };
    let said = format!("{count}{compute}");
    [
        row("Compute", &said).concat(),
        row("Graphics", "0").concat(),
        row("MPSCompute", "0").concat(),
        format!("nvmlDeviceGetRunningProcessDetailList 0 count={said}\n"),
        format!("room for none 7 count={count} nowhere 2 nothing 2 version 25\n"),
    ]
    .concat()
}

#[test]
fn a_slice_sees_its_own_processes_and_never_a_neighbours() {
    let bench = Bench::counted("rtx3090", EIGHT);
    let holder = compile("cuda_holder", Linked::All(12));
    let _neighbour = Holder::of(bench.bare_run(&holder).arg("3"));
    for route in ROUTES {
        let said = bench.probe("nvml_processes", 12, route);
        assert_eq!(said, lists(" us=254", 1), "{route}");
    }
    let _other = Holder::of(bench.run(&holder).arg("6").with_shim());
    let said = bench.probe("nvml_processes", 12, "plt");
    let either = [" other=260 us=254", " us=254 other=260"].map(|two| lists(two, 2));
    assert!(either.contains(&said), "{said}");
}

#[test]
fn a_neighbours_memory_does_not_read_as_ours() {
    let bench = Bench::counted("rtx3090", EIGHT);
    let holder = compile("cuda_holder", Linked::All(12));
    let _neighbour = Holder::of(bench.bare_run(&holder).arg("3000"));
    let said = bench.probe("safety_memory", 12, "plt");
    let free = SLICE - CONTEXT * MIB;
    assert_eq!(said, format!("0 total={SLICE} free={free}\n"));
    // With a second neighbour, the card has less free memory than the slice.
    let _greedy = Holder::of(bench.bare_run(&holder).arg("18000"));
    let said = bench.probe("safety_memory", 12, "plt");
    assert!(!said.ends_with(&format!("free={free}\n")), "{said}");
}

#[test]
fn what_a_killed_process_held_is_free_at_once() {
    let bench = Bench::counted("rtx3090", EIGHT);
    let holder = compile("cuda_holder", Linked::All(12));
    let held = Holder::of(bench.run(&holder).arg("3000").with_shim());
    let free = |more: u64| {
        let free = SLICE - (CONTEXT + more) * MIB;
        format!("0 total={SLICE} free={free}\n")
    };
    let probe = || bench.probe("safety_memory", 12, "plt");
    assert_eq!(probe(), free(CONTEXT + 3000));
    drop(held);
    assert_eq!(probe(), free(0));
}

#[test]
fn contexts_made_at_once_each_count_what_they_hold() {
    let bench = Bench::counted("rtx3090", EIGHT);
    let holder = compile("cuda_holder", Linked::All(12));
    // Neighbours come and go meanwhile.
    let held: Vec<Holder> = std::thread::scope(|scope| {
        let (bench, holder) = (&bench, &holder);
        let starts: Vec<_> = (0..9)
            .map(|turn| {
                scope.spawn(move || match turn % 3 {
                    0 => Holder::of(bench.bare_run(holder).arg("100")),
                    _ => Holder::of(bench.run(holder).arg("2").with_shim()),
                })
            })
            .collect();
        let ends = starts.into_iter().map(|start| start.join().unwrap());
        ends.collect()
    });
    let ledger = bench.ledger();
    let used: Vec<u64> = ledger.slots().map(|slot| slot.used / MIB).collect();
    assert_eq!(used, [CONTEXT + 2; 6]);
    drop(held);
}

#[test]
fn a_part_of_a_step_that_no_request_can_have_does_not_show_as_free() {
    let bench = Bench::counted("rtx3090", "\"memory\":8589934000");
    let said = bench.probe("safety_memory", 12, "plt");
    let free = SLICE - (CONTEXT + 2) * MIB;
    assert_eq!(said, format!("0 total=8589934000 free={free}\n"));
    let keys = "\"memory\":8589934000";
    let said = over_on("rtx3090", keys, "cuda_linear");
    assert_eq!(said, "all 0 free=0 one more 2 took=0");
}

#[test]
fn thousands_of_things_are_remembered_and_forgotten_in_any_order() {
    let bench = Bench::counted("h200", "\"memory\":107374182400");
    let said = bench.probe("cuda_many", 12, "plt");
    assert_eq!(said, "took 1 left 0\ntook 1 left 0\n");
    assert_eq!(bench.ledger().slots().count(), 0);
}
