//! Graphs that allocate: they are refused if their memory does not fit on each of their devices,
//! and counted also where it is known only after the driver has reserved it.
//! Touches: workers in slices of simulated machines.

use gpuslice_config::ledger::Record;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY};

/// The shapes of a graph that the worker makes of steps.
const CHAIN: u32 = 0;
const BRANCHES: u32 = 1;
const UPLOADED_CHAIN: u32 = 2;
const RENEWED_CHAIN: u32 = 3;

/// The size of a context on an RTX 3090.
const CONTEXT: u64 = 254 << 20;

#[test]
fn a_graph_uploaded_at_instantiation_is_refused_if_it_does_not_fit() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    let (more, all) = (GIB + (2 << 20), GIB);
    assert_eq!(
        worker.code(&format!("uploaded-graph 0 {more}")),
        OUT_OF_MEMORY
    );
    assert_eq!((slice.held(), slice.counted()), (CONTEXT, CONTEXT));
    worker.must(&format!("uploaded-graph 0 {all}"));
    assert_eq!(
        (slice.held(), slice.counted()),
        (CONTEXT + GIB, CONTEXT + GIB)
    );
    assert_eq!(worker.code("alloc 1 4096"), OUT_OF_MEMORY);
}

#[test]
fn a_graph_of_which_not_all_can_be_looked_up_is_counted_when_it_has_run() {
    let slice = Counted::new("rtx3090", CONTEXT + 2 * GIB);
    let mut worker = slice.worker();
    for (number, depth) in [7, 8, 15].into_iter().enumerate() {
        worker.must(&format!("child-graph {number} {} {depth}", GIB / 4));
        let held = CONTEXT + (number as u64 + 1) * GIB / 4;
        assert_eq!(
            (slice.held(), slice.counted()),
            (held, held),
            "{depth} deep"
        );
    }
    assert_eq!(
        worker.code(&format!("alloc 9 {}", 3 * GIB / 2)),
        OUT_OF_MEMORY
    );
}

/// The memory held and counted on each device, in the order of the devices.
fn held_and_counted(slice: &Counted) -> Vec<(u64, u64)> {
    let records = slice.records();
    let devices = slice.truth().devices;
    let of = |uuid: &str| {
        let is_of = |record: &&Record| record.device.is_some_and(|its| its.to_string() == uuid);
        records.iter().filter(is_of).map(|record| record.used).sum()
    };
    devices
        .iter()
        .map(|device| (device.used, of(&device.uuid)))
        .collect()
}

fn two_cards() -> Counted {
    Counted::of_devices("2xh200", &serde_json::json!({"memory": 4 * GIB}), 2)
}

#[test]
fn a_graph_of_two_devices_is_refused_if_it_does_not_fit_on_the_second() {
    for (shape, at_launch) in [(CHAIN, true), (UPLOADED_CHAIN, false)] {
        let slice = two_cards();
        let mut worker = slice.worker();
        let before = held_and_counted(&slice);
        let steps = format!("steps 0 {shape} +0:{} +1:{}", 2 << 20, 40 * GIB);
        if at_launch {
            worker.must(&steps);
            assert_eq!(worker.code("launch 0"), OUT_OF_MEMORY);
        } else {
            assert_eq!(worker.code(&steps), OUT_OF_MEMORY);
        }
        assert_eq!(held_and_counted(&slice), before, "shape {shape}");
    }
}

#[test]
fn a_graph_of_two_devices_is_counted_on_both() {
    let slice = two_cards();
    let mut worker = slice.worker();
    let context = slice.held();
    worker.must(&format!("steps 0 {CHAIN} +0:{} +1:{GIB} -1 -0", 2 << 20));
    worker.must("launch 0");
    let (first, second) = (context + (2 << 20), GIB);
    let expected = [(first, first), (second, second)];
    assert_eq!(held_and_counted(&slice), expected);
    worker.must("free 0");
    assert_eq!(
        held_and_counted(&slice),
        expected,
        "reserved until it is trimmed"
    );
}

#[test]
fn a_graph_that_frees_before_it_allocates_again_needs_its_peak() {
    let slice = Counted::new("rtx3090", CONTEXT + 4 * GIB);
    let mut worker = slice.worker();
    let three = 3 * GIB;
    worker.must(&format!("steps 0 {CHAIN} +0:{three} -0 +0:{three} -1"));
    for launch in 0..2 {
        worker.must("launch 0");
        let held = CONTEXT + three;
        assert_eq!((slice.held(), slice.counted()), (held, held), "{launch}");
    }
    worker.must("synchronize");
    worker.must("trim-graphs");
    // The driver may run nodes that are in no order at once.
    let refused = [
        (CHAIN, format!("+0:{three} +0:{three} -0 -1")),
        (BRANCHES, format!("+0:{three} -0 +0:{three} -1")),
    ];
    for (shape, steps) in refused {
        worker.must(&format!("steps 1 {shape} {steps}"));
        assert_eq!(worker.code("launch 1"), OUT_OF_MEMORY, "{steps}");
        assert_eq!((slice.held(), slice.counted()), (CONTEXT, CONTEXT));
    }
}

/// Graphs whose launches follow each other without a wait, as those of an engine do.
#[test]
fn a_graph_that_fills_the_slice_is_launched_again_while_it_runs() {
    let all = CONTEXT + GIB;
    let shapes = [
        (CHAIN, format!("+0:{GIB} -0")),
        (UPLOADED_CHAIN, format!("+0:{GIB} -0")),
        (RENEWED_CHAIN, format!("+0:{GIB}")),
    ];
    for (shape, steps) in shapes {
        let slice = Counted::new("rtx3090", all);
        let mut worker = slice.worker();
        worker.must(&format!("steps 0 {shape} {steps}"));
        for launch in 0..4 {
            worker.must("launch 0");
            let held = (slice.held(), slice.counted());
            assert_eq!(held, (all, all), "shape {shape}, launch {launch}");
        }
        assert_eq!(worker.code("alloc 1 4096"), OUT_OF_MEMORY);
    }
}

#[test]
fn a_graph_is_launched_again_in_the_stream_of_its_thread() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must(&format!("steps 0 {CHAIN} +0:{GIB} -0"));
    for _ in 0..3 {
        worker.must("launch-ptsz 0");
    }
    // The legacy default stream is another.
    assert_eq!(worker.code("launch 0"), OUT_OF_MEMORY);
    let held = CONTEXT + GIB;
    assert_eq!((slice.held(), slice.counted()), (held, held));
}

#[test]
fn a_graph_that_may_run_beside_others_needs_room_of_its_own() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must("stream 8");
    for number in 0..2 {
        worker.must(&format!("steps {number} {CHAIN} +0:{} -0", 3 * GIB / 4));
        worker.must(&format!("launch {number}"));
        worker.must("synchronize");
    }
    worker.must("launch 0");
    assert_eq!(worker.code("launch-on 1 8"), OUT_OF_MEMORY);
    worker.must("synchronize");
    worker.must("launch-on 1 8");
    let held = CONTEXT + 3 * GIB / 4;
    assert_eq!((slice.held(), slice.counted()), (held, held));
}

#[test]
fn a_graph_whose_memory_was_trimmed_is_refused_if_it_does_not_fit_any_more() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must(&format!("steps 0 {CHAIN} +0:{GIB} -0"));
    for line in ["launch 0", "synchronize", "trim-graphs", "alloc 1 4096"] {
        worker.must(line);
    }
    assert_eq!(worker.code("launch 0"), OUT_OF_MEMORY);
    worker.must("free 1");
    worker.must("launch 0");
}

/// Graphs that shared their memory one after the other run at once. The first that needs more than
/// there is exceeds the limit, and no other.
#[test]
fn graphs_that_lost_their_memory_exceed_the_limit_by_one_of_them() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    for number in 0..4 {
        worker.must(&format!("stream {}", 8 + number));
        worker.must(&format!("steps {number} {CHAIN} +0:{GIB} -0"));
        worker.must(&format!("launch-on {number} {}", 8 + number));
        worker.must("synchronize");
    }
    worker.must("launch-on 3 11");
    worker.must("launch-on 0 8");
    for number in 1..3 {
        let launch = format!("launch-on {number} {}", 8 + number);
        assert_eq!(worker.code(&launch), OUT_OF_MEMORY);
    }
    let held = CONTEXT + 2 * GIB;
    assert_eq!((slice.held(), slice.counted()), (held, held));
}

/// The kernel refuses the memory for further records. The records on the first page suffice for some
/// of these graphs.
#[test]
fn a_graph_that_cannot_be_recorded_is_not_made() {
    for shape in [CHAIN, UPLOADED_CHAIN] {
        let slice = Counted::new("rtx3090", CONTEXT + GIB);
        let mut worker = slice.worker();
        worker.must("no-mappings 1024");
        let bytes = if shape == CHAIN { 2 * GIB } else { 2 << 20 };
        let mut make = |number| worker.code(&format!("steps {number} {shape} +0:{bytes} -0"));
        let made: Vec<usize> = (0..100).filter(|number| make(*number) == 0).collect();
        assert!(!made.is_empty() && made.len() < 100, "{}", made.len());
        if shape == CHAIN {
            for number in &made {
                assert_eq!(worker.code(&format!("launch {number}")), OUT_OF_MEMORY);
            }
            assert_eq!(slice.held(), CONTEXT);
        }
        assert_eq!(slice.counted(), slice.held());
        assert_eq!(slice.truth().misuses, 0);
        for number in &made {
            worker.must(&format!("free {number}"));
        }
        worker.must(&format!("steps 0 {shape} +0:{} -0", GIB / 2));
        worker.must("launch 0");
        assert_eq!(slice.counted(), slice.held());
    }
}

/// Eight pools take the places on the first page, and the kernel refuses the memory for others.
#[test]
fn a_graph_whose_memory_cannot_be_recorded_is_not_launched() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must("no-mappings 4096");
    for pool in 0..8 {
        worker.must(&format!("pool {}", 20 + pool));
    }
    let uploaded = format!("steps 1 {UPLOADED_CHAIN} +0:{}", 2 * GIB);
    assert_eq!(worker.code(&uploaded), OUT_OF_MEMORY);
    worker.must(&format!("steps 0 {CHAIN} +0:{}", 2 * GIB));
    assert_eq!(worker.code("launch 0"), OUT_OF_MEMORY);
    assert_eq!((slice.held(), slice.counted()), (CONTEXT, CONTEXT));
    worker.must("free 0");
}

#[test]
fn a_graph_whose_nodes_cannot_be_read_for_want_of_memory_is_not_made() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must("no-mappings 1");
    for shape in [CHAIN, UPLOADED_CHAIN] {
        let steps = format!("steps 0 {shape} +0:{}", 2 * GIB);
        assert_eq!(worker.code(&steps), OUT_OF_MEMORY, "shape {shape}");
        worker.must(&format!("steps 0 {shape}"));
        worker.must("launch 0");
    }
    assert_eq!((slice.held(), slice.counted()), (CONTEXT, CONTEXT));
}

#[test]
fn a_slice_that_only_counts_launches_graphs_that_cannot_be_recorded() {
    let keys = serde_json::json!({"memory": CONTEXT + GIB, "enforce": false});
    let slice = Counted::with("rtx3090", &keys);
    let mut worker = slice.worker();
    worker.must("no-mappings 1");
    worker.must(&format!("steps 0 {CHAIN} +0:{}", 2 * GIB));
    worker.must("launch 0");
}
