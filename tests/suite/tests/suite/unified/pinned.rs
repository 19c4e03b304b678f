//! Pinned host memory on unified memory: each byte is counted once, by the driver's call or as the
//! program's own memory.
//! Touches: workers in a slice of a simulated GB10.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use serde_json::json;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const CONTEXT: u64 = 256 * MIB;

/// A slice that is charged for all host memory of its programs.
fn slice(memory: u64) -> Counted {
    let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
    let keys = json!({
        "devices": [{"uuid": uuid, "memory": memory, "integrated": true}],
        "reserve": 8 * GIB,
        "host_allowance": 0,
    });
    Counted::with("gb10", &keys)
}

/// The memory in use, once the library has read the use of host memory again.
fn used(worker: &mut Worker, limit: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(20));
    limit - worker.free()
}

/// Waits until so much more memory is in use than `before`.
fn uses(worker: &mut Worker, limit: u64, before: u64, more: u64) {
    let start = Instant::now();
    loop {
        let grown = used(worker, limit).saturating_sub(before);
        // The worker's own memory changes a little.
        if grown.abs_diff(more) <= 4 * MIB {
            return;
        }
        let took = start.elapsed();
        assert!(took < Duration::from_secs(60), "{grown} instead of {more}");
    }
}

/// A worker of such a slice, and the memory that it uses from the start.
fn started(limit: u64) -> (Counted, Worker, u64) {
    let slice = slice(limit);
    let mut worker = slice.worker();
    let before = used(&mut worker, limit);
    (slice, worker, before)
}

#[test]
fn memory_that_a_program_registers_after_using_it_is_counted_once() {
    let limit = GIB;
    let (_slice, mut worker, before) = started(limit);
    worker.must(&format!("host 0 {}", 192 * MIB));
    uses(&mut worker, limit, before, 192 * MIB);
    worker.must("register 1 0");
    uses(&mut worker, limit, before, 192 * MIB);
    worker.must("free 1");
    uses(&mut worker, limit, before, 192 * MIB);
    worker.must("free 0");
    uses(&mut worker, limit, before, 0);
}

/// SGLang's HiCache registers the host memory that it has filled the machine with.
#[test]
fn memory_of_a_full_slice_can_be_registered() {
    let limit = CONTEXT + 256 * MIB;
    let (_slice, mut worker, before) = started(limit);
    worker.must(&format!("host 0 {}", 192 * MIB));
    uses(&mut worker, limit, before, 192 * MIB);
    worker.must("register 1 0");
    uses(&mut worker, limit, before, 192 * MIB);
    assert_eq!(
        worker.code(&format!("alloc 2 {}", 128 * MIB)),
        OUT_OF_MEMORY
    );
}

/// The driver makes every page that it registers resident.
#[test]
fn memory_that_was_never_used_can_be_registered_if_it_fits() {
    let slice = slice(GIB);
    let mut worker = slice.worker();
    let counted = slice.counted();
    worker.must(&format!("untouched-host 0 {}", 2 * GIB));
    assert_eq!(worker.code("register 1 0"), OUT_OF_MEMORY);
    worker.must(&format!("untouched-host 2 {}", 256 * MIB));
    worker.must("register 3 2");
    assert_eq!(slice.counted(), counted, "it is the process's own memory");
}

/// A process's own memory does not contain what it shares.
#[test]
fn shared_memory_is_counted_once_it_is_registered() {
    let limit = GIB;
    let (_slice, mut worker, before) = started(limit);
    worker.must(&format!("shared-host 0 {}", 192 * MIB));
    uses(&mut worker, limit, before, 0);
    worker.must("register 1 0");
    uses(&mut worker, limit, before, 192 * MIB);
    worker.must("free 1");
    uses(&mut worker, limit, before, 0);
}

#[test]
fn small_pinned_memory_costs_its_pages() {
    let slice = slice(GIB);
    let mut worker = slice.worker();
    let before = (slice.held(), slice.counted());
    for number in 0..100 {
        worker.must(&format!("pin {number} 5000"));
    }
    let (held, counted) = (slice.held() - before.0, slice.counted() - before.1);
    assert_eq!((held, counted), (100 * 8192, 100 * 8192));
    let free = worker.free();
    worker.must(&format!("alloc 100 {free}"));
    worker.must("free 100");
    for number in 0..100 {
        worker.must(&format!("free {number}"));
    }
    assert_eq!((slice.held(), slice.counted()), before);
}
