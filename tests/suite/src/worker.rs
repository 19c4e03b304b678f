//! Processes that allocate on command: a slice with a ledger, and workers in it.
//! Touches: `tests/clients/c/worker.c`, run once for each worker; the machine's and the slice's
//! files, by reading them.

use crate::run::{Machine, PATIENCE, Run, on_branch};
use crate::slice::write;
use crate::{compile, place};
use gpuslice_config::ledger::{Ledger, MAX_SIZE, Open, Record, Refusals, SetLimit, Snapshot};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_sim_machine::{Machine as Simulated, Truth};
use serde_json::{Value, json};
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The driver's code for a request that does not fit.
pub const OUT_OF_MEMORY: i32 = 2;
/// The driver's granule.
pub const GRANULE: u64 = 2 << 20;

/// A slice of a simulated machine, with a ledger, and the machine.
pub struct Counted {
    machine: Machine,
    simulated: Simulated,
    file: PathBuf,
    ledger: PathBuf,
    /// The ledger. It is opened once, because its mapping stays until this process ends.
    opened: Ledger,
}

impl Counted {
    /// A machine that has a slice of `memory` bytes of every device.
    ///
    /// # Panics
    /// When there is no room for its files.
    #[must_use]
    pub fn new(scenario: &str, memory: u64) -> Counted {
        Counted::with(scenario, &json!({"memory": memory}))
    }

    /// Like [`Counted::new`], with any keys of a slice file.
    ///
    /// # Panics
    /// When there is no room for its files.
    #[must_use]
    pub fn with(scenario: &str, keys: &Value) -> Counted {
        Counted::of_devices(scenario, keys, 1)
    }

    /// Like [`Counted::with`], with a ledger for this number of devices.
    ///
    /// # Panics
    /// When there is no room for its files.
    #[must_use]
    pub fn of_devices(scenario: &str, keys: &Value, devices: usize) -> Counted {
        let machine = Machine::new(scenario);
        let (file, ledger) = (
            machine.folder().join("slice.json"),
            machine.folder().join("ledger"),
        );
        let mut slice = json!({
            "version": 1,
            "name": "suite",
            "ledger": ledger.display().to_string(),
            "meminfo": machine.state().join("meminfo").display().to_string(),
        });
        for (key, value) in keys.as_object().into_iter().flatten() {
            slice[key] = value.clone();
        }
        write(&file, slice.to_string().as_bytes());
        let made = Ledger::open(
            &c_path(&ledger),
            Open::Create {
                mode: 0o600,
                devices,
            },
        );
        let opened = made.unwrap_or_else(|error| panic!("no ledger: {error}"));
        let scenario = &on_branch(scenario);
        let simulated = Simulated::start(Some(scenario), Some(&machine.state()), "")
            .unwrap_or_else(|error| panic!("no machine: {error}"));
        Counted {
            machine,
            simulated,
            file,
            ledger,
            opened,
        }
    }

    /// A program in the slice.
    #[must_use]
    pub fn run(&self, program: impl AsRef<std::ffi::OsStr>) -> Run {
        let run = self.machine.place(Run::new(program));
        run.with_shim().slice(&self.file)
    }

    /// A worker in the slice, whose driver has not been started.
    #[must_use]
    pub fn idle(&self) -> Worker {
        Worker::start(self.run(compile::worker()))
    }

    /// A worker in the slice, with a context on the first device.
    ///
    /// # Panics
    /// When the driver does not start.
    #[must_use]
    pub fn worker(&self) -> Worker {
        let mut worker = self.idle();
        assert_eq!(worker.code("start 0"), 0, "the driver starts");
        worker
    }

    /// A worker on the same machine outside of the slice: a neighbour.
    ///
    /// # Panics
    /// When the driver does not start.
    #[must_use]
    pub fn neighbour(&self) -> Worker {
        let mut worker = Worker::start(self.machine.place(Run::new(compile::worker())));
        assert_eq!(worker.code("start 0"), 0, "the driver starts");
        worker
    }

    /// A folder for whatever else the test writes.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.machine.folder()
    }

    /// The ledger's file.
    #[must_use]
    pub fn ledger(&self) -> &std::path::Path {
        &self.ledger
    }

    /// The memory that the simulated machine really holds.
    #[must_use]
    pub fn truth(&self) -> Truth {
        self.simulated.truth()
    }

    /// Changes the limit of the first device, as `gpuslice resize` does: it sets the limit, and then
    /// adds up what is held. Returns false if that is more; the former limit is then in force again.
    ///
    /// # Panics
    /// When the ledger cannot be used.
    #[must_use]
    pub fn resize(&self, limit: u64) -> bool {
        let ledger = &self.opened;
        let truth = self.truth();
        let uuid = truth.devices.first().map(|device| device.uuid.as_str());
        let uuid: Option<DeviceUuid> = uuid.and_then(|uuid| uuid.parse().ok());
        let device = uuid.and_then(|uuid| ledger.device(&uuid));
        let device = device.unwrap_or_else(|| panic!("no device: {uuid:?}"));
        let former = ledger.limit(device);
        let limit = Bytes::new(limit);
        let set = SetLimit::of(limit).unwrap_or_else(|| panic!("{limit} is no limit"));
        assert!(ledger.set_limit(device, set));
        let fits = self.counted() <= limit.get();
        fits || !ledger.set_limit(device, former)
    }

    /// All that processes hold on the first device.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.truth().devices.first().map_or(0, |device| device.used)
    }

    /// The records of the slice's living processes in its ledger.
    ///
    /// # Panics
    /// When the ledger cannot be read.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut bytes = vec![0; MAX_SIZE];
        let snapshot = Snapshot::read(&c_path(&self.ledger), &mut bytes);
        let snapshot = snapshot.unwrap_or_else(|error| panic!("no ledger: {error}"));
        snapshot.slots().filter(|record| record.alive).collect()
    }

    /// The refusals that the ledger counts for its first device.
    ///
    /// # Panics
    /// When the ledger cannot be read.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        let mut bytes = vec![0; MAX_SIZE];
        let snapshot = Snapshot::read(&c_path(&self.ledger), &mut bytes);
        let snapshot = snapshot.unwrap_or_else(|error| panic!("no ledger: {error}"));
        let mut refusals = snapshot.refusals().map(|(_, refusals)| refusals);
        refusals.next().unwrap_or_default()
    }

    /// Waits until the kernel has released all but `living` processes that hold memory.
    ///
    /// A process that was waited for is dead, and nearly always its address space is gone. But once
    /// in a thousand times the kernel still uses the address space, for up to 0.7 ms, and its locks
    /// stay as long. This happens without any code of this project, too.
    ///
    /// # Panics
    /// When other processes remain after a minute.
    pub fn buried(&self, living: usize) {
        let start = Instant::now();
        loop {
            let records = self.records();
            if records.len() == living {
                return;
            }
            let took = start.elapsed();
            assert!(took < Duration::from_secs(60), "{living} live: {records:?}");
            std::thread::yield_now();
        }
    }

    /// The memory of all records in the ledger.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.records().iter().map(|record| record.used).sum()
    }

    /// The simulated machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Runs the tool of the simulator with these words.
    ///
    /// # Panics
    /// When it fails.
    pub fn simulator(&self, words: &[&str]) {
        let mut tool = Command::new(place::sim().join("gpuslice-sim"));
        let state = self.machine.state();
        let done = tool.arg("--state").arg(state).args(words).status();
        assert!(
            done.is_ok_and(|status| status.success()),
            "gpuslice-sim {words:?}"
        );
    }
}

fn c_path(path: &std::path::Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// The memory of a device, as one API reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// All memory.
    pub total: u64,
    /// The memory that can still be allocated.
    pub free: u64,
}

/// Why a worker has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It has ended.
    Ended,
    /// It did not answer in time.
    Late,
}

/// A process that allocates on command. It is killed when this value is dropped.
pub struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    unanswered: usize,
}

impl Worker {
    /// Starts a prepared worker program.
    #[must_use]
    pub fn start(run: Run) -> Worker {
        let mut command = run.into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {:?}: {error}", command.get_program()));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Worker {
            child,
            stdin,
            stdout: BufReader::new(stdout.unwrap_or_else(|| panic!("a pipe was asked for"))),
            unanswered: 0,
        }
    }

    /// The worker's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command to a thread, and does not wait. A killed worker does not receive it.
    pub fn send(&mut self, thread: usize, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            self.unanswered += 1;
            // A dead worker shows when its answer is read.
            let _ = stdin.write_all(format!("{thread} {line}\n").as_bytes());
        }
    }

    /// Reads one answer: thread, operation, code, and further words. None if the worker is dead.
    pub fn hear(&mut self) -> Option<Vec<String>> {
        let mut line = String::new();
        self.is_heard();
        let read = self.stdout.read_line(&mut line).unwrap_or(0);
        self.unanswered = self.unanswered.saturating_sub(1);
        // A line that the worker's death has cut off does not count.
        let whole = read > 0 && line.ends_with('\n');
        whole.then(|| line.split_whitespace().map(str::to_owned).collect())
    }

    /// Waits until there is something to read. A worker always writes whole lines.
    fn is_heard(&self) {
        assert!(
            self.says_something(PATIENCE),
            "the worker does not answer within {PATIENCE:?}"
        );
    }

    /// Whether there is something to read, or the worker's end, within this time.
    fn says_something(&self, patience: Duration) -> bool {
        if !self.stdout.buffer().is_empty() {
            return true;
        }
        let mut poll = libc::pollfd {
            fd: self.stdout.get_ref().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one descriptor, which is open.
        unsafe { libc::poll(&raw mut poll, 1, patience) != 0 }
    }

    /// Like [`Worker::ask`], for a worker that may have ended or may not answer.
    ///
    /// # Errors
    /// When it has ended, or does not answer in time.
    pub fn try_ask(&mut self, line: &str, patience: Duration) -> Result<Vec<i64>, Silence> {
        self.send(0, line);
        loop {
            if !self.says_something(patience) {
                return Err(Silence::Late);
            }
            let words = self.hear().ok_or(Silence::Ended)?;
            if self.unanswered == 0 {
                let numbers = words.iter().skip(2);
                let number = |word: &String| word.parse().unwrap_or(i64::MIN);
                return Ok(numbers.map(number).collect());
            }
        }
    }

    /// Waits until every command is answered. False if the worker is dead.
    pub fn settle(&mut self) -> bool {
        while self.unanswered > 0 {
            if self.hear().is_none() {
                return false;
            }
        }
        true
    }

    /// Runs one command in the first thread, and returns the numbers that follow the operation.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn ask(&mut self, line: &str) -> Vec<i64> {
        assert!(self.settle(), "the worker has ended before `{line}`");
        self.send(0, line);
        let words = self.hear();
        let words = words.unwrap_or_else(|| panic!("the worker has ended at `{line}`"));
        let numbers = words.iter().skip(2);
        numbers
            .map(|word| word.parse().unwrap_or(i64::MIN))
            .collect()
    }

    /// Runs one command, and returns the driver's code.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn code(&mut self, line: &str) -> i32 {
        let answer = self.ask(line);
        let code = answer.first().copied().unwrap_or(i64::MIN);
        i32::try_from(code).unwrap_or(i32::MIN)
    }

    /// Runs one command that has to succeed.
    ///
    /// # Panics
    /// When it does not.
    pub fn must(&mut self, line: &str) {
        assert_eq!(self.code(line), 0, "`{line}`");
    }

    /// The answer to a command in words, where they are not all numbers.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn words(&mut self, line: &str) -> Vec<String> {
        assert!(self.settle(), "the worker has ended before `{line}`");
        self.send(0, line);
        let words = self.hear();
        words.unwrap_or_else(|| panic!("the worker has ended at `{line}`"))
    }

    /// The memory of the first device as CUDA reports it.
    ///
    /// # Panics
    /// When CUDA returns an error.
    pub fn info(&mut self) -> Said {
        let answer = self.ask("info");
        let [0, free, total] = answer[..] else {
            panic!("cuMemGetInfo_v2: {answer:?}");
        };
        Said {
            total: total.cast_unsigned(),
            free: free.cast_unsigned(),
        }
    }

    /// The free memory that CUDA reports.
    pub fn free(&mut self) -> u64 {
        self.info().free
    }

    /// The memory of the first device as NVML reports it: free, total, used.
    ///
    /// # Panics
    /// When NVML returns an error.
    pub fn nvml(&mut self) -> [u64; 3] {
        let answer = self.ask("nvml");
        let [0, free, total, used] = answer[..] else {
            panic!("nvmlDeviceGetMemoryInfo: {answer:?}");
        };
        [free, total, used].map(i64::cast_unsigned)
    }

    /// Kills the worker, whatever it is doing, and waits for its end.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}
