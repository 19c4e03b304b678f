//! Memory and pools by their location: a device, a part of one, the host.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY};

const MIB: u64 = 1 << 20;
/// The memory of a context on an RTX 3090.
const CONTEXT: u64 = 254 * MIB;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`; the second byte of the place is the domain.
const LOCALITY_DOMAIN: &str = "6 256";
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: u32 = 1;

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
