//! Sparse arrays: they hold no memory of their own, and keep the physical memory that is mapped into
//! them.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY};

const MIB: u64 = 1 << 20;

#[test]
fn physical_memory_in_a_sparse_array_is_counted_until_the_array_ends() {
    let slice = Counted::new("rtx3090", 2 * GIB);
    let mut worker = slice.worker();
    let context = slice.counted();
    worker.must("sparse 0 4096 4096");
    worker.must("sparse 1 4096 4096");
    assert_eq!(slice.counted(), context, "a sparse array holds no memory");
    worker.must(&format!("create 2 {}", 512 * MIB));
    worker.must(&format!("create 3 {}", 256 * MIB));
    for line in [
        "map-tile 0 2 0",
        "map-tile 0 2 64",
        "map-tile 0 3 128",
        "map-tile 1 3 0",
    ] {
        worker.must(line);
    }
    worker.must("free 2");
    worker.must("free 3");
    let holds = |bytes: u64| assert_eq!((slice.held(), slice.counted()), (bytes, bytes));
    holds(context + 768 * MIB);
    assert_eq!(
        worker.code(&format!("alloc 4 {}", GIB + 512 * MIB)),
        OUT_OF_MEMORY
    );
    worker.must("free 0");
    holds(context + 256 * MIB);
    worker.must("free 1");
    holds(context);
}

#[test]
fn memory_that_a_sparse_array_no_longer_maps_is_counted_until_it_ends() {
    let slice = Counted::new("rtx3090", 2 * GIB);
    let mut worker = slice.worker();
    let context = slice.counted();
    worker.must("sparse 0 4096 4096");
    worker.must(&format!("create 1 {}", 512 * MIB));
    worker.must("map-tile 0 1 0");
    worker.must("unmap-tile 0 1 0");
    worker.must("free 1");
    assert_eq!(slice.held(), context);
    assert_eq!(slice.counted(), context + 512 * MIB);
    worker.must("free 0");
    assert_eq!(slice.counted(), context);
}

#[test]
fn a_mapping_that_the_driver_refuses_counts_nothing() {
    let slice = Counted::new("rtx3090", 2 * GIB);
    let mut worker = slice.worker();
    let context = slice.counted();
    worker.must("mipmap 0 64 64");
    worker.must(&format!("create 1 {}", 512 * MIB));
    assert_eq!(worker.code("map-tile 0 1 0"), 1, "no sparse array");
    worker.must("free 1");
    worker.must("free 0");
    assert_eq!((slice.held(), slice.counted()), (context, context));
}
