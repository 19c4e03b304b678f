//! A slice of unified memory with a ledger. Its free memory depends on the slice alone, until
//! programs outside of it use up the host's memory.
//! Touches: workers in a slice of a simulated GB10, its neighbours, its page cache and host.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Said, Worker};
use serde_json::json;

const LIMIT: u64 = 40 * GIB;
const CONTEXT: u64 = 256 << 20;

fn slice() -> Counted {
    let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
    let device = json!({"uuid": uuid, "memory": LIMIT, "integrated": true});
    Counted::with("gb10", &json!({"devices": [device], "reserve": 8 * GIB}))
}

fn says(worker: &mut Worker, free: u64) {
    assert_eq!(worker.info(), Said { total: LIMIT, free });
    assert_eq!(worker.nvml(), [free, LIMIT, LIMIT - free]);
}

#[test]
fn neighbours_and_page_cache_move_nothing() {
    let slice = slice();
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {GIB}"));
    let free = LIMIT - GIB - CONTEXT;
    says(&mut worker, free);
    let mut neighbour = slice.neighbour();
    neighbour.must(&format!("alloc 0 {}", 20 * GIB));
    says(&mut worker, free);
    slice.simulator(&["cache", "+30GiB"]);
    says(&mut worker, free);
    slice.simulator(&["host", "+10GiB"]);
    says(&mut worker, free);
    // All of it can be allocated, because the kernel drops page cache.
    worker.must(&format!("alloc 1 {free}"));
    says(&mut worker, 0);
}

#[test]
fn a_host_that_is_eaten_up_leaves_less_and_the_reserve_is_not_touched() {
    let slice = slice();
    let mut worker = slice.worker();
    says(&mut worker, LIMIT - CONTEXT);
    slice.simulator(&["host", "+90GiB"]);
    let available = slice.truth().host.unwrap().mem_available;
    let left = available - 8 * GIB;
    assert!(left < LIMIT - CONTEXT, "{left}");
    let free = worker.free();
    assert!(free <= left && free > left - (2 << 20), "{free} of {left}");
    let more = (left / (2 << 20) + 1) * (2 << 20);
    assert_eq!(worker.code(&format!("alloc 0 {more}")), OUT_OF_MEMORY);
    worker.must(&format!("alloc 0 {}", free / (2 << 20) * (2 << 20)));
    assert!(slice.truth().host.unwrap().mem_available >= 8 * GIB);
    slice.simulator(&["host", "-90GiB"]);
    worker.must("free 0");
    says(&mut worker, LIMIT - CONTEXT);
}

#[test]
fn what_a_killed_process_held_is_free_again() {
    let slice = slice();
    let (mut survivor, mut worker) = (slice.worker(), slice.worker());
    worker.must(&format!("create 0 {}", 4 * GIB));
    says(&mut survivor, LIMIT - 4 * GIB - 2 * CONTEXT);
    worker.kill();
    slice.buried(1);
    says(&mut survivor, LIMIT - CONTEXT);
}
