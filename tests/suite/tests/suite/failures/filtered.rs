//! Programs under a seccomp filter. If they are started under one that fails a system call of the
//! library, GPU memory is refused, and the log names the cause. If they install one that kills,
//! the library makes no call for which it would kill them.
//! Touches: workers in a slice.

use gpuslice_suite::compile;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Silence, Worker};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What is logged by a worker of a slice whose filter fails this system call.
fn logged(call: i64, errno: i32) -> String {
    let filtered = compile::compile("cc", "c/filtered.c", "filtered", &[]);
    let slice = Counted::new("rtx3090", 2 * GIB);
    let log = slice.machine().folder().join("log");
    let run = slice.run(filtered).env("GPUSLICE_LOG", "warn");
    let run = run.env("GPUSLICE_LOG_FILE", &log);
    let run = run.arg(call.to_string()).arg(errno.to_string());
    let mut worker = Worker::start(run.arg(compile::worker()));
    let start = Instant::now();
    assert_eq!(worker.code("start 0"), OUT_OF_MEMORY);
    assert!(
        start.elapsed() < Duration::from_millis(1500),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(slice.held(), 0);
    std::fs::read_to_string(log).unwrap()
}

#[test]
fn a_filter_that_fails_fstat_is_named() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let said = logged(libc::SYS_fstat, errno);
        let file = format!("slice.json: cannot be examined (fstat fails with errno {errno}");
        assert!(said.contains(&file), "{said}");
        assert!(said.contains("a seccomp filter"), "{said}");
        assert!(said.contains("GPU memory is refused"), "{said}");
        assert!(!said.contains("not a regular file"), "{said}");
    }
}

#[test]
fn a_filter_that_fails_fcntl_is_named() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let said = logged(libc::SYS_fcntl, errno);
        let cause = format!("cannot be locked: errno {errno} (a seccomp filter");
        assert!(said.contains(&cause), "{said}");
        assert!(said.contains("GPU memory is refused"), "{said}");
    }
}

/// The size of a context on an RTX 3090.
const CONTEXT: u64 = 254 << 20;

/// The ways of installing a filter: 0 is `prctl`, 1 is `syscall(SYS_seccomp)`.
const HOW: [u32; 2] = [0, 1];

/// A worker of the slice on another machine. The simulated driver asks the kernel about processes
/// of its own machine only, so it makes no system call when this one ends.
fn neighbour(slice: &Counted, machine: &Machine) -> Worker {
    let run = slice.run(compile::worker());
    let mut worker = Worker::start(run.env("GPUSLICE_SIM_STATE", machine.state()));
    worker.must("start 0");
    worker
}

/// The library asked the kernel whether the dead neighbour lives, and the filter killed the program
/// for the question.
#[test]
fn a_neighbours_end_kills_no_process_under_a_filter() {
    const LIMIT: u64 = 8 * GIB;
    for how in HOW {
        let slice = Counted::new("rtx3090", LIMIT);
        let elsewhere = Machine::new("rtx3090");
        let mut worker = slice.worker();
        worker.must("alloc 0 4096");
        let mut ends = neighbour(&slice, &elsewhere);
        ends.must(&format!("alloc 0 {GIB}"));
        let free = LIMIT - 2 * CONTEXT - GRANULE - GIB;
        assert_eq!(worker.free(), free);
        worker.must(&format!("filter {how}"));
        ends.kill();
        slice.buried(1);
        // The library looks for processes that have ended at most once a second.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            assert_eq!(worker.free(), free, "the dead one stays counted");
            // It lies in the same block as the first one.
            worker.must("alloc 1 512");
            worker.must("free 1");
            let code = worker.code(&format!("alloc 1 {}", free + GRANULE));
            assert_eq!(code, OUT_OF_MEMORY);
            // The simulated driver uses no place of a block twice.
            std::thread::sleep(Duration::from_millis(2));
        }
        // A process that may ask the kernel clears the dead one's slot.
        let _third = neighbour(&slice, &elsewhere);
        assert_eq!(worker.free(), LIMIT - 2 * CONTEXT - GRANULE);
    }
}

#[test]
fn the_filter_of_these_tests_kills_a_worker_that_opens_a_file() {
    for how in HOW {
        let slice = Counted::new("rtx3090", GIB);
        let mut worker = slice.worker();
        worker.must(&format!("filter {how}"));
        let answer = worker.try_ask("meminfo", Duration::from_secs(60));
        assert_eq!(answer, Err(Silence::Ended));
    }
}

/// The calls that a program in a slice makes at any rate, and on unified memory. A filter that is in
/// force before the program starts must not kill for them.
const CALLS: [i64; 8] = [
    libc::SYS_clock_gettime,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_get_robust_list,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_madvise,
];
const UNIFIED_CALLS: [i64; 2] = [libc::SYS_getdents64, libc::SYS_pwrite64];

/// A program with a driver that makes no system call, under a filter that kills for one.
struct Killing {
    filtered: PathBuf,
    program: PathBuf,
    driver: PathBuf,
}

impl Killing {
    fn new() -> Killing {
        let words = ["-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1"];
        let (source, name) = ("c/self_calling_driver.c", "self-calling/libcuda.so.1");
        let driver = compile::compile("cc", source, name, &words);
        let words = ["-L{here}", "-l:libcuda.so.1"];
        let program = compile::compile("cc", "c/self_called.c", "self-calling/program", &words);
        Killing {
            filtered: compile::compile("cc", "c/filtered.c", "filtered", &[]),
            program,
            driver: driver.parent().unwrap().into(),
        }
    }

    /// Whether the program ends well, in this slice or in none.
    fn lives(&self, slice: Option<&Counted>, call: i64) -> bool {
        let run = match slice {
            Some(slice) => slice.run(&self.filtered),
            None => Run::new(&self.filtered),
        };
        let run = run.args([&call.to_string(), "kill"]).arg(&self.program);
        let answer = run.env("LD_LIBRARY_PATH", &self.driver).answer();
        let granted = answer.stdout.matches("code=0 ").count();
        assert!(
            granted == 3 || answer.end == "signal 31",
            "{call}: {answer:?}"
        );
        granted == 3
    }
}

#[test]
fn a_filter_may_kill_for_every_call_but_those_that_are_named() {
    let killing = Killing::new();
    let promises = tempfile::tempdir().unwrap();
    let own = promises.path().join(format!("{}.own", 8 * GIB));
    std::fs::write(&own, [0; 4096]).unwrap();
    let uuid = "GPU-57575757-5757-5757-5757-575757575757";
    let keys = json!({
        "devices": [{"uuid": uuid, "memory": 8 * GIB, "integrated": true}],
        "promises": promises.path().display().to_string(),
        "promise": own.display().to_string(),
    });
    let unified = Counted::with("gb10", &keys);
    let all = [&CALLS[..], &UNIFIED_CALLS].concat();
    for call in 0..480 {
        match all.contains(&call) {
            true => assert!(!killing.lives(Some(&unified), call), "{call} is not made"),
            false => assert!(
                killing.lives(Some(&unified), call) || !killing.lives(None, call),
                "the library makes call {call}"
            ),
        }
    }
    let discrete = Counted::new("rtx3090", 8 * GIB);
    let lives = |call: &i64| killing.lives(Some(&discrete), *call);
    assert!(UNIFIED_CALLS.iter().all(lives));
    assert!(!CALLS.iter().any(lives));
}
