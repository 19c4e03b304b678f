//! Kinds of memory that were counted wrongly, or not at all.
//! Touches: the same as the parent module.

use super::CONTEXT;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Worker};

const ALL: u64 = 8 * GIB;

/// How much less is free after an operation, in the slice and on the card.
fn costs(slice: &Counted, worker: &mut Worker, line: &str) -> (u64, u64) {
    let (free, held) = (worker.free(), slice.held());
    worker.must(line);
    (free - worker.free(), slice.held() - held)
}

/// Pitched memory was counted by the requested width. Arrays were counted eight times too large or
/// not at all, and mipmapped arrays only after they had been made.
#[test]
fn pitched_memory_and_arrays_cost_what_they_cost() {
    let slice = Counted::new("rtx3090", ALL);
    let mut worker = slice.worker();
    let free = worker.free();
    // Rows of 1000 bytes lie 1024 bytes apart.
    for (line, bytes) in [
        ("pitch 0 1000 8192", 8u64 << 20),
        ("array 1 1024 1024", 16 << 20),
        ("array 2 4096 1", 2 << 20),
        ("mipmap 3 1024 1024", 22 << 20),
    ] {
        let (shown, held) = costs(&slice, &mut worker, line);
        assert_eq!((shown, held), (held, bytes), "{line}");
    }
    for number in 0..4 {
        worker.must(&format!("free {number}"));
    }
    assert_eq!(worker.free(), free);
}

/// Formats that do not say their bytes by their channels, and layers, which no level has fewer of.
#[test]
fn arrays_of_every_kind_of_format_cost_what_they_cost() {
    let slice = Counted::new("rtx3090", ALL);
    let mut worker = slice.worker();
    for (described, mib) in [
        // BC1 and BC7.
        ("91 4 0 1 4096 4096 0", 8),
        ("9d 4 0 1 4096 4096 0", 16),
        // UNORM_INT8X4 and SNORM_INT16X2, NV12, P010.
        ("c2 4 0 1 4096 4096 0", 64),
        ("ca 2 0 1 4096 4096 0", 64),
        ("b0 3 0 1 4096 4096 0", 24),
        ("9f 3 0 1 4096 4096 0", 48),
        // Two levels of 16 layers, then of a volume 16 deep.
        ("1 1 1 2 1024 1024 16", 20),
        ("1 1 0 2 1024 1024 16", 18),
        ("1 1 4 2 1024 1024 6", 8),
    ] {
        let line = format!("levels 0 {described}");
        let (shown, held) = costs(&slice, &mut worker, &line);
        assert_eq!((shown, held), (held, mib << 20), "{line}");
        worker.must("free 0");
    }
}

/// Managed scalars, as frameworks allocate them, lie together in steps of 2 MiB.
#[test]
fn small_managed_memory_shares_the_steps_in_which_it_lies() {
    let slice = Counted::new("rtx3090", ALL);
    let mut worker = slice.worker();
    let free = worker.free();
    for number in 0..100 {
        worker.must(&format!("managed {number} 4096"));
    }
    assert_eq!(free - worker.free(), 2 << 20);
    for number in 0..99 {
        worker.must(&format!("free {number}"));
    }
    assert_eq!(free - worker.free(), 2 << 20);
    worker.must("free 99");
    assert_eq!(worker.free(), free);
}

/// Memory that another process shares was charged to both, or freed twice.
#[test]
fn an_import_costs_nothing_and_the_exporter_pays_once() {
    let slice = Counted::new("rtx3090", ALL);
    let (mut exporter, mut importer) = (slice.worker(), slice.worker());
    exporter.must(&format!("alloc 0 {GIB}"));
    let free = exporter.free();
    assert_eq!(free, ALL - GIB - 2 * CONTEXT);
    let shared = exporter.words("export 0").pop().unwrap();
    assert_eq!(importer.words(&format!("import 1 {shared}"))[2], "0");
    assert_eq!(importer.free(), free);
    importer.must("free 1");
    assert_eq!(importer.free(), free);
    exporter.must("free 0");
    assert_eq!(importer.free(), free + GIB);
}

/// A handle's memory was given back when the handle was released, although it was still mapped.
#[test]
fn physical_memory_is_held_until_its_last_handle_and_mapping_are_gone() {
    let slice = Counted::new("rtx3090", ALL);
    let mut worker = slice.worker();
    let free = worker.free();
    worker.must(&format!("create 0 {GIB}"));
    assert_eq!(worker.free(), free - GIB);
    worker.must("map 1 0");
    worker.must("retain 2 1");
    assert_eq!(worker.free(), free - GIB);
    for (gone, left) in [
        ("free 0", free - GIB),
        ("free 1", free - GIB),
        ("free 2", free),
    ] {
        worker.must(gone);
        assert_eq!(worker.free(), left, "{gone}");
    }
}

/// Allocators of physical memory use threads without a context of their own. Their memory was
/// charged to whatever device number lay on the stack.
#[test]
fn a_thread_without_a_context_allocates_on_the_device_that_it_names() {
    let slice = Counted::new("2xh200", ALL);
    let mut first = slice.worker();
    let before = first.free();
    let mut worker = slice.idle();
    worker.must("start 1");
    let free = worker.free();
    worker.send(3, &format!("!create 0 {GIB}"));
    worker.send(3, "!info");
    assert_eq!(worker.hear().unwrap()[2], "0");
    // 201, invalid context: the thread has no context, so the query names no device.
    assert_eq!(worker.hear().unwrap()[2], "201");
    assert_eq!(worker.free(), free - GIB);
    assert_eq!(first.free(), before);
}

/// Contexts beyond the first one were not counted.
#[test]
fn every_context_costs_what_it_costs() {
    let slice = Counted::new("rtx3090", ALL);
    let mut worker = slice.worker();
    assert_eq!(worker.free(), ALL - CONTEXT);
    let (shown, held) = costs(&slice, &mut worker, "context 0");
    assert_eq!((shown, held), (CONTEXT, CONTEXT));
    worker.must("free 0");
    assert_eq!(worker.free(), ALL - CONTEXT);
    worker.must(&format!("alloc 1 {GIB}"));
    worker.must("release-primary");
    assert_eq!(slice.held(), 0);
    worker.must("start 0");
    assert_eq!(
        worker.free(),
        ALL - CONTEXT,
        "memory of a context ends with the context"
    );
}
