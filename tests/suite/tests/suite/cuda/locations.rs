//! Memory and pools by their location: a device, a part of one, the host.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY};
use serde_json::json;

const MIB: u64 = 1 << 20;
/// The memory of a context on an RTX 3090.
const CONTEXT: u64 = 254 * MIB;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`; the second byte of the place is the domain.
const LOCALITY_DOMAIN: &str = "6 256";
/// `CU_MEM_ALLOCATION_TYPE_PINNED` and `CU_MEM_ALLOCATION_TYPE_MANAGED`.
const PINNED: u32 = 1;
const MANAGED: u32 = 2;
/// The locations of managed pools: `CU_MEM_LOCATION_TYPE_NONE`, a device, the host.
const LOCATIONS: [&str; 3] = ["0 0", "1 0", "2 0"];

#[test]
fn memory_of_a_locality_domain_is_limited() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    let refused = worker.code(&format!("create-at 0 {} {LOCALITY_DOMAIN}", 2 * GIB));
    assert_eq!(refused, OUT_OF_MEMORY);
    worker.must(&format!("create-at 0 {} {LOCALITY_DOMAIN}", 512 * MIB));
    assert_eq!(slice.counted(), CONTEXT + 512 * MIB);
    assert_eq!(slice.counted(), slice.held());
    worker.must("free 0");
    assert_eq!(slice.counted(), CONTEXT);
}

#[test]
fn a_pool_of_a_locality_domain_is_limited() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    worker.must(&format!("pool-at 0 {PINNED} {LOCALITY_DOMAIN}"));
    let refused = worker.code(&format!("from 1 0 {}", 2 * GIB));
    assert_eq!(refused, OUT_OF_MEMORY);
    worker.must(&format!("from 1 0 {}", 512 * MIB));
    assert_eq!(slice.counted(), CONTEXT + 512 * MIB);
    worker.must("free 1");
    worker.must("synchronise 1 0");
    assert_eq!((slice.counted(), slice.held()), (CONTEXT, CONTEXT));
}

#[test]
fn a_graph_that_allocates_in_a_locality_domain_is_limited() {
    let slice = Counted::new("rtx3090", CONTEXT + GIB);
    let mut worker = slice.worker();
    let refused = worker.code(&format!("graph-at 0 {} {LOCALITY_DOMAIN}", 2 * GIB));
    assert_eq!(refused, OUT_OF_MEMORY);
    worker.must(&format!("graph-at 0 {} {LOCALITY_DOMAIN}", 512 * MIB));
    assert_eq!(slice.counted(), CONTEXT + 512 * MIB);
    assert_eq!(slice.counted(), slice.held());
    worker.must("free 0");
    worker.must("trim-graphs");
    assert_eq!(slice.counted(), CONTEXT);
}

#[test]
fn managed_pools_are_limited() {
    for scenario in ["rtx3090", "gb10"] {
        for (pool, place) in LOCATIONS
            .into_iter()
            .flat_map(|place| ["pool-at", "default-pool-at"].map(|pool| (pool, place)))
        {
            let slice = Counted::new(scenario, 2 * GIB);
            let mut worker = slice.worker();
            let before = slice.counted();
            worker.must(&format!("{pool} 0 {MANAGED} {place}"));
            let refused = worker.code(&format!("from 1 0 {}", 4 * GIB));
            assert_eq!(refused, OUT_OF_MEMORY, "{scenario} {pool} {place}");
            worker.must(&format!("from 1 0 {}", 512 * MIB));
            let counted = slice.counted() - before;
            assert_eq!(counted, 512 * MIB, "{scenario} {pool} {place}");
            worker.must("free 1");
            worker.must("synchronise 1 0");
            assert_eq!(slice.counted(), before, "{scenario} {pool} {place}");
        }
    }
}

#[test]
fn managed_pools_that_are_allowed_are_neither_counted_nor_limited() {
    let slice = Counted::with("rtx3090", &json!({"memory": 2 * GIB, "managed": "allow"}));
    let mut worker = slice.worker();
    for place in LOCATIONS {
        for pool in ["pool-at", "default-pool-at"] {
            worker.must(&format!("{pool} 0 {MANAGED} {place}"));
            worker.must(&format!("from 1 0 {}", 4 * GIB));
            assert_eq!(slice.counted(), CONTEXT, "{pool} {place}");
        }
    }
}

#[test]
fn the_hosts_default_pool_takes_nothing_from_the_slice_of_a_card() {
    for pool in ["pool-at", "default-pool-at"] {
        let slice = Counted::new("rtx3090", CONTEXT + GIB);
        let mut worker = slice.worker();
        worker.must(&format!("{pool} 0 {PINNED} 2 0"));
        worker.must(&format!("from 1 0 {}", 8 * GIB));
        assert_eq!(slice.counted(), CONTEXT, "{pool}");
    }
}

#[test]
fn memory_of_the_host_is_limited_without_a_current_context() {
    let slice = Counted::new("gb10", 2 * GIB);
    let mut worker = slice.idle();
    worker.must("init");
    let refused = worker.code(&format!("create-at 0 {} 2 0", 4 * GIB));
    assert_eq!(refused, OUT_OF_MEMORY);
    worker.must(&format!("create-at 0 {} 2 0", 512 * MIB));
    assert_eq!(slice.counted(), 512 * MIB);
    worker.must("free 0");
    assert_eq!(slice.counted(), 0);
}

#[test]
fn a_pool_of_the_host_is_limited_if_it_was_made_without_a_context() {
    let slice = Counted::new("gb10", 2 * GIB);
    let mut worker = slice.idle();
    worker.must("init");
    worker.must(&format!("pool-at 0 {PINNED} 2 0"));
    worker.must("start 0");
    let before = slice.counted();
    let refused = worker.code(&format!("from 1 0 {}", 4 * GIB));
    assert_eq!(refused, OUT_OF_MEMORY);
    worker.must(&format!("from 1 0 {}", 512 * MIB));
    assert_eq!(slice.counted() - before, 512 * MIB);
}

#[test]
fn the_hosts_default_pool_is_limited_on_unified_memory() {
    for pool in ["pool-at", "default-pool-at"] {
        let slice = Counted::new("gb10", 2 * GIB);
        let mut worker = slice.worker();
        let before = slice.counted();
        worker.must(&format!("{pool} 0 {PINNED} 2 0"));
        let refused = worker.code(&format!("from 1 0 {}", 4 * GIB));
        assert_eq!(refused, OUT_OF_MEMORY, "{pool}");
        worker.must(&format!("from 1 0 {}", 512 * MIB));
        assert_eq!(slice.counted() - before, 512 * MIB, "{pool}");
    }
}
