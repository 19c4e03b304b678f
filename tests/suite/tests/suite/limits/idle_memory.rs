//! Reserved memory of a pool or of graphs that is idle when several threads request it at once. It
//! serves one thread; the memory of the others is claimed or refused.
//! Touches: workers in a slice, whose driver is slow enough that the calls overlap in it.

use gpuslice_suite::compile;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};

/// The size of a context on an RTX 3090.
const CONTEXT: u64 = 254 << 20;

/// A way to reserve memory: the worker's command for it, the driver function that this command
/// calls, and the worker's command that releases idle memory.
struct Kind {
    takes: &'static str,
    calls: &'static str,
    trims: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        takes: "graph",
        calls: "cuGraphLaunch",
        trims: "trim-graphs",
    },
    Kind {
        takes: "async",
        calls: "cuMemAllocAsync",
        trims: "trim 0",
    },
];

impl Kind {
    /// A worker with 1 GiB of idle memory, whose driver takes 0.1 seconds for a call.
    fn worker(&self, slice: &Counted) -> Worker {
        let slow = format!("slow:{}=100ms", self.calls);
        let run = slice.run(compile::worker());
        let mut worker = Worker::start(run.env("GPUSLICE_SIM_FAULTS", slow));
        worker.must("start 0");
        worker.must(&format!("{} 0 {GIB}", self.takes));
        worker.must("free 0");
        assert_eq!(
            slice.counted(),
            CONTEXT + GIB,
            "freed memory stays reserved"
        );
        worker
    }

    /// Allocates 1 GiB in each of `threads` threads at once, and returns the sorted codes.
    fn at_once(&self, worker: &mut Worker, threads: usize) -> Vec<String> {
        for thread in 1..=threads {
            worker.send(thread, &format!("{} {thread} {GIB}", self.takes));
        }
        let answers = (0..threads).map(|_| worker.hear().expect("it lives"));
        let mut codes: Vec<String> = answers.map(|words| words[2].clone()).collect();
        codes.sort();
        codes
    }
}

#[test]
fn what_is_idle_serves_one_of_two_that_ask_at_once() {
    let limit = CONTEXT + GIB + GIB / 2;
    for kind in KINDS {
        let slice = Counted::new("rtx3090", limit);
        let mut worker = kind.worker(&slice);
        for _ in 0..3 {
            let codes = kind.at_once(&mut worker, 2);
            assert_eq!(codes, ["0".to_owned(), OUT_OF_MEMORY.to_string()]);
            assert!(slice.held() <= limit, "{} of {limit}", slice.held());
            assert_eq!(worker.free(), GIB / 2);
            worker.ask("free 1");
            worker.ask("free 2");
        }
        worker.must(kind.trims);
        assert_eq!((slice.held(), slice.counted()), (CONTEXT, CONTEXT));
    }
}

#[test]
fn all_that_fit_beside_each_other_are_served() {
    let all = CONTEXT + 4 * GIB;
    for kind in KINDS {
        let slice = Counted::new("rtx3090", all);
        let mut worker = kind.worker(&slice);
        for _ in 0..3 {
            assert_eq!(kind.at_once(&mut worker, 4), ["0"; 4]);
            assert_eq!((slice.held(), slice.counted()), (all, all));
            for thread in 1..=4 {
                worker.must(&format!("free {thread}"));
            }
        }
    }
}

#[test]
fn what_one_kind_keeps_idle_serves_the_other_kind() {
    let [graphs, pools] = KINDS;
    for (keeps, takes) in [(&graphs, &pools), (&pools, &graphs)] {
        let slice = Counted::new("rtx3090", CONTEXT + GIB + GIB / 2);
        let mut worker = keeps.worker(&slice);
        worker.must(&format!("{} 1 {GIB}", takes.takes));
        let held = CONTEXT + GIB;
        assert_eq!((slice.held(), slice.counted()), (held, held));
        assert_eq!(slice.refusals().count, 0);
    }
}

/// Waits until a thread of the worker is inside the slow driver call, which sleeps.
fn is_in_the_driver(worker: &Worker) {
    let tasks = format!("/proc/{}/task", worker.pid());
    let sleep = libc::SYS_clock_nanosleep.to_string();
    let sleeps = || {
        let threads = std::fs::read_dir(&tasks).expect("it lives").flatten();
        let call = |path: std::path::PathBuf| std::fs::read_to_string(path.join("syscall")).ok();
        let mut calls = threads.filter_map(|thread| call(thread.path()));
        calls.any(|call| call.split(' ').next() == Some(&sleep))
    };
    while !sleeps() {
        std::thread::yield_now();
    }
}

#[test]
fn what_a_call_counts_on_is_nobody_elses_when_it_is_trimmed_away() {
    let limit = CONTEXT * 2 + GIB + GIB / 2;
    for kind in KINDS {
        let slice = Counted::new("rtx3090", limit);
        let mut worker = kind.worker(&slice);
        let mut other = slice.worker();
        worker.send(1, &format!("{} 1 {GIB}", kind.takes));
        is_in_the_driver(&worker);
        worker.send(0, kind.trims);
        worker.hear();
        assert_eq!(other.code(&format!("alloc 0 {GIB}")), OUT_OF_MEMORY);
        assert!(worker.settle());
        assert!(slice.held() <= limit, "{} of {limit}", slice.held());
        assert_eq!(slice.held(), slice.counted());
    }
}

#[test]
fn every_pool_of_a_program_that_has_thousands_is_counted() {
    // More pools than one page and one mapping have entries for.
    const POOLS: u64 = 4200;
    const GROWTH: u64 = 32 << 20;
    let slice = Counted::new("rtx3090", CONTEXT + 4 * GIB);
    let mut worker = slice.worker();
    for pool in 0..POOLS {
        worker.must(&format!("pool {pool}"));
    }
    for (taken, pool) in [0, 7, 8, 4103, 4104, POOLS - 1].into_iter().enumerate() {
        worker.must(&format!("from {} {pool} 4096", POOLS + pool));
        let held = CONTEXT + (taken as u64 + 1) * GROWTH;
        assert_eq!((slice.held(), slice.counted()), (held, held), "pool {pool}");
    }
    // Entries of pools that have ended are used again for new pools.
    for pool in 0..POOLS {
        worker.must(&format!("free {}", POOLS + pool));
        worker.must(&format!("free {pool}"));
    }
    assert_eq!((slice.held(), slice.counted()), (CONTEXT, CONTEXT));
    worker.must("pool 0");
    worker.must("from 1 0 4096");
    assert_eq!(
        (slice.held(), slice.counted()),
        (CONTEXT + GROWTH, CONTEXT + GROWTH)
    );
    assert_eq!(worker.code(&format!("from 2 0 {}", 4 * GIB)), OUT_OF_MEMORY);
}

#[test]
fn idle_memory_serves_every_other_request_of_its_process() {
    let takes = [
        format!("alloc 1 {GIB}"),
        format!("create 1 {GIB}"),
        format!("managed 1 {GIB}"),
        // Elements of 16 bytes.
        "array 1 8192 8192".to_owned(),
    ];
    for (kind, takes) in KINDS
        .iter()
        .flat_map(|kind| takes.iter().map(move |it| (kind, it)))
    {
        let slice = Counted::new("rtx3090", 2 * CONTEXT + GIB + GIB / 2);
        let mut worker = kind.worker(&slice);
        let mut other = slice.worker();
        // Another process does not get it.
        assert_eq!(other.code(takes), OUT_OF_MEMORY, "{takes}");
        assert_eq!(slice.counted(), 2 * CONTEXT + GIB, "{takes}");
        worker.must(takes);
        assert_eq!(slice.counted(), 2 * CONTEXT + GIB, "{takes}");
        assert_eq!(other.free(), GIB / 2, "{takes}");
    }
}

#[test]
fn a_request_that_no_idle_memory_can_serve_leaves_the_caches_as_they_are() {
    for kind in KINDS {
        let slice = Counted::new("rtx3090", CONTEXT + GIB + GIB / 2);
        let mut worker = kind.worker(&slice);
        assert_eq!(worker.code(&format!("alloc 1 {}", 2 * GIB)), OUT_OF_MEMORY);
        assert_eq!(slice.refusals().count, 1);
        let kept = CONTEXT + GIB;
        assert_eq!((slice.held(), slice.counted()), (kept, kept));
    }
}
