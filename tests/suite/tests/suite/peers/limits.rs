//! Limits that were misread, mixed up between processes or cards, or not kept.
//! Touches: the same as the parent module; `gpuslice run`.

use super::{CONTEXT, numbers};
use gpuslice_suite::compile::linked_cuda;
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices, write};
use gpuslice_suite::worker::Counted;
use serde_json::json;

/// `4Gi` was read as four bytes, `-1` as no limit at all.
#[test]
fn a_size_is_what_people_mean_by_it_or_an_error() {
    let run = |size: &str| {
        let words = ["run", "--sim", "rtx3090", "--memory", size, "--"];
        Run::new(place::gpuslice()).args(words).arg(linked_cuda())
    };
    for (size, bytes) in [
        ("4Gi", 4 * GIB),
        ("4096MiB", 4 * GIB),
        ("4294967296", 4 * GIB),
    ] {
        let said = run(size).answer().clean();
        assert_eq!(numbers(&said, "total"), [bytes; 4], "{size}");
    }
    for size in ["-1", "0", "4Q", "", "GiB", "4 Gi x"] {
        let answer = run(size).answer();
        assert_eq!(answer.stdout, "", "{size}: no program may start");
        assert_ne!(answer.end, "exit 0", "{size}");
        assert!(!answer.stderr.is_empty(), "{size}");
    }
}

/// The first process decided the limit of all processes; other limits were logged and ignored.
#[test]
fn every_slice_keeps_its_own_limit() {
    let first = Counted::new("rtx3090", 4 * GIB);
    let mut small = first.worker();
    let file = first.machine().folder().join("second.json");
    write(&file, br#"{"version":1,"memory":8589934592}"#);
    let run = first.machine().place(Run::new(linked_cuda()));
    let said = run.with_shim().slice(&file).answer().clean();
    assert_eq!(numbers(&said, "total"), [8 * GIB; 4]);
    assert_eq!(small.info().total, 4 * GIB);
}

/// A card that was chosen by its uuid got the first card's limit, and the second card showed the
/// numbers of the first.
#[test]
fn a_card_that_is_chosen_by_uuid_keeps_its_own_limit() {
    let uuids = [
        "GPU-200aaaaa-2222-4333-8444-555566660000",
        "GPU-200aaaaa-2222-4333-8444-555566660001",
    ];
    let keys = json!({"devices": [
        {"uuid": uuids[0], "memory": 4 * GIB},
        {"uuid": uuids[1], "memory": 8 * GIB},
    ]});
    let slice = Counted::with("2xh200", &keys);
    for (visible, totals) in [
        (uuids[0], vec![4 * GIB; 4]),
        (uuids[1], vec![8 * GIB; 4]),
        ("1", vec![8 * GIB; 4]),
        ("1,0", [[8 * GIB; 4], [4 * GIB; 4]].concat()),
    ] {
        let run = slice.run(linked_cuda());
        let said = run.env("CUDA_VISIBLE_DEVICES", visible).answer().clean();
        assert_eq!(numbers(&said, "total"), totals, "{visible}: {said}");
    }
}

/// Allocations on the second card changed the free memory of the first.
#[test]
fn memory_of_the_second_card_leaves_the_first_alone() {
    let slice = Counted::new("2xh200", 8 * GIB);
    let mut first = slice.worker();
    let before = first.info();
    let mut second = slice.idle();
    second.must("start 1");
    let free = second.free();
    second.must(&format!("alloc 0 {GIB}"));
    assert_eq!(second.free(), free - GIB);
    assert_eq!(first.info(), before);
}

/// A ledger in an unwritable folder ended the program, or crashed it, or lifted the limit.
#[test]
fn a_ledger_that_cannot_be_had_refuses_and_crashes_no_program() {
    for ledger in [
        "/proc/nothing/ledger",
        "/nonexistent/ledger",
        "/dev/null",
        "/",
    ] {
        let machine = Machine::new("rtx3090");
        let file = machine.folder().join("slice.json");
        let slice = json!({"version": 1, "memory": 8 * GIB, "ledger": ledger});
        write(&file, slice.to_string().as_bytes());
        let run = machine.place(Run::new(linked_cuda()));
        let answer = run.with_shim().slice(&file).answer();
        assert_eq!(numbers(&answer.stdout, "total"), [8 * GIB], "{ledger}");
        let refused = "cuDevicePrimaryCtxRetain(&context, device): 2\n";
        assert!(answer.stderr.ends_with(refused), "{ledger}: {answer:?}");
        assert_eq!(answer.end, "exit 1", "{ledger}: {answer:?}");
    }
    // A slice file without a ledger, the older kind, still works.
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = machine.place(Run::new(linked_cuda()));
    let said = run.with_shim().slice(&file).answer().clean();
    assert_eq!(numbers(&said, "free")[0], 8 * GIB - CONTEXT);
}
