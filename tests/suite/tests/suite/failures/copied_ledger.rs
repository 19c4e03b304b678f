//! A copy of a run's ledger at the ledger's path: programs that start later are refused.
//! Touches: `gpuslice run`, on a simulated card with a context of 254 MiB.

use gpuslice_suite::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{OUT_OF_MEMORY, Worker};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CONTEXT: u64 = 254 << 20;

/// A run of 8 GiB: its machine, its first process, which has a context and 5 GiB, and what the
/// processes that it starts find.
struct Started {
    first: Worker,
    environment: BTreeMap<String, String>,
    slice: Value,
    _machine: Machine,
}

impl Started {
    fn new() -> Started {
        let machine = Machine::new("rtx3090");
        let run = machine.place(Run::new(place::gpuslice()));
        let run = run.args(["run", "--sim", "rtx3090", "--memory", "8GiB", "--"]);
        let mut first = Worker::start(run.arg(compile::worker()));
        first.must("start 0");
        first.must(&format!("alloc 0 {}", 5 * GIB));
        let text = std::fs::read_to_string(format!("/proc/{}/environ", first.pid())).unwrap();
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        let environment: BTreeMap<String, String> = pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let slice = std::fs::read(&environment["GPUSLICE_CONFIG"]).unwrap();
        let started = Started {
            first,
            environment,
            slice: serde_json::from_slice(&slice).unwrap(),
            _machine: machine,
        };
        started.waits_for_the_watcher();
        started
    }

    fn path(&self, key: &str) -> PathBuf {
        PathBuf::from(self.slice[key].as_str().unwrap())
    }

    /// Waits until the watcher of the run has the ledger open.
    fn waits_for_the_watcher(&self) {
        let start = Instant::now();
        let link = || std::fs::read_link(self.path("ledger_descriptor"));
        while !link().is_ok_and(|path| path == self.path("ledger")) {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "it is not opened"
            );
            std::thread::yield_now();
        }
    }

    /// A worker as the run's own processes start it.
    fn another(&self) -> Worker {
        let pairs = self.environment.iter();
        let worker = Run::new(compile::worker());
        Worker::start(pairs.fold(worker, |run, (name, value)| run.env(name, value)))
    }

    /// What a later program and the first one find once a copy is at the ledger's path.
    fn has_no_second_budget(&mut self) {
        let mut second = self.another();
        assert_eq!(second.code("start 0"), OUT_OF_MEMORY);
        assert_eq!(second.nvml(), [0, 8 * GIB, 8 * GIB]);
        // The first process continues, and stays limited.
        assert_eq!(self.first.free(), 3 * GIB - CONTEXT);
        let large = format!("alloc 1 {}", 3 * GIB);
        assert_eq!(self.first.code(&large), OUT_OF_MEMORY);
        self.first.must("free 0");
    }
}

/// `cp ledger copy; mv copy ledger`
fn copy_and_rename(ledger: &Path) {
    let copy = ledger.with_file_name("copy");
    std::fs::copy(ledger, &copy).unwrap();
    std::fs::rename(&copy, ledger).unwrap();
}

/// `mv ledger old; cp old ledger`
fn rename_and_copy(ledger: &Path) {
    let old = ledger.with_file_name("old");
    std::fs::rename(ledger, &old).unwrap();
    std::fs::copy(&old, ledger).unwrap();
}

#[test]
fn a_copy_renamed_over_the_ledger_is_no_second_budget() {
    let mut started = Started::new();
    copy_and_rename(&started.path("ledger"));
    started.has_no_second_budget();
}

#[test]
fn a_copy_of_the_renamed_ledger_is_no_second_budget() {
    let mut started = Started::new();
    rename_and_copy(&started.path("ledger"));
    started.has_no_second_budget();
}

/// The descriptor of a watcher that has ended names nothing, or another process's file.
#[test]
fn a_ledger_whose_watcher_has_ended_is_still_used() {
    let mut started = Started::new();
    let descriptor = started.path("ledger_descriptor");
    let pid = descriptor.iter().nth(2).unwrap().to_str().unwrap();
    // SAFETY: kill takes two numbers; the process is the run's watcher.
    let killed = unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
    assert_eq!(killed, 0);
    let mut second = started.another();
    second.must("start 0");
    assert_eq!(second.free(), 3 * GIB - 2 * CONTEXT);

    // A process with another file in the watcher's place.
    let other = started.path("ledger").with_file_name("other");
    std::fs::write(&other, "no ledger").unwrap();
    let input = std::fs::File::open(&other).unwrap();
    let mut sleeps = std::process::Command::new("sleep");
    let mut stranger = sleeps.arg("1000").stdin(input).spawn().unwrap();
    started.slice["ledger_descriptor"] = format!("/proc/{}/fd/0", stranger.id()).into();
    let slice = serde_json::to_vec(&started.slice).unwrap();
    std::fs::write(&started.environment["GPUSLICE_CONFIG"], slice).unwrap();
    let mut third = started.another();
    third.must("start 0");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(third.free(), 3 * GIB - 3 * CONTEXT);
}
