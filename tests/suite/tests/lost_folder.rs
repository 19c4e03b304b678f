//! A run whose folder is removed while it goes on, as a user's files in /dev/shm are at the last
//! logout: what is started later is still counted and refused.
//! Touches: `gpuslice run`, on a simulated card with a context of 254 MiB.

use gpuslice_suite::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{OUT_OF_MEMORY, Worker};
use std::collections::BTreeMap;
use std::path::PathBuf;

const CONTEXT: u64 = 254 << 20;

/// What a process was started with.
fn environment(worker: &Worker) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{}/environ", worker.pid())).unwrap();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// A worker as the run's own processes start it.
fn started_by(environment: &BTreeMap<String, String>) -> Worker {
    let run = environment
        .iter()
        .fold(Run::new(compile::worker()), |run, (name, value)| {
            run.env(name, value)
        });
    let mut worker = Worker::start(run);
    worker.must("start 0");
    worker
}

#[test]
fn what_is_started_after_the_folder_was_removed_is_counted_and_refused() {
    let machine = Machine::new("rtx3090");
    let run = machine.place(Run::new(place::gpuslice()));
    let run = run.args(["run", "--sim", "rtx3090", "--memory", "8GiB", "--"]);
    let mut first = Worker::start(run.arg(compile::worker()));
    first.must("start 0");
    first.must(&format!("alloc 0 {}", 5 * GIB));
    let environment = environment(&first);
    let folder = PathBuf::from(&environment["GPUSLICE_CONFIG"]);
    let folder = folder.parent().unwrap();
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
