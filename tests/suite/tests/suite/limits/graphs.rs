//! Graphs whose memory is known only after the driver has reserved it. They are refused or counted
//! like other graphs.
//! Touches: workers in a slice, on a simulated RTX 3090.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY};

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
