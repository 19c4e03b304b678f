//! The heaps that a program in a slice sees.

use super::{Heap, MIB, WAYS, Way, by_manifest, client, heaps_of, opened, seen, take};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Said};
use serde_json::json;

/// Every simulated machine: with heaps of its own memory, and sharing the host's.
const MACHINES: [&str; 7] = ["rtx3090", "h200", "h200-mig", "gb10", "orin", "thor", "n1x"];

#[test]
fn the_heaps_of_a_slice_add_up_to_its_total_and_free() {
    for (scenario, way) in MACHINES
        .into_iter()
        .flat_map(|it| WAYS.map(|way| (it, way)))
    {
        let slice = Counted::new(scenario, 4 * GIB);
        let mut vulkan = opened(&slice, way);
        let mut cuda = slice.worker();
        let used = 4 * GIB - cuda.free();
        let whole = Said {
            total: 4 * GIB,
            free: 4 * GIB - used,
        };
        assert_eq!(seen(&mut vulkan), whole, "{scenario} {way:?}");
        assert_eq!(cuda.info(), whole, "{scenario} {way:?}");
        assert_eq!(take(&mut vulkan, 1, 512 * MIB), 0);
        cuda.must(&format!("alloc 1 {GIB}"));
        let held = Said {
            total: 4 * GIB,
            free: 4 * GIB - used - 1536 * MIB,
        };
        assert_eq!(seen(&mut vulkan), held, "{scenario} {way:?}");
        assert_eq!(cuda.info(), held, "{scenario} {way:?}");
    }
}

#[test]
fn the_largest_heap_has_all_but_a_sixteenth_of_the_slice() {
    let slice = Counted::new("rtx3090", GIB);
    let mut vulkan = opened(&slice, Way::Loader);
    let heap = |size, budget, usage, is_local| Heap {
        size,
        is_local,
        budget,
        usage,
    };
    // Host memory is not the slice's.
    let host = heap(64 * GIB, 64 * GIB, 0, false);
    assert_eq!(
        heaps_of(&mut vulkan, 0),
        [
            heap(960 * MIB, 960 * MIB, 0, true),
            host,
            heap(64 * MIB, 64 * MIB, 0, true),
        ]
    );
    assert_eq!(take(&mut vulkan, 1, GIB), 0);
    assert_eq!(
        heaps_of(&mut vulkan, 0),
        [
            heap(960 * MIB, 960 * MIB, 960 * MIB, true),
            host,
            heap(64 * MIB, 64 * MIB, 64 * MIB, true),
        ]
    );
}

#[test]
fn a_slice_that_others_have_filled_has_budgets_of_nothing_to_take() {
    let slice = Counted::new("rtx3090", GIB);
    let (mut one, mut other) = (opened(&slice, Way::Loader), opened(&slice, Way::Direct));
    assert_eq!(take(&mut one, 1, GIB), 0);
    let full = Said {
        total: GIB,
        free: 0,
    };
    assert_eq!(seen(&mut other), full);
    assert_eq!(seen(&mut one), full);
}

#[test]
fn a_limit_above_the_card_changes_no_heap_that_cuda_would_not_change() {
    let slice = Counted::new("rtx3090", 100 * GIB);
    let mut vulkan = opened(&slice, Way::Loader);
    vulkan.must("cuda");
    let said = vulkan.ask("info");
    let cuda = Said {
        total: said[2].cast_unsigned(),
        free: said[1].cast_unsigned(),
    };
    assert_eq!(seen(&mut vulkan), cuda);
}

#[test]
fn only_the_cards_of_the_slice_are_changed() {
    let cards = |slice: &Counted, in_slice: bool| {
        let program = env!("CARGO_BIN_EXE_client-vulkan");
        let run = match in_slice {
            true => slice.run(program),
            false => slice
                .machine()
                .place(gpuslice_suite::run::Run::new(program)),
        };
        let mut vulkan = client(run, Way::Loader);
        [0, 1].map(|card| heaps_of(&mut vulkan, card))
    };
    let uuid = "GPU-3090aaaa-1111-4222-8333-444455550001";
    let listed = json!({"devices": [{"uuid": uuid, "memory": GIB}]});
    let slice = Counted::with("2xrtx3090", &listed);
    let (bare, sliced) = (cards(&slice, false), cards(&slice, true));
    assert_eq!(bare[0], sliced[0]);
    assert_eq!(sliced[1][0].size + sliced[1][2].size, GIB);
}

#[test]
fn a_program_of_the_first_vulkan_version_is_in_its_slice() {
    let slice = Counted::new("rtx3090", GIB);
    for way in WAYS {
        let run = slice.run(env!("CARGO_BIN_EXE_client-vulkan")).arg("1.0");
        let mut vulkan = client(run, way);
        vulkan.must("open 0 0 1");
        assert_eq!(take(&mut vulkan, 1, GIB), 0);
        assert_eq!(take(&mut vulkan, 2, 4096), super::NO_ROOM);
    }
}

#[test]
fn vulkaninfo_shows_the_slice() {
    let slice = Counted::new("rtx3090", GIB);
    let answer = by_manifest(slice.run("vulkaninfo")).answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
    let said: Vec<&str> = answer
        .stdout
        .lines()
        .map(str::trim)
        .filter(|line| {
            ["size ", "budget ", "usage "]
                .iter()
                .any(|it| line.starts_with(it))
        })
        .filter(|line| line.contains("(0x"))
        .collect();
    assert_eq!(
        said,
        [
            "size   = 1006632960 (0x3c000000) (960.00 MiB)",
            "budget = 1006632960 (0x3c000000) (960.00 MiB)",
            "usage  = 0 (0x00000000) (0.00 B)",
            "size   = 68719476736 (0x1000000000) (64.00 GiB)",
            "budget = 68719476736 (0x1000000000) (64.00 GiB)",
            "usage  = 0 (0x00000000) (0.00 B)",
            "size   = 67108864 (0x04000000) (64.00 MiB)",
            "budget = 67108864 (0x04000000) (64.00 MiB)",
            "usage  = 0 (0x00000000) (0.00 B)",
        ]
    );
}
