//! Allocations: granted, refused, freed.

use super::{MIB, NO_ROOM, WAYS, Way, client, opened, seen, take};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use serde_json::json;

/// A card, and a device that shares the host's memory.
const MACHINES: [&str; 2] = ["rtx3090", "gb10"];

/// The ledger and the machine agree on what the slice holds.
fn holds(slice: &Counted, bytes: u64) {
    assert_eq!((slice.held(), slice.counted()), (bytes, bytes));
}

#[test]
fn what_is_free_is_granted_and_more_is_refused() {
    for (scenario, way) in MACHINES
        .into_iter()
        .flat_map(|it| WAYS.map(|way| (it, way)))
    {
        let slice = Counted::new(scenario, GIB);
        let mut vulkan = opened(&slice, way);
        let given: Vec<i32> = (0..12)
            .map(|number| take(&mut vulkan, number, 100 * MIB))
            .collect();
        let granted = given.iter().filter(|code| **code == 0).count();
        assert_eq!(
            (granted, &given[10..]),
            (10, &[NO_ROOM, NO_ROOM][..]),
            "{scenario} {way:?}"
        );
        holds(&slice, 1000 * MIB);
        assert_eq!(seen(&mut vulkan).free, 24 * MIB);
        assert_eq!(take(&mut vulkan, 20, 24 * MIB), 0);
        assert_eq!(take(&mut vulkan, 21, 1), NO_ROOM);
        holds(&slice, GIB);
        for number in (0..10).chain([20]) {
            vulkan.must(&format!("free {number}"));
        }
        holds(&slice, 0);
        assert_eq!(seen(&mut vulkan).free, GIB, "{scenario} {way:?}");
        assert_eq!(slice.refusals().count, 3);
    }
}

#[test]
fn vulkan_and_cuda_take_from_one_slice() {
    for (scenario, way) in MACHINES
        .into_iter()
        .flat_map(|it| WAYS.map(|way| (it, way)))
    {
        let slice = Counted::new(scenario, 3 * GIB);
        let mut vulkan = opened(&slice, way);
        let mut cuda = slice.worker();
        let before = cuda.free();
        assert_eq!(take(&mut vulkan, 1, GIB), 0);
        assert_eq!(before - cuda.free(), GIB);
        assert_eq!(cuda.nvml()[0], cuda.free());
        assert_eq!(cuda.code(&format!("alloc 1 {}", 2 * GIB)), OUT_OF_MEMORY);
        cuda.must(&format!("alloc 1 {GIB}"));
        assert_eq!(take(&mut vulkan, 2, GIB), NO_ROOM);
        // Both APIs in one process.
        vulkan.must("cuda");
        assert_eq!(vulkan.code(&format!("alloc 0 {GIB}")), OUT_OF_MEMORY);
        assert_eq!(slice.held(), slice.counted());
        assert_eq!(vulkan.ask("info")[1].cast_unsigned(), cuda.free());
        assert_eq!(seen(&mut vulkan).free, cuda.free());
    }
}

#[test]
fn a_device_that_is_destroyed_gives_back_what_was_left_on_it() {
    for way in WAYS {
        let slice = Counted::new("rtx3090", GIB);
        let mut vulkan = opened(&slice, way);
        for round in 0..5 {
            assert_eq!(take(&mut vulkan, 1, 300 * MIB), 0, "{round}");
            assert_eq!(take(&mut vulkan, 2, 600 * MIB), 0, "{round}");
            assert_eq!(take(&mut vulkan, 3, 300 * MIB), NO_ROOM);
            holds(&slice, 900 * MIB);
            vulkan.must("shut 0");
            holds(&slice, 0);
            vulkan.must("again");
            vulkan.must("open 0 0 1");
        }
    }
}

#[test]
fn one_device_that_is_destroyed_leaves_the_memory_of_another() {
    let slice = Counted::new("rtx3090", GIB);
    let mut vulkan = opened(&slice, Way::Loader);
    vulkan.must("open 1 0 1");
    assert_eq!(take(&mut vulkan, 1, 300 * MIB), 0);
    vulkan.must(&format!("take 2 {} 1 0 1 0", 600 * MIB));
    vulkan.must("shut 0");
    holds(&slice, 600 * MIB);
    vulkan.must("free 2");
    holds(&slice, 0);
}

#[test]
fn a_killed_process_gives_its_memory_back() {
    for way in WAYS {
        let slice = Counted::new("rtx3090", GIB);
        let mut killed = opened(&slice, way);
        let mut survivor = opened(&slice, way);
        assert_eq!(take(&mut killed, 1, GIB), 0);
        assert_eq!(take(&mut survivor, 1, 64 * MIB), NO_ROOM);
        killed.kill();
        slice.buried(1);
        assert_eq!(take(&mut survivor, 1, GIB), 0);
        holds(&slice, GIB);
    }
}

#[test]
fn host_memory_is_charged_only_where_the_device_shares_it() {
    let host = |vulkan: &mut Worker| vulkan.code(&format!("take 1 {} 0 0 0 0", 2 * GIB));
    let slice = Counted::new("rtx3090", GIB);
    let mut vulkan = opened(&slice, Way::Loader);
    assert_eq!(host(&mut vulkan), 0);
    holds(&slice, 0);
    assert_eq!(seen(&mut vulkan).free, GIB);
    vulkan.must("free 1");
    holds(&slice, 0);
}

#[test]
fn a_slice_that_only_counts_refuses_nothing() {
    let slice = Counted::with("rtx3090", &json!({"memory": GIB, "enforce": false}));
    let mut vulkan = opened(&slice, Way::Loader);
    assert_eq!(take(&mut vulkan, 1, 2 * GIB), 0);
    holds(&slice, 2 * GIB);
    assert_eq!(seen(&mut vulkan).free, 0);
    vulkan.must("free 1");
    holds(&slice, 0);
}

#[test]
fn a_slice_that_cannot_be_read_refuses_vulkan_memory() {
    let slice = Counted::new("rtx3090", GIB);
    let lost = slice.machine().folder().join("none.json");
    let run = slice.run(env!("CARGO_BIN_EXE_client-vulkan")).slice(&lost);
    let mut vulkan = client(run.stderr(std::process::Stdio::null()), Way::Loader);
    vulkan.must("open 0 0 1");
    assert_eq!(take(&mut vulkan, 1, 64 * MIB), NO_ROOM);
    assert_eq!(slice.held(), 0);
}

#[test]
fn eight_threads_leave_nothing_charged() {
    let slice = Counted::new("rtx3090", GIB);
    let mut vulkan = opened(&slice, Way::Loader);
    let said = vulkan.ask(&format!("threads 2000 {} 0", 200 * MIB));
    // Five of eight have room at the same time.
    assert!(said[0] == 0 && said[1] >= 3, "{said:?}");
    holds(&slice, 0);
    assert_eq!(seen(&mut vulkan).free, GIB);
}

#[test]
fn each_card_of_a_group_pays_for_its_own_memory() {
    let slice = Counted::of_devices("2xrtx3090", &json!({"memory": GIB}), 2);
    let mut vulkan = client(slice.run(env!("CARGO_BIN_EXE_client-vulkan")), Way::Loader);
    vulkan.must("open 0 0 2");
    let used =
        |slice: &Counted| -> Vec<u64> { slice.truth().devices.iter().map(|it| it.used).collect() };
    // On the second card alone, then on both.
    vulkan.must(&format!("take 1 {} 0 0 1 2", 600 * MIB));
    assert_eq!(used(&slice), [0, 600 * MIB]);
    vulkan.must(&format!("take 2 {} 0 0 1 3", 300 * MIB));
    assert_eq!(used(&slice), [300 * MIB, 900 * MIB]);
    assert_eq!(slice.counted(), 1200 * MIB);
    // There is room on the first card only, and nothing of a refused request stays.
    assert_eq!(
        vulkan.code(&format!("take 3 {} 0 0 1 3", 300 * MIB)),
        NO_ROOM
    );
    assert_eq!(slice.counted(), 1200 * MIB);
    vulkan.must(&format!("take 3 {} 0 0 1 1", 300 * MIB));
    vulkan.must("free 2");
    assert_eq!(
        (used(&slice), slice.counted()),
        (vec![300 * MIB, 600 * MIB], 900 * MIB)
    );
    vulkan.must("shut 0");
    assert_eq!((used(&slice), slice.counted()), (vec![0, 0], 0));
}

#[test]
fn memory_that_cuda_keeps_unused_is_available_to_vulkan() {
    for (scenario, way) in MACHINES
        .into_iter()
        .flat_map(|it| WAYS.map(|way| (it, way)))
    {
        let slice = Counted::new(scenario, 3 * GIB);
        let mut vulkan = opened(&slice, way);
        vulkan.must("cuda");
        let context = slice.counted();
        vulkan.must(&format!("keep {}", 2 * GIB));
        holds(&slice, context + 2 * GIB);
        assert_eq!(take(&mut vulkan, 1, 2 * GIB), 0, "{scenario} {way:?}");
        holds(&slice, context + 2 * GIB);
        assert_eq!(slice.refusals().count, 0);
        // Memory in use stays: only the rest is kept by the pool now.
        vulkan.must(&format!("keep {}", 256 * MIB));
        assert_eq!(take(&mut vulkan, 2, GIB), NO_ROOM);
        assert_eq!(slice.refusals().count, 1);
        holds(&slice, context + 2 * GIB);
        vulkan.must("free 1");
        holds(&slice, context);
    }
}

#[test]
fn a_group_of_cards_gets_what_cuda_keeps_on_one_of_them() {
    let slice = Counted::of_devices("2xrtx3090", &json!({"memory": 2 * GIB}), 2);
    let mut vulkan = client(slice.run(env!("CARGO_BIN_EXE_client-vulkan")), Way::Loader);
    vulkan.must("open 0 0 2");
    vulkan.must("cuda");
    let context = slice.counted();
    vulkan.must(&format!("keep {GIB}"));
    vulkan.must(&format!("take 1 {} 0 0 1 3", GIB + GIB / 2));
    assert_eq!(slice.counted(), context + 3 * GIB);
    assert_eq!(slice.refusals().count, 0);
}
