//! The limit. Memory shown as free is granted in one piece, and a granule more is refused with the
//! vendor's own code. However many processes allocate at once, the slice never holds more.
//! Touches: workers in a slice, on simulated machines.

use gpuslice_suite::compile::linked;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Worker};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 6 * GIB;
/// The size of a context on an RTX 3090, and on an H200.
const CONTEXT: u64 = 254 * MIB;
const LARGE_CONTEXT: u64 = 520 * MIB;

/// The calls that allocate `bytes`, under number 1.
fn allocating(bytes: u64) -> [String; 3] {
    // Lines of 2 MiB need no padding.
    let lines = bytes / GRANULE;
    [
        format!("alloc 1 {bytes}"),
        format!("pitch 1 {GRANULE} {lines}"),
        format!("managed 1 {bytes}"),
    ]
}

/// A slice's memory by CUDA, by NVML, by the ledger, and on the card.
fn seen(slice: &Counted, worker: &mut Worker) -> (u64, [u64; 3], u64, u64) {
    let (free, nvml) = (worker.free(), worker.nvml());
    (free, nvml, slice.counted(), slice.held())
}

#[test]
fn what_is_free_is_granted_in_one_piece_and_a_granule_more_is_refused() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {GIB}"));
    let before = seen(&slice, &mut worker);
    assert_eq!(before.0, LIMIT - GIB - CONTEXT);
    for line in allocating(before.0 + GRANULE) {
        assert_eq!(worker.code(&line), OUT_OF_MEMORY, "{line}");
        assert_eq!(
            seen(&slice, &mut worker),
            before,
            "{line}: nothing has changed"
        );
    }
    for line in allocating(before.0) {
        worker.must(&line);
        assert_eq!(worker.free(), 0, "{line}");
        assert_eq!(worker.code("alloc 2 1"), OUT_OF_MEMORY, "{line}");
        worker.must("free 1");
        assert_eq!(seen(&slice, &mut worker), before, "{line}");
    }
}

#[test]
fn a_size_that_no_machine_has_is_out_of_memory_and_nothing_happens() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut worker = slice.worker();
    let before = seen(&slice, &mut worker);
    for bytes in [u64::MAX, u64::MAX - GRANULE, 1 << 63, 1 << 48, LIMIT + 1] {
        assert_eq!(
            worker.code(&format!("alloc 0 {bytes}")),
            OUT_OF_MEMORY,
            "{bytes}"
        );
        assert_eq!(seen(&slice, &mut worker), before, "{bytes}");
    }
    // The driver itself answers a request for zero bytes.
    assert_eq!(worker.code("alloc 0 0"), 1);
}

#[test]
fn two_hundred_processes_at_once_never_hold_more_than_the_limit() {
    let limit = 100 * GIB;
    let slice = Counted::new("h200", limit);
    let mut workers: Vec<Worker> = (0..200).map(|_| slice.idle()).collect();
    for worker in &mut workers {
        worker.send(0, "start 0");
        for number in 0..12 {
            worker.send(
                0,
                &format!("alloc {number} {}", 96 * MIB + number * GRANULE),
            );
        }
    }
    // The limit is checked while the workers allocate, and again when they have finished.
    for worker in &mut workers {
        let held = slice.held();
        assert!(held <= limit, "{held}");
        assert!(worker.settle());
    }
    let held = slice.held();
    assert!(held <= limit, "{held}");
    // A refused request did not fit beside the open requests of other workers. On a very busy
    // machine such requests stay open for long, so the slice need not be full.
    assert!(held > limit / 4, "{held}");
    assert_eq!(slice.counted(), held);
    let free = limit - held;
    for worker in &mut workers {
        // The simulated driver has room for 128 processes, and refuses the others as out of memory.
        match worker.ask("!info")[..] {
            [0, said, _] => assert_eq!(said.cast_unsigned(), free),
            [code, ..] => assert_ne!(code, 0),
            [] => panic!("no code"),
        }
    }
    drop(workers);
    slice.buried(0);
    assert_eq!(slice.held(), 0);
    assert_eq!(slice.worker().free(), limit - LARGE_CONTEXT);
}

#[test]
fn a_slice_that_does_not_enforce_only_reports() {
    let slice = Counted::with("rtx3090", &json!({"memory": LIMIT, "enforce": false}));
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {}", LIMIT + GIB));
    assert_eq!(worker.free(), 0);
    assert_eq!(worker.nvml(), [0, LIMIT, LIMIT]);
    assert_eq!(slice.counted(), LIMIT + GIB + CONTEXT);
    worker.must("free 0");
    assert_eq!(worker.free(), LIMIT - CONTEXT);
}

#[test]
fn the_drivers_own_refusal_leaves_the_ledger_as_it_was() {
    // The limit fits the card, but a neighbour holds most of the card's memory.
    let slice = Counted::new("rtx3090", 20 * GIB);
    let mut neighbour = slice.neighbour();
    neighbour.must(&format!("create 0 {}", 18 * GIB));
    let mut worker = slice.worker();
    let before = worker.free();
    assert_eq!(before, slice.truth().devices[0].free);
    assert_eq!(worker.code(&format!("alloc 0 {}", 10 * GIB)), OUT_OF_MEMORY);
    assert_eq!(worker.free(), before);
    assert_eq!(slice.counted(), CONTEXT);
}

#[test]
fn three_processes_that_create_contexts_at_once_know_what_each_takes() {
    for (scenario, context) in [("rtx3090", CONTEXT), ("h200", LARGE_CONTEXT)] {
        for _ in 0..5 {
            let slice = Counted::new(scenario, 16 * GIB);
            let mut workers: Vec<Worker> = (0..3).map(|_| slice.idle()).collect();
            for worker in &mut workers {
                worker.send(0, "start 0");
            }
            for worker in &mut workers {
                assert!(worker.settle());
            }
            let held: Vec<u64> = slice.records().iter().map(|record| record.used).collect();
            assert_eq!(held.len(), 3, "{scenario}: {held:?}");
            let near = |held: &u64| held.abs_diff(context) <= GRANULE;
            assert!(held.iter().all(near), "{scenario}: {held:?}");
            assert!(workers[0].free().abs_diff(16 * GIB - 3 * context) <= 3 * GRANULE);
        }
    }
}

#[test]
fn a_neighbour_that_allocates_meanwhile_is_not_taken_for_a_context() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut neighbour = slice.neighbour();
    for number in 0..400 {
        neighbour.send(0, &format!("alloc {} {}", number % 100, 16 * MIB));
        if number >= 50 {
            neighbour.send(0, &format!("free {}", (number - 50) % 100));
        }
    }
    let worker = slice.worker();
    let held: Vec<u64> = slice.records().iter().map(|record| record.used).collect();
    assert!(neighbour.settle());
    assert!(
        held.len() == 1 && held[0].abs_diff(CONTEXT) <= GRANULE,
        "{held:?}"
    );
    drop(worker);
}

#[test]
fn a_context_measured_by_free_alone_has_a_plausible_size() {
    for noise in [GIB, 4 * GIB] {
        for _ in 0..6 {
            let slice = Counted::new("orin", 8 * GIB);
            let mut neighbour = slice.neighbour();
            let end = Instant::now() + Duration::from_secs(20);
            let (stop, worker) = (&AtomicBool::new(false), &mut slice.idle());
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    while !stop.load(Relaxed) && Instant::now() < end {
                        neighbour.must(&format!("alloc 0 {noise}"));
                        neighbour.must("free 0");
                    }
                });
                let code = worker.code("start 0");
                stop.store(true, Relaxed);
                assert_eq!(code, 0, "the driver starts");
            });
            let held: Vec<u64> = slice.records().iter().map(|record| record.used).collect();
            assert!(
                held.len() == 1 && (16 * MIB..=768 * MIB).contains(&held[0]),
                "{held:?} beside {noise}"
            );
        }
    }
}

/// The bytes by which a program grows when it holds `count` allocations of a kind, and the bytes
/// that they take from the device.
fn grown(run: Run, kind: &str, count: u64) -> [u64; 2] {
    let said = run.arg(kind).arg(count.to_string()).answer().clean();
    let numbers: Vec<u64> = said
        .split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect();
    numbers.try_into().expect("two numbers")
}

#[test]
fn a_living_allocation_takes_48_bytes_of_its_process_at_most() {
    let program = linked("living", "libcuda.so.1");
    // The kind, the number of allocations, the bytes of each on the device, the objects of which
    // each consists, and the least bytes in which any library could remember one.
    for (kind, count, bytes, things, least) in [
        ("linear", 20_000, 2 * MIB, 1, 8),
        ("small", 20_000, 4096, 1, 0),
        ("array", 8_000, 2 * MIB, 1, 16),
        ("physical", 7_500, 2 * MIB, 1, 16),
        ("mapped", 4_000, 2 * MIB, 2, 32),
    ] {
        let bare = Machine::new("h200");
        let [alone, _] = grown(bare.place(Run::new(&program)), kind, count);
        let slice = Counted::new("h200", 64 * GIB);
        let [in_slice, less] = grown(slice.run(&program), kind, count);
        assert_eq!(
            less,
            count * bytes / GRANULE * GRANULE,
            "{kind}: bytes taken from the device"
        );
        let each = in_slice.saturating_sub(alone).div_ceil(count);
        let at_most = 48 * things;
        assert!(
            (least..=at_most).contains(&each),
            "{kind}: {each} bytes each; growth {in_slice} in the slice, {alone} without it"
        );
    }
}
