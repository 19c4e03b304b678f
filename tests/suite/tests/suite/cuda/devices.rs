//! Several devices in one process: each pays for its own pools.

use gpuslice_config::ledger::Record;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};

const LIMIT: u64 = 4 * GIB;
const FIRST: &str = "GPU-200aaaaa-2222-4333-8444-555566660000";
/// The memory of a context on an H200.
const CONTEXT: u64 = 520 << 20;

/// A worker with a context on both devices of a machine, and a stream on the second, which is
/// number 0; the first device is current.
fn on_two_devices(slice: &Counted) -> Worker {
    let mut worker = slice.idle();
    worker.must("start 1");
    worker.must("stream 0");
    worker.must("start 0");
    worker
}

/// The memory that the ledger counts on both devices, and the memory that they really hold.
fn both(slice: &Counted) -> [(u64, u64); 2] {
    let truth = slice.truth();
    let is_first = |record: &Record| record.device.is_some_and(|it| it.to_string() == FIRST);
    [true, false].map(|first| {
        let records = slice.records();
        let counted = records.iter().filter(|record| is_first(record) == first);
        let device = &truth.devices[usize::from(!first)];
        (counted.map(|record| record.used).sum(), device.used)
    })
}

#[test]
fn memory_of_a_stream_is_charged_to_the_device_of_the_stream() {
    let slice = Counted::new("2xh200", LIMIT);
    let mut worker = on_two_devices(&slice);
    let mut granted = 0;
    for number in 1..=20 {
        let code = worker.code(&format!("stream-async {number} 0 {GIB}"));
        assert!(code == 0 || code == OUT_OF_MEMORY, "{code}");
        granted += u64::from(code == 0);
    }
    assert_eq!(granted, 3);
    let second = CONTEXT + 3 * GIB;
    assert_eq!(both(&slice), [(CONTEXT, CONTEXT), (second, second)]);
    assert_eq!(worker.free(), LIMIT - CONTEXT, "of the first device");
    worker.must(&format!("alloc 30 {}", 3 * GIB));
}

#[test]
fn memory_of_a_default_pool_is_charged_to_the_device_of_the_pool() {
    let slice = Counted::new("2xh200", LIMIT);
    let mut worker = on_two_devices(&slice);
    worker.must("default-pool 1 1");
    worker.must(&format!("from 2 1 {}", 3 * GIB));
    let second = CONTEXT + 3 * GIB;
    assert_eq!(both(&slice), [(CONTEXT, CONTEXT), (second, second)]);
    assert_eq!(worker.free(), LIMIT - CONTEXT, "of the first device");
    worker.must("start 1");
    assert_eq!(worker.code(&format!("alloc 3 {GIB}")), OUT_OF_MEMORY);
}

#[test]
fn an_allocation_captured_from_the_per_thread_stream_needs_no_room() {
    let slice = Counted::new("rtx3090", GIB);
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {}", worker_free(&slice, 254 << 20)));
    worker.must("capture-ptsz");
    worker.must(&format!("ptsz 1 {GIB}"));
    worker.must("captured-ptsz");
    assert_eq!(worker.code(&format!("ptsz 1 {}", 2 << 20)), OUT_OF_MEMORY);
}

/// The memory that is free beside a context.
fn worker_free(slice: &Counted, context: u64) -> u64 {
    assert_eq!(slice.counted(), context);
    GIB - context
}
