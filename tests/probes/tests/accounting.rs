//! What every allocating call takes from FREE in a counted slice, by every route; and refusals.
//! Touches: simulated machines, ledgers on tmpfs.

use gpuslice_config::device::DeviceUuid;
use gpuslice_config::ledger::Refusals;
use gpuslice_config::units::Bytes;
use gpuslice_probes::{Bench, Linked, ROUTES, compile};

const MIB: u64 = 1 << 20;
const SLICE: u64 = 8 << 30;
const EIGHT: &str = "\"memory\":8589934592";
/// What a context holds on a simulated RTX 3090.
const CONTEXT: u64 = 254;
const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

/// The same by every route, and nothing left in the ledger afterwards.
fn says(probe: &str, expected: &str) {
    for route in ROUTES {
        let bench = Bench::counted("rtx3090", EIGHT);
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
        let line = format!(
            "limit: refused {} bytes: {free} free of {SLICE} (time 1)\n",
            free + 2 * MIB
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
}

/// What `cuda_pool` says, each line a name and how many MiB are taken then.
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
];

/// Lines of names, the driver's codes and how many MiB are taken then.
fn rows(all: &[(&str, u64)]) -> String {
    let row = |(name, took): &(&str, u64)| format!("{name} took={took}\n");
    all.iter().map(row).collect()
}

/// What a probe says when it goes on to ask for more than there is.
fn over(probe: &str) -> String {
    let bench = Bench::counted("rtx3090", EIGHT);
    let program = compile(probe, Linked::All(12));
    let run = bench.run(&program).arg("plt").arg("over").with_shim();
    let said = run.answer().clean();
    said.lines().next_back().unwrap_or_default().to_owned()
}

#[test]
fn a_pool_takes_what_it_has_reserved_until_it_gives_it_back() {
    says("cuda_pool", &rows(POOL));
}

#[test]
fn what_is_idle_in_pools_does_not_stand_in_the_way_of_a_request() {
    let expected = "over 2 all 0 more 2 free=0 idle 0 free=0";
    assert_eq!(over("cuda_pool"), expected);
}

#[test]
fn physical_memory_is_held_until_its_last_handle_and_its_last_mapping_are_gone() {
    let expected = rows(&[
        ("cuMemCreate 0", 6),
        // The host's memory is not the device's.
        ("cuMemCreate 0", 6),
        ("cuMemMap 0", 6),
        ("cuMemMap 0", 6),
        ("cuMemRelease 0", 6),
        ("cuMemRetainAllocationHandle 0", 6),
        ("cuMemImportFromShareableHandle 0", 6),
        ("cuMemUnmap 0", 6),
        ("cuMemRelease 0", 6),
        ("cuMemRelease 0", 0),
        ("cuMemRelease 0", 0),
        ("mapped 0", 4),
        ("cuMemUnmap 0", 0),
    ]);
    says("cuda_vmm", &expected);
    assert_eq!(over("cuda_vmm"), "over 2 all 0 free=0");
}

#[test]
fn an_array_takes_what_the_driver_says_that_it_needs() {
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
