//! Limits that were exceeded, and memory that was reported as free and could not be allocated.
//! Touches: the same as the parent module.

use super::{CONTEXT, MIB};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Said};

const ALL: u64 = 8 * GIB;

/// Two processes read the free memory, then both allocated: together they held more than the limit.
#[test]
fn processes_that_allocate_at_the_same_moment_stay_within_the_limit() {
    let slice = Counted::new("rtx3090", 6 * GIB);
    let mut workers: Vec<_> = (0..8).map(|_| slice.worker()).collect();
    let free = workers[0].free();
    for worker in &mut workers {
        for thread in 0..4 {
            for number in 0..8 {
                let number = thread * 8 + number;
                worker.send(thread, &format!("alloc {number} {}", 64 << 20));
            }
        }
    }
    for worker in &mut workers {
        assert!(worker.settle());
    }
    assert!(slice.held() <= 6 * GIB, "{}", slice.held());
    assert_eq!(
        workers[0].free(),
        free % (64 << 20),
        "requests that fit are granted"
    );
}

/// A refused asynchronous allocation returned -1, which is no code of the driver. Freeing a pointer
/// that another process had shared returned -1, too.
#[test]
fn refusals_and_foreign_pointers_get_the_drivers_own_codes() {
    let slice = Counted::new("rtx3090", 2 * GIB);
    let mut worker = slice.worker();
    let more = 3 * GIB;
    for operation in ["alloc", "async", "ptsz", "create"] {
        assert_eq!(
            worker.code(&format!("{operation} 0 {more}")),
            OUT_OF_MEMORY,
            "{operation}"
        );
    }
    worker.must("pool 1");
    assert_eq!(worker.code(&format!("from 0 1 {more}")), OUT_OF_MEMORY);
    let pitch = format!("pitch 0 {} {}", 1 << 20, 3 << 10);
    assert_eq!(worker.code(&pitch), OUT_OF_MEMORY);
    assert_eq!(worker.free(), 2 * GIB - CONTEXT, "nothing was allocated");

    let mut neighbour = slice.neighbour();
    worker.must("alloc 2 4194304");
    let shared = worker.words("export 2").pop().unwrap();
    for importer in [&mut neighbour, &mut slice.worker()] {
        assert_eq!(importer.words(&format!("import 3 {shared}"))[2], "0");
        let address = importer.ask("address 3")[1];
        // 1, invalid value: cuMemFree frees neither an import nor an address that is no allocation.
        assert_eq!(importer.code(&format!("free-address {address}")), 1);
        assert_eq!(importer.code("free-address 12345"), 1);
        assert_eq!(importer.code("free-address 0"), 0);
    }
}

/// Less memory could be allocated than was shown as free, or more.
#[test]
fn what_is_shown_as_free_is_granted_and_a_granule_more_is_not() {
    let slice = Counted::new("rtx3090", 4 * GIB);
    let mut worker = slice.worker();
    let Said { free, .. } = worker.info();
    let whole = free / (2 << 20) * (2 << 20);
    assert_eq!(
        worker.code(&format!("alloc 0 {}", whole + (2 << 20))),
        OUT_OF_MEMORY
    );
    assert_eq!(worker.free(), free);
    worker.must(&format!("alloc 0 {whole}"));
    assert_eq!(worker.free(), free - whole);
}

/// Free was the limit less the process's own use, even when the card itself had less free memory.
/// It promised 4 GiB where 1 GiB was left.
#[test]
fn what_a_neighbour_holds_is_not_promised() {
    let slice = Counted::new("rtx3090", 4 * GIB);
    let mut neighbour = slice.neighbour();
    let mut worker = slice.worker();
    let left = slice.truth().devices[0].free;
    neighbour.must(&format!("create 0 {}", (left - GIB) / (2 * MIB) * 2 * MIB));
    let left = slice.truth().devices[0].free;
    assert_eq!(
        worker.info(),
        Said {
            total: 4 * GIB,
            free: left
        }
    );
    assert_eq!(worker.code("alloc 0 3145728000"), OUT_OF_MEMORY);
    assert_eq!(slice.truth().devices[0].free, left, "nothing was allocated");
}

/// When other processes left, a living process's record moved in the table, and the process went on
/// writing to the old place. Two engines of one model stalled.
#[test]
fn processes_that_come_and_go_do_not_move_the_others() {
    let slice = Counted::new("rtx3090", ALL);
    let mut early: Vec<_> = (0..3).map(|_| slice.worker()).collect();
    let mut late = slice.worker();
    late.must(&format!("alloc 0 {GIB}"));
    // Processes before it in the table leave, others come, and it goes on.
    early.truncate(1);
    slice.buried(2);
    let mut others: Vec<_> = (0..3).map(|_| slice.worker()).collect();
    late.must(&format!("alloc 1 {GIB}"));
    late.must("free 0");
    others.remove(0).kill();
    slice.buried(4);
    late.must("free 1");
    late.must(&format!("alloc 2 {}", 3 * GIB));
    let free = ALL - 3 * GIB - 4 * CONTEXT;
    for worker in early.iter_mut().chain(&mut others) {
        assert_eq!(worker.info(), Said { total: ALL, free });
    }
    assert_eq!(slice.counted(), slice.held());
}
