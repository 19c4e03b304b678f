//! Error codes: a call that the driver itself refuses fails in a slice with the same code.

use gpuslice_suite::compile::linked;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;
use serde_json::json;

/// The output of the program that makes every call, on a fresh machine without a slice.
fn bare(scenario: &str) -> String {
    let machine = Machine::new(scenario);
    let program = linked("codes", "libcuda.so.1");
    machine.place(Run::new(program)).answer().clean()
}

fn in_slice(slice: &Counted) -> String {
    slice.run(linked("codes", "libcuda.so.1")).answer().clean()
}

/// The lines in which two tables differ.
fn differences(bare: &str, slice: &str) -> Vec<String> {
    assert_eq!(bare.lines().count(), slice.lines().count());
    let pairs = bare.lines().zip(slice.lines());
    let different = pairs.filter(|(bare, slice)| bare != slice);
    different
        .map(|(bare, slice)| format!("{bare} | {slice}"))
        .collect()
}

#[test]
fn every_call_answers_the_drivers_own_error_code() {
    for scenario in ["rtx3090", "2xh200", "gb10"] {
        let bare = bare(scenario);
        assert!(bare.lines().count() > 1000);
        for memory in [6 * GIB, 2 * GIB] {
            let slice = Counted::new(scenario, memory);
            let different = differences(&bare, &in_slice(&slice));
            assert_eq!(different, [""; 0], "{scenario}, {memory}");
        }
    }
}

#[test]
fn a_request_that_no_driver_grants_teaches_no_headroom() {
    let slice = Counted::with("rtx3090", &json!({"memory": 2 * GIB}));
    let mut worker = slice.idle();
    for line in [
        "alloc 0 3221225472",
        "managed 0 3221225472",
        "async 0 3221225472",
    ] {
        assert_eq!(worker.code(line), 3, "{line}: not initialised");
    }
    worker.must("start 0");
    for _ in 0..3 {
        assert_eq!(worker.code("!alloc 0 3221225472"), 2);
    }
    assert_eq!(slice.refusals().count, 3);
    worker.must("release-primary");
    for line in [
        "!alloc 0 3221225472",
        "!pitch 0 1099511627776 1099511627776",
    ] {
        assert_ne!(worker.code(line), 2, "{line}: no context, or no such size");
    }
    assert_eq!(slice.refusals().count, 3);
}
