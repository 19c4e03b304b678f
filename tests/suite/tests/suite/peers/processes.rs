//! Processes that are killed, fork, or replace themselves: their memory comes back, and no process
//! waits.
//! Touches: the same as the parent module.

use super::{CONTEXT, MIB};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;
use std::time::{Duration, Instant};

const ALL: u64 = 8 * GIB;

/// Memory of a killed process stayed used until another process started or ran out of memory.
#[test]
fn a_killed_process_gives_its_memory_back_at_once() {
    let slice = Counted::new("rtx3090", ALL);
    let mut survivor = slice.worker();
    let before = survivor.info();
    for operation in ["alloc 0", "create 0", "async 0", "ptsz 0"] {
        let mut worker = slice.worker();
        worker.must(&format!("{operation} {}", 512 * MIB));
        assert_eq!(
            survivor.free(),
            before.free - CONTEXT - 512 * MIB,
            "{operation}"
        );
        worker.kill();
        slice.buried(1);
        assert_eq!(survivor.info(), before, "{operation}");
    }
}

/// A process that was killed while it wrote to the shared file made all others wait for ever.
#[test]
fn a_process_that_is_killed_in_the_middle_makes_nobody_wait() {
    let slice = Counted::new("rtx3090", ALL);
    let mut survivor = slice.worker();
    let before = survivor.info();
    let mut nursery = slice.idle();
    for round in 0..20 {
        nursery.must(&format!("hatch 4 {round}"));
        let start = Instant::now();
        nursery.must("cull");
        slice.buried(1);
        assert_eq!(survivor.info(), before, "round {round}");
        survivor.must(&format!("alloc 0 {}", 4 * MIB));
        survivor.must("free 0");
        assert!(start.elapsed() < Duration::from_secs(60), "round {round}");
    }
}

/// A forked child's memory stayed charged after it had left by `_exit`.
#[test]
fn a_forked_child_that_leaves_takes_nothing_with_it() {
    let slice = Counted::new("rtx3090", ALL);
    let mut survivor = slice.worker();
    let before = survivor.info();
    let mut parent = slice.idle();
    parent.must(&format!("child {GIB}"));
    slice.buried(1);
    assert_eq!(survivor.info(), before);
    parent.must("start 0");
    assert_eq!(parent.free(), before.free - CONTEXT);
}

/// A program that replaces itself by exec starts with no memory, in the same process.
#[test]
fn a_program_that_replaces_itself_holds_nothing_any_more() {
    let slice = Counted::new("rtx3090", ALL);
    let mut survivor = slice.worker();
    let before = survivor.info();
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {GIB}"));
    worker.must("become");
    slice.buried(1);
    assert_eq!(survivor.info(), before);
    worker.must("start 0");
    assert_eq!(survivor.free(), before.free - CONTEXT);
}
