//! The first context of a slice, whose size is not known before it exists.
//! Touches: simulated cards with contexts of 254 and 520 MiB.

use gpuslice_config::ledger::{Claim, Kind, Ledger, Open};
use gpuslice_config::words::units::Bytes;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

const MIB: u64 = 1 << 20;

/// Claims memory of the slice for this process, which has no context. `cuMemCreate` and imports do
/// the same.
fn hold(slice: &Counted, uuid: &str, bytes: u64) {
    let path = CString::new(slice.ledger().as_os_str().as_bytes()).unwrap();
    let ledger = Ledger::open(&path, Open::Existing).unwrap();
    let device = ledger.device(&uuid.parse().unwrap()).unwrap();
    let claim = ledger.claim(device, Bytes::new(bytes), Kind::Vmm, Bytes::MAX);
    assert_eq!(claim, Claim::Granted);
}

const RTX3090: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

#[test]
fn the_first_context_of_a_full_slice_is_refused() {
    for free in [0, 2 * MIB, 250 * MIB] {
        let slice = Counted::new("rtx3090", 8 * GIB);
        hold(&slice, RTX3090, 8 * GIB - free);
        let mut worker = slice.idle();
        assert_eq!(worker.code("start 0"), OUT_OF_MEMORY, "{free}");
        assert_eq!(slice.counted(), 8 * GIB - free, "{free}");
        assert_eq!(slice.held(), 0, "{free}");
    }
}

#[test]
fn the_first_context_of_a_slice_with_room_is_counted_as_it_is() {
    for held in [0, 2 * MIB, 7 * GIB] {
        let slice = Counted::new("rtx3090", 8 * GIB);
        if held > 0 {
            hold(&slice, RTX3090, held);
        }
        let mut worker = slice.idle();
        worker.must("start 0");
        assert_eq!(slice.counted(), held + 254 * MIB);
        assert_eq!(worker.free(), 8 * GIB - held - 254 * MIB);
    }
    let slice = Counted::new("h200", 8 * GIB);
    let mut worker = slice.idle();
    worker.must("start 0");
    let size = slice.counted();
    assert_eq!(slice.held(), size);
    assert!(size > 256 * MIB, "{size}");
    assert_eq!(worker.free(), 8 * GIB - size);
}

/// The real size of a context may be smaller than the usual one.
#[test]
fn the_first_context_of_a_tiny_empty_slice_is_granted() {
    let slice = Counted::new("rtx3090", 64 * MIB);
    let mut worker = slice.idle();
    worker.must("start 0");
    assert_eq!(slice.counted(), 254 * MIB);
    assert_eq!(worker.free(), 0);
}
