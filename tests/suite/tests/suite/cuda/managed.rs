//! Managed memory: counted at the call, or left to the driver.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY};
use serde_json::json;

const LIMIT: u64 = 4 * GIB;
/// The memory of a context on an RTX 3090.
const CONTEXT: u64 = 254 << 20;

#[test]
fn managed_memory_counts_at_the_call() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut worker = slice.worker();
    assert_eq!(
        worker.code(&format!("managed 0 {}", 6 * GIB)),
        OUT_OF_MEMORY
    );
    worker.must(&format!("managed 0 {GIB}"));
    assert_eq!(worker.free(), LIMIT - CONTEXT - GIB);
}

#[test]
fn managed_memory_that_is_allowed_is_neither_counted_nor_limited() {
    for scenario in ["rtx3090", "gb10"] {
        let keys = json!({"memory": LIMIT, "managed": "allow"});
        let slice = Counted::with(scenario, &keys);
        let mut worker = slice.worker();
        let before = worker.free();
        // This exceeds the card's memory.
        worker.must(&format!("managed 0 {}", 40 * GIB));
        assert_eq!(worker.free(), before, "{scenario}");
        assert_eq!(worker.code(&format!("alloc 1 {LIMIT}")), OUT_OF_MEMORY);
        worker.must(&format!("alloc 1 {}", before / 2));
        worker.must("free 0");
        worker.must("free 1");
        assert_eq!(worker.free(), before, "{scenario}");
    }
}
