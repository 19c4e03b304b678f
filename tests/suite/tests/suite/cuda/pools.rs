//! Pools: the library no longer calls the driver with destroyed ones, and refuses the memory of those
//! that it cannot record.
//! Touches: workers in slices of simulated machines.

use gpuslice_suite::compile;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use serde_json::json;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The memory of a context on an RTX 3090.
const CONTEXT: u64 = 254 * MIB;

#[test]
fn a_destroyed_pool_is_not_queried_by_another_thread() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut worker = slice.worker();
    for thread in 1..3 {
        worker.send(thread, "churn 20000");
    }
    for thread in 3..6 {
        let bytes = if thread == 3 { 0 } else { 4 * MIB };
        worker.send(thread, &format!("synchronise 20000 {bytes}"));
    }
    assert!(worker.settle());
    assert_eq!(slice.truth().misuses, 0);
    worker.must("synchronize");
    worker.must("trim 0");
    // A pool that is destroyed while another thread frees from it may stay counted (LIMITS.md), never
    // the reverse.
    assert!(slice.counted() >= slice.held());
}

#[test]
fn the_pools_of_a_device_are_forgotten_before_it_is_reset() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut worker = slice.worker();
    worker.must("pool 0");
    worker.must(&format!("from 1 0 {}", 64 * MIB));
    worker.must(&format!("async 2 {}", 64 * MIB));
    worker.must("reset");
    worker.must("start 0");
    for _ in 0..10 {
        worker.must("synchronize");
        worker.free();
    }
    worker.must(&format!("async 3 {}", 64 * MIB));
    assert_eq!(slice.truth().misuses, 0);
    assert_eq!(slice.counted(), slice.held());
    worker.must("release-primary");
    worker.must("start 0");
    worker.must("synchronize");
    assert_eq!(slice.truth().misuses, 0);
    assert_eq!((slice.counted(), slice.held()), (CONTEXT, CONTEXT));
}

#[test]
fn a_pool_that_cannot_be_destroyed_is_counted_as_before() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must("default-pool 0 0");
    worker.must(&format!("from 1 0 {}", 512 * MIB));
    assert_eq!(
        worker.code("free 0"),
        1,
        "a default pool cannot be destroyed"
    );
    assert_eq!(slice.counted(), CONTEXT + 512 * MIB);
    assert_eq!(
        worker.code(&format!("async 2 {}", 600 * MIB)),
        OUT_OF_MEMORY
    );
    worker.must("free 1");
    worker.must("synchronise 1 0");
    assert_eq!(slice.counted(), CONTEXT);
}

#[test]
fn a_primary_context_that_others_still_use_keeps_its_pools() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must("start 0");
    worker.must(&format!("async 1 {}", 512 * MIB));
    worker.must("release-primary");
    worker.must("start 0");
    assert_eq!(slice.counted(), CONTEXT + 512 * MIB);
    assert_eq!(
        worker.code(&format!("async 2 {}", 600 * MIB)),
        OUT_OF_MEMORY
    );
    worker.must("free 1");
    worker.must("synchronise 1 0");
    assert_eq!((slice.counted(), slice.held()), (CONTEXT, CONTEXT));
}

/// A library may retain and release the primary context while the program uses a context of its own.
#[test]
fn a_pool_stays_charged_while_another_context_lives() {
    for ends in ["release-primary", "reset"] {
        let slice = Counted::new("rtx3090", 8 * GIB);
        let mut worker = slice.worker();
        worker.must("context 0");
        worker.must("pool 1");
        worker.must(&format!("from 2 1 {}", 2 * GIB));
        worker.must(&format!("async 3 {}", 2 * GIB));
        worker.must(ends);
        let held = CONTEXT + 4 * GIB;
        assert_eq!((slice.counted(), slice.held()), (held, held), "{ends}");
        worker.must("start 0");
        let code = worker.code(&format!("alloc 4 {}", 4 * GIB));
        assert_eq!(code, OUT_OF_MEMORY, "{ends}");
        worker.must("free 2");
        worker.must("free 3");
        worker.must("synchronise 1 0");
        let held = 2 * CONTEXT;
        assert_eq!((slice.counted(), slice.held()), (held, held), "{ends}");
        // With the last context, the memory of the pools ends.
        worker.must(&format!("async 3 {}", 2 * GIB));
        worker.must("free 0");
        worker.must(ends);
        assert_eq!((slice.counted(), slice.held()), (0, 0), "{ends}");
        assert_eq!(slice.truth().misuses, 0);
    }
}

#[test]
fn a_destroyed_pool_in_use_stays_charged_while_another_context_lives() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut worker = slice.worker();
    worker.must("context 0");
    worker.must("pool 1");
    worker.must(&format!("from 2 1 {}", 2 * GIB));
    worker.must("free 1");
    worker.must("release-primary");
    let held = CONTEXT + 2 * GIB;
    assert_eq!((slice.counted(), slice.held()), (held, held));
    worker.must("start 0");
    worker.must("free 2");
    let held = 2 * CONTEXT;
    assert_eq!((slice.counted(), slice.held()), (held, held));
    assert_eq!(slice.truth().misuses, 0);
}

#[test]
fn a_pool_whose_memory_ends_with_the_last_context_is_not_charged() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut worker = slice.worker();
    worker.must("context 0");
    worker.must(&format!("async 1 {}", 2 * GIB));
    worker.must("release-primary");
    assert_eq!(slice.counted(), CONTEXT + 2 * GIB);
    // The library measures it.
    worker.must("free 0");
    assert_eq!((slice.counted(), slice.held()), (0, 0));
    assert_eq!(slice.truth().misuses, 0);
}

#[test]
fn a_refused_allocation_does_not_end_a_capture_of_another_thread() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must("stream 0");
    worker.must("async 1 4096");
    worker.must("capture 0");
    worker.send(1, &format!("async 2 {}", 2 * GIB));
    let refused = worker.hear().unwrap_or_default();
    assert_eq!(refused.get(2).map(String::as_str), Some("2"), "{refused:?}");
    worker.must("captured 0");
}

/// The library has places for 65,544 pools. Each reset ends the default pool, and it took a new one.
#[test]
fn the_default_pool_of_a_device_that_is_reset_often_is_limited() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must(&format!("resets 66000 {MIB}"));
    assert_eq!(worker.code(&format!("async 1 {}", 2 * GIB)), OUT_OF_MEMORY);
    worker.must(&format!("async 1 {}", 512 * MIB));
    assert_eq!(slice.counted(), CONTEXT + 512 * MIB);
}

/// A driver that does not return from `cuMemPoolDestroy`, or a thread that was cancelled in it, keeps
/// the pool closed for good.
#[test]
fn a_pool_whose_destruction_does_not_end_is_limited() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let run = slice.run(compile::worker());
    let mut worker =
        Worker::start(run.env("GPUSLICE_SIM_FAULTS", "slow:cuMemPoolDestroy=600000ms"));
    worker.must("start 0");
    worker.must(&format!("async 1 {MIB}"));
    worker.must("default-pool 0 0");
    worker.must("default-pool 2 0");
    worker.send(1, "free 0");
    std::thread::sleep(Duration::from_millis(200));
    let mut code = |line: String| {
        worker.send(2, &line);
        worker.hear().and_then(|said| said.get(2).cloned())
    };
    let refused = Some(OUT_OF_MEMORY.to_string());
    assert_eq!(code(format!("async 3 {}", 2 * GIB)), refused);
    assert_eq!(code(format!("from 3 2 {}", 2 * GIB)), refused);
    let (start, granted) = (Instant::now(), Some("0".to_owned()));
    for thing in 3..23 {
        assert_eq!(code(format!("async {thing} {}", 2 * MIB)), granted);
        assert_eq!(code(format!("free {thing}")), granted);
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "waits each time: {took:?}");
    assert_eq!(code(format!("async 3 {}", 512 * MIB)), granted);
    assert!(slice.counted() >= CONTEXT + 512 * MIB);
    worker.kill();
}

/// A worker with nine pools, of which the library has recorded eight: the kernel refuses the memory
/// for further records.
fn nine_pools(slice: &Counted) -> Worker {
    let mut worker = slice.worker();
    worker.must("no-mappings 1");
    for pool in 0..9 {
        worker.must(&format!("pool {pool}"));
    }
    worker
}

#[test]
fn a_pool_that_cannot_be_recorded_grants_no_memory() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = nine_pools(&slice);
    for bytes in [2 * GIB, 2 * MIB] {
        assert_eq!(worker.code(&format!("from 20 8 {bytes}")), OUT_OF_MEMORY);
        assert_eq!(worker.code(&format!("async 21 {bytes}")), OUT_OF_MEMORY);
        assert_eq!(worker.code(&format!("ptsz 21 {bytes}")), OUT_OF_MEMORY);
    }
    assert_eq!((slice.counted(), slice.held()), (CONTEXT, CONTEXT));
    assert_eq!(
        slice.refusals().count,
        0,
        "they say nothing about the limit"
    );
    worker.must(&format!("from 22 0 {}", 512 * MIB));
    worker.must(&format!("alloc 23 {}", 256 * MIB));
    let held = CONTEXT + 768 * MIB;
    assert_eq!((slice.counted(), slice.held()), (held, held));
    // Every pool can be destroyed. The place of a recorded one is free for another.
    worker.must("free 8");
    worker.must("free 1");
    worker.must("pool 8");
    worker.must(&format!("from 20 8 {}", 128 * MIB));
    let held = held + 128 * MIB;
    assert_eq!((slice.counted(), slice.held()), (held, held));
    assert_eq!(slice.truth().misuses, 0);
}

#[test]
fn an_invalid_request_to_an_unrecorded_pool_gets_the_drivers_error() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = nine_pools(&slice);
    let bare = slice.neighbour().code("from 20 30 4096");
    assert_eq!(worker.code("from 20 30 4096"), bare, "no pool");
    assert_eq!(
        worker.code("from 20 8 0"),
        slice.neighbour().code("from 20 8 0")
    );
}

#[test]
fn a_slice_that_only_counts_grants_the_memory_of_an_unrecorded_pool() {
    let keys = json!({"memory": CONTEXT + GIB, "enforce": false});
    let slice = Counted::with("rtx3090", &keys);
    let mut worker = nine_pools(&slice);
    worker.must(&format!("from 20 8 {}", 2 * GIB));
    worker.must(&format!("async 21 {}", 2 * GIB));
}
