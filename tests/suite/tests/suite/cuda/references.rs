//! References to memory that cannot be counted: the memory stays charged.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;

const MIB: u64 = 1 << 20;
const EACH: u64 = 64 * MIB;

#[test]
fn memory_stays_charged_while_a_mapping_without_a_record_holds_it() {
    const MAPPINGS: u64 = 100;
    let slice = Counted::new("rtx3090", GIB);
    let mut worker = slice.worker();
    let before = slice.counted();
    worker.must(&format!("create 0 {EACH}"));
    worker.must("no-mappings 1");
    for mapping in 1..=MAPPINGS {
        worker.must(&format!("map-bytes {mapping} 0 {}", 2 * MIB));
    }
    for number in 0..MAPPINGS {
        worker.must(&format!("free {number}"));
    }
    assert_eq!(slice.held(), before + EACH, "one mapping holds the memory");
    assert_eq!(slice.counted(), before + EACH);
}

#[test]
fn memory_with_more_references_than_are_counted_stays_charged() {
    const REFERENCES: u64 = 65_600;
    let slice = Counted::new("rtx3090", GIB);
    let mut worker = slice.worker();
    let before = slice.counted();
    worker.must(&format!("create 0 {EACH}"));
    worker.must("map 1 0");
    worker.must(&format!("retains 1 {REFERENCES}"));
    worker.must("free 1");
    worker.must(&format!("releases 0 {REFERENCES}"));
    assert_eq!(slice.held(), before + EACH, "one handle is left");
    assert_eq!(slice.counted(), before + EACH);
}

#[test]
fn ipc_memory_that_is_opened_more_often_than_is_counted_stays_charged() {
    const TIMES: u64 = 130;
    let slice = Counted::new("rtx3090", GIB);
    let (mut exporter, mut importer) = (slice.worker(), slice.worker());
    let before = slice.counted();
    exporter.must(&format!("alloc 0 {EACH}"));
    let said = exporter.words("export 0");
    for number in 0..TIMES {
        importer.must(&format!("import {number} {}", said[3]));
    }
    exporter.must("free 0");
    for number in 1..TIMES {
        importer.must(&format!("free {number}"));
    }
    assert_eq!(slice.held(), before + EACH, "it is open once more");
    assert_eq!(slice.counted(), before + EACH);
}
