//! The limit changes while programs run. All processes of the slice show and enforce the new limit
//! at their next call, and what is held is never above the limit in force.
//! Touches: workers in a slice on a simulated RTX 3090; the slice's ledger, as `gpuslice resize`
//! changes it.

use gpuslice_config::ledger::VERSION;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Said, Worker};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const LIMIT: u64 = 6 * GIB;
const CONTEXT: u64 = 254 << 20;

/// The offset of the version in a ledger.
const VERSION_AT: usize = 8;

/// The longest time after which every process must show a new limit.
const VISIBLE: Duration = Duration::from_millis(50);

/// Asserts that a worker shows this total and free memory by CUDA and by NVML.
fn shows(worker: &mut Worker, total: u64, free: u64) {
    assert_eq!(worker.info(), Said { total, free });
    assert_eq!(worker.nvml(), [free, total, total - free]);
}

#[test]
fn every_process_shows_and_has_the_new_limit_at_its_next_call() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut workers = [slice.worker(), slice.worker()];
    workers[0].must(&format!("alloc 0 {GIB}"));
    let held = GIB + 2 * CONTEXT;
    for limit in [LIMIT, 8 * GIB, 2 * GIB, 20 * GIB, LIMIT] {
        assert!(slice.resize(limit), "{limit}");
        for worker in &mut workers {
            shows(worker, limit, limit - held);
        }
        let free = limit - held;
        assert_eq!(
            workers[1].code(&format!("alloc 1 {}", free + GRANULE)),
            OUT_OF_MEMORY
        );
        workers[1].must(&format!("alloc 1 {free}"));
        shows(&mut workers[0], limit, 0);
        workers[1].must("free 1");
    }
}

#[test]
fn a_process_that_starts_later_has_the_limit_in_force() {
    let slice = Counted::new("rtx3090", LIMIT);
    assert!(slice.resize(3 * GIB));
    let mut worker = slice.worker();
    shows(&mut worker, 3 * GIB, 3 * GIB - CONTEXT);
}

#[test]
fn the_limit_does_not_go_below_what_is_held() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {}", 4 * GIB));
    assert!(!slice.resize(4 * GIB));
    shows(&mut worker, LIMIT, 2 * GIB - CONTEXT);
    assert!(slice.resize(4 * GIB + CONTEXT));
    shows(&mut worker, 4 * GIB + CONTEXT, 0);
}

/// After an upgrade, programs of a run that began before load the new library, and programs that run
/// on have the old one. Neither reads a ledger of the other version, with whatever limit.
#[test]
fn a_ledger_of_another_version_grants_nothing_under_any_limit() {
    let slice = Counted::new("rtx3090", LIMIT);
    assert!(slice.resize(20 * GIB));
    let whole = std::fs::read(slice.ledger()).unwrap();
    for version in [VERSION - 1, VERSION + 1] {
        let mut other = whole.clone();
        other[VERSION_AT..][..4].copy_from_slice(&version.to_le_bytes());
        std::fs::write(slice.ledger(), other).unwrap();
        let mut worker = slice.idle();
        assert_eq!(worker.code("start 0"), OUT_OF_MEMORY, "{version}");
        assert_eq!(worker.nvml(), [0, LIMIT, LIMIT], "{version}");
        assert_eq!(slice.held(), 0, "{version}");
    }
    std::fs::write(slice.ledger(), whole).unwrap();
    let mut worker = slice.worker();
    shows(&mut worker, 20 * GIB, 20 * GIB - CONTEXT);
}

#[test]
fn a_new_limit_is_visible_in_eight_processes_within_50_milliseconds() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut workers: Vec<Worker> = (0..8).map(|_| slice.worker()).collect();
    for limit in [12, 5, 20, 9, 3, 7].map(|size| size * GIB) {
        let start = Instant::now();
        assert!(slice.resize(limit));
        // Two cores are not enough for eight processes to answer at once, so the time of each
        // answer counts from the question.
        for worker in &mut workers {
            let asked = Instant::now();
            assert_eq!(worker.info().total, limit);
            let answered = asked.elapsed();
            assert!(answered < VISIBLE, "{answered:?}");
        }
        println!("8 processes showed {limit} after {:?}", start.elapsed());
    }
}

/// How often the limit changes while processes ask all the time, unless `GPUSLICE_RESIZES` says it.
const CHANGES: u64 = 2000;

#[test]
fn no_answer_mixes_two_limits_while_the_limit_changes() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut workers: Vec<Worker> = (0..3).map(|_| slice.worker()).collect();
    workers[0].must(&format!("alloc 0 {GIB}"));
    let held = GIB + 3 * CONTEXT;
    let asked = std::env::var("GPUSLICE_RESIZES").ok();
    let changes = asked
        .and_then(|changes| changes.parse().ok())
        .unwrap_or(CHANGES);
    let is_over = AtomicBool::new(false);
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        let ask = |mut worker: Worker| {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut answers = 0u64;
                while !is_over.load(SeqCst) {
                    let Said { total, free } = worker.info();
                    assert_eq!(free, total - held, "CUDA, total {total}");
                    let [free, total, used] = worker.nvml();
                    assert_eq!((free, used), (total - held, held), "NVML, total {total}");
                    answers += 2;
                }
                // The worker lives on, because its context is part of what is held.
                (answers, worker)
            })
        };
        let asking: Vec<_> = workers.drain(..).map(ask).collect();
        for change in 0..changes {
            // Sizes of 2 to 22 GiB in an order that repeats late.
            assert!(slice.resize(2 * GIB + change * 7919 % 10_240 * GRANULE));
        }
        is_over.store(true, SeqCst);
        answers.extend(asking.into_iter().map(|thread| thread.join()));
    });
    let mut sum = 0;
    for answers in answers {
        let (answers, _) = answers.unwrap();
        assert!(answers > 100);
        sum += answers;
    }
    println!("{changes} changes, {sum} answers, none of two limits");
}
