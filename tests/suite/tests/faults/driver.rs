//! The driver and the library are replaced under running programs, the driver is slow or hangs, and
//! seccomp filters fail system calls.
//! Touches: slices with a witness; copies of the simulated driver and of the library.

use super::bench::life::{self, Judge};
use super::bench::slice::{Bench, LIMIT, answer};
use super::bench::trace::{Act, Call, Director, trace};
use super::row::{Outcome, Row, injections, kinds, mixed, right, spread};
use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{OUT_OF_MEMORY, Worker};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Puts a copy of a file in the place of another, by renaming, as packages do.
fn replace(by: &Path, at: &Path) {
    let aside = at.with_extension("new");
    fs::copy(by, &aside).unwrap_or_else(|error| panic!("{}: {error}", by.display()));
    fs::rename(&aside, at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
}

/// Asserts that a worker of the slice is limited, and knows the memory of others.
fn is_in_the_slice(worker: &mut Worker) -> Outcome {
    let info = answer(worker, "info")?;
    let (free, total) = (info[1].cast_unsigned(), info[2].cast_unsigned());
    right(info[0] == 0 && total == LIMIT && free < 7 * GIB, || {
        format!("{info:?}")
    })?;
    let all = answer(worker, &format!("alloc 1 {}", free >> 21 << 21))?;
    let more = answer(worker, "alloc 2 2097152")?;
    let expected = ([0], [i64::from(OUT_OF_MEMORY)]);
    let is_right = (&*all, &*more) == (&expected.0, &expected.1);
    right(is_right, || {
        format!("{free} is free, granted: {all:?}, and more: {more:?}")
    })?;
    answer(worker, "free 1").map(drop)
}

/// A program was started with the old files. They are replaced, and both it and programs that start
/// later live on in one slice.
fn replaced(
    bench: &mut Bench,
    run: impl Fn(&Bench, PathBuf) -> Run,
    replace: impl FnOnce(),
) -> Outcome {
    let mut old = Worker::start(run(bench, gpuslice_suite::compile::worker()));
    answer(&mut old, "start 0")?;
    answer(&mut old, "alloc 0 1048576")?;
    replace();
    is_in_the_slice(&mut old)?;
    let program = life::program("life");
    let new = run(bench, program).args(["safely", &LIMIT.to_string()]);
    let said = new.answer();
    right(said.end == life::LIVED, || {
        format!("a new program: {said:?}")
    })?;
    let freed = answer(&mut old, "free 0")?;
    right(freed == [0], || format!("{freed:?}"))?;
    is_in_the_slice(&mut old)?;
    old.kill();
    bench.is_clean()
}

const BRANCHES: [&str; 4] = ["535", "550", "580", "615"];

#[test]
fn a_driver_that_is_upgraded_under_programs_changes_no_limit() {
    let mut row = Row::new(
        "driver-replaced",
        "The driver is upgraded or downgraded under programs",
    );
    let mut bench = Bench::new();
    let folder = tempfile::tempdir().expect("a folder");
    let put = |branch: &str| {
        for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            replace(
                &place::sim_branch(branch).join(name),
                &folder.path().join(name),
            );
        }
    };
    let on = |bench: &Bench, program| {
        let run = bench.slice.run(program);
        run.env("LD_LIBRARY_PATH", folder.path())
    };
    put(BRANCHES[0]);
    for round in 0..injections(4) {
        let to = BRANCHES[(round + 1) % 4];
        row.inject(format!("to {to}"), || replaced(&mut bench, on, || put(to)));
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

#[test]
fn a_library_that_is_replaced_under_programs_changes_no_limit() {
    let mut row = Row::new(
        "library-replaced",
        "libgpuslice.so is replaced under programs",
    );
    let mut bench = Bench::new();
    let folder = tempfile::tempdir().expect("a folder");
    let library: PathBuf = folder.path().join("libgpuslice.so");
    let other = folder.path().join("other");
    replace(&place::shim(), &library);
    // The worker is in the slice by this copy alone.
    let with = |bench: &Bench, program| {
        let run = bench.slice.machine().place(Run::new(program));
        let slice = bench.slice.folder().join("slice.json");
        run.preload(&library).slice(&slice)
    };
    for round in 0..injections(4) {
        row.inject(format!("round {round}"), || {
            let mut bytes = fs::read(place::shim()).expect("the library");
            bytes.extend_from_slice(&mixed(round as u64).to_le_bytes());
            fs::write(&other, bytes).expect("another library");
            replaced(&mut bench, with, || replace(&other, &library))
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

/// The functions of a life in which the driver may be slow.
const FUNCTIONS: [&str; 11] = [
    "cuInit",
    "cuDevicePrimaryCtxRetain",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemCreate",
    "cuMemRelease",
    "cuDevicePrimaryCtxRelease_v2",
    "nvmlInit_v2",
    "nvmlDeviceGetMemoryInfo",
    "cuCtxSetCurrent",
];

fn is_slow(bench: &mut Bench, function: &str) -> Outcome {
    let run = bench.life("life", Judge::Strictly);
    let answer = run
        .env("GPUSLICE_SIM_FAULTS", format!("slow:{function}=60ms"))
        .answer();
    Judge::Strictly.answer(&answer)?;
    bench.is_clean()
}

#[test]
fn a_slow_driver_changes_no_answer() {
    let mut row = Row::new("driver-slow", "The driver is slow in one function");
    let mut bench = Bench::new();
    for kind in kinds(FUNCTIONS.len(), injections(6)) {
        let function = FUNCTIONS[kind];
        row.inject(function, || is_slow(&mut bench, function));
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

/// A program hangs in a call of the driver. Others go on, and after its end all is as before.
fn hangs(bench: &mut Bench, function: &str) -> Outcome {
    let run = bench.life("life", Judge::Safely);
    let mut command = run
        .env("GPUSLICE_SIM_FAULTS", format!("slow:{function}=600000ms"))
        .into_command();
    let mut child = command.spawn().expect("a program");
    let start = Instant::now();
    let state = format!("/proc/{}/syscall", child.id());
    // The simulated driver sleeps in this call; nothing else of a life does.
    let sleeps = libc::SYS_clock_nanosleep.to_string();
    let is_hanging = || fs::read_to_string(&state).is_ok_and(|said| said.starts_with(&sleeps));
    while !is_hanging() && start.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let hanging = right(is_hanging(), || {
        "the program does not hang in the driver".into()
    });
    let beside = (0..3).try_for_each(|_| bench.goes_on());
    let other = beside.and_then(|()| {
        let other = bench.life("life", Judge::Safely).answer();
        Judge::Safely.answer(&other)
    });
    let _ = child.kill();
    let _ = child.wait();
    hanging.and(other)?;
    bench.is_clean()
}

#[test]
fn beside_a_driver_that_hangs_other_programs_go_on() {
    let mut row = Row::new(
        "driver-hangs",
        "The driver hangs in one function of one program",
    );
    let mut bench = Bench::new();
    for kind in kinds(FUNCTIONS.len(), injections(5)) {
        let function = FUNCTIONS[kind];
        row.inject(function, || hangs(&mut bench, function));
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

/// Notes which system calls are made after `main` has begun.
struct Numbers {
    begun: bool,
    seen: BTreeSet<i64>,
}

impl Director for Numbers {
    fn call(&mut self, call: &Call) -> Act {
        self.begun |= call.number == life::MARK;
        if self.begun {
            self.seen.insert(call.number);
        }
        Act::Go
    }
}

#[test]
fn a_filter_that_fails_any_call_of_a_life_lifts_no_limit() {
    let mut row = Row::new("seccomp", "A seccomp filter fails one kind of system call");
    let mut bench = Bench::new();
    let mut numbers = Numbers {
        begun: false,
        seen: BTreeSet::new(),
    };
    let run = bench.life("life", Judge::Strictly);
    let traced = trace(run, 0, Duration::from_secs(60), &mut numbers);
    row.check("a life without a filter", || {
        Judge::Strictly.traced(&traced)
    });
    // Without these, no program can write a message, or end.
    let needed = [
        libc::SYS_write,
        libc::SYS_exit_group,
        libc::SYS_rt_sigreturn,
        life::MARK,
    ];
    let all: Vec<i64> = numbers
        .seen
        .into_iter()
        .filter(|number| !needed.contains(number))
        .collect();
    let errnos = [libc::EPERM, libc::ENOSYS];
    for case in spread(all.len() * 2, injections(16)) {
        let (number, errno) = (all[case / 2].to_string(), errnos[case % 2].to_string());
        row.inject(format!("call {number}, errno {errno}"), || {
            let run = bench
                .life("life", Judge::Safely)
                .args(["filter", &number, &errno]);
            let said = run.answer();
            Judge::Safely.answer(&said)?;
            bench.is_clean()
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}
