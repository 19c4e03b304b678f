//! Starts a run of 8 GiB with one process; tests then damage the run's files.
//! Touches: `gpuslice run`, on a simulated card with a context of 254 MiB.

use gpuslice_suite::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{OUT_OF_MEMORY, Worker};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(super) const CONTEXT: u64 = 254 << 20;

/// The environment that a run gives to its processes.
pub(super) struct Environment(pub(super) BTreeMap<String, String>);

impl Environment {
    fn of(worker: &Worker) -> Environment {
        let text = std::fs::read_to_string(format!("/proc/{}/environ", worker.pid())).unwrap();
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        let pairs = pairs.map(|(name, value)| (name.into(), value.into()));
        Environment(pairs.collect())
    }

    /// Starts a worker with this environment, as the run's own processes do.
    pub(super) fn worker(&self) -> Worker {
        let pairs = self.0.iter();
        let worker = Run::new(compile::worker());
        Worker::start(pairs.fold(worker, |run, (name, value)| run.env(name, value)))
    }

    /// Starts a worker that has a context.
    pub(super) fn worker_with_context(&self) -> Worker {
        let mut worker = self.worker();
        worker.must("start 0");
        worker
    }

    /// The path of the run's slice file.
    pub(super) fn slice_file(&self) -> PathBuf {
        PathBuf::from(&self.0["GPUSLICE_CONFIG"])
    }
}

/// A run on a machine of its own: its slice file, and its first process, which has a context.
pub(super) struct StartedRun {
    pub(super) first: Worker,
    pub(super) environment: Environment,
    pub(super) slice: Value,
    pub(super) machine: Machine,
}

impl StartedRun {
    /// Starts the run.
    pub(super) fn new() -> StartedRun {
        let machine = Machine::new("rtx3090");
        let run = machine.place(Run::new(place::gpuslice()));
        let run = run.args(["run", "--sim", "rtx3090", "--memory", "8GiB", "--"]);
        let mut first = Worker::start(run.arg(compile::worker()));
        first.must("start 0");
        let environment = Environment::of(&first);
        let slice = std::fs::read(environment.slice_file()).unwrap();
        StartedRun {
            first,
            environment,
            slice: serde_json::from_slice(&slice).unwrap(),
            machine,
        }
    }

    /// Starts the run; its first process holds 5 GiB.
    pub(super) fn holding_5_gib() -> StartedRun {
        let mut started = StartedRun::new();
        started.first.must(&format!("alloc 0 {}", 5 * GIB));
        started
    }

    /// A path that the slice file names.
    pub(super) fn path(&self, key: &str) -> PathBuf {
        PathBuf::from(self.slice[key].as_str().unwrap())
    }

    /// Waits until the run's watcher has the ledger open. The watcher opens it once the program
    /// runs.
    pub(super) fn wait_for_the_watcher(&self) {
        let start = Instant::now();
        let link = || std::fs::read_link(self.path("ledger_descriptor"));
        while !link().is_ok_and(|path| path == self.path("ledger")) {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the watcher has not opened the ledger"
            );
            std::thread::yield_now();
        }
    }

    /// Checks that a later program gets no memory, and that the first process, which holds 5 GiB,
    /// keeps its limit.
    pub(super) fn has_no_second_budget(&mut self) {
        let mut second = self.environment.worker();
        assert_eq!(second.code("start 0"), OUT_OF_MEMORY);
        assert_eq!(second.nvml(), [0, 8 * GIB, 8 * GIB]);
        assert_eq!(self.first.free(), 3 * GIB - CONTEXT);
        let large = format!("alloc 1 {}", 3 * GIB);
        assert_eq!(self.first.code(&large), OUT_OF_MEMORY);
        self.first.must("free 0");
    }
}
