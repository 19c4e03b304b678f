//! A run whose folder is removed while it goes on, as a user's files in /dev/shm are at the last
//! logout: what is started later is still counted and refused.
//! Touches: `gpuslice run`, on a simulated card with a context of 254 MiB.

use gpuslice_config::ledger::{Ledger, Open};
use gpuslice_suite::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{OUT_OF_MEMORY, Worker};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CONTEXT: u64 = 254 << 20;

/// A machine, and a process of a run of 8 GiB on it that has a context.
fn run_with_a_context() -> (Machine, Worker) {
    let machine = Machine::new("rtx3090");
    let run = machine.place(Run::new(place::gpuslice()));
    let run = run.args(["run", "--sim", "rtx3090", "--memory", "8GiB", "--"]);
    let mut first = Worker::start(run.arg(compile::worker()));
    first.must("start 0");
    (machine, first)
}

/// What a process was started with.
fn environment(worker: &Worker) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{}/environ", worker.pid())).unwrap();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// A worker as the run's own processes start it.
fn started_with(environment: &BTreeMap<String, String>) -> Run {
    let worker = Run::new(compile::worker());
    let pairs = environment.iter();
    pairs.fold(worker, |run, (name, value)| run.env(name, value))
}

/// The same, with a context.
fn started_by(environment: &BTreeMap<String, String>) -> Worker {
    let mut worker = Worker::start(started_with(environment));
    worker.must("start 0");
    worker
}

/// Waits until the watcher of the run has its ledger open: it opens it when the program is there.
fn is_kept_open(config: &Path) {
    let slice: Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
    let word = |key: &str| PathBuf::from(slice[key].as_str().unwrap());
    let start = Instant::now();
    while !std::fs::read_link(word("ledger_descriptor")).is_ok_and(|path| path == word("ledger")) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it is not opened"
        );
        std::thread::yield_now();
    }
}

#[test]
fn what_is_started_after_the_folder_was_removed_is_counted_and_refused() {
    let (_machine, mut first) = run_with_a_context();
    first.must(&format!("alloc 0 {}", 5 * GIB));
    let environment = environment(&first);
    let config = PathBuf::from(&environment["GPUSLICE_CONFIG"]);
    is_kept_open(&config);
    let folder = config.parent().unwrap();
    std::fs::remove_dir_all(folder).unwrap();

    let mut second = started_by(&environment);
    assert_eq!(second.free(), 3 * GIB - 2 * CONTEXT);
    assert_eq!(second.code(&format!("alloc 0 {}", 3 * GIB)), OUT_OF_MEMORY);
    second.must(&format!("alloc 0 {}", 2 * GIB));
    assert_eq!(first.free(), GIB - 2 * CONTEXT);
    // Who was there before sees that the other has ended.
    second.kill();
    assert_eq!(first.free(), 3 * GIB - CONTEXT);
    first.kill();
    let mut third = started_by(&environment);
    assert_eq!(third.free(), 8 * GIB - CONTEXT);
}

/// A launcher that passes on only some variables must not lift the limit.
#[test]
fn a_program_that_lost_the_name_of_the_slice_file_keeps_its_limit() {
    let (_machine, first) = run_with_a_context();
    let mut environment = environment(&first);
    environment.remove("GPUSLICE_CONFIG").unwrap();
    let mut second = started_by(&environment);
    assert_eq!(second.free(), 8 * GIB - 2 * CONTEXT);
    assert_eq!(second.code(&format!("alloc 0 {}", 8 * GIB)), OUT_OF_MEMORY);
}

/// An empty ledger in the place of a run's own was a second budget for programs that start later.
#[test]
fn another_ledger_in_the_place_of_the_runs_own_is_no_second_budget() {
    let (machine, mut first) = run_with_a_context();
    first.must(&format!("alloc 0 {}", 5 * GIB));
    let environment = environment(&first);
    let slice = std::fs::read(&environment["GPUSLICE_CONFIG"]).unwrap();
    let slice: Value = serde_json::from_slice(&slice).unwrap();
    let ledger = PathBuf::from(slice["ledger"].as_str().unwrap());
    let empty = machine.folder().join("empty");
    let path = CString::new(empty.as_os_str().as_encoded_bytes()).unwrap();
    let (mode, devices) = (0o666, 1);
    Ledger::open(&path, Open::Create { mode, devices }).unwrap();
    std::fs::remove_file(&ledger).unwrap();
    std::fs::copy(&empty, &ledger).unwrap();

    let mut second = Worker::start(started_with(&environment));
    assert_eq!(second.code("start 0"), OUT_OF_MEMORY);
    assert_eq!(second.nvml(), [0, 8 * GIB, 8 * GIB]);
    // The first process goes on, and stays limited.
    assert_eq!(first.free(), 3 * GIB - CONTEXT);
    assert_eq!(first.code(&format!("alloc 1 {}", 3 * GIB)), OUT_OF_MEMORY);
    first.must("free 0");
}
