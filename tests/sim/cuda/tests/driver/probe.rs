//! Processes that run the commands of a test, and the machine on which they run.
//! Touches: child processes, temporary directories.

use gpuslice_sim_machine::{DeviceTruth, Machine};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// The built libraries and the compiled probe, made once per test run.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim");
        let built = Command::new("sh")
            .arg(here.join("../build.sh"))
            .arg(&out)
            .status()
            .unwrap();
        assert!(built.success(), "build.sh failed");
        compile(
            &here.join("tests/driver/probe.c"),
            &out.join("probe"),
            &["-ldl", "-lpthread"],
        );
        out
    })
}

/// Compiles one C file.
pub(crate) fn compile(source: &Path, to: &Path, flags: &[&str]) {
    let fresh = to.with_extension(format!("new{}", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-Wall", "-Werror", "-o"])
        .arg(&fresh)
        .arg(source)
        .args(flags);
    assert!(cc.status().unwrap().success(), "cc {}", source.display());
    std::fs::rename(fresh, to).unwrap();
}

/// One simulated machine.
pub(crate) struct Sim {
    scenario: &'static str,
    pub(crate) state: TempDir,
}

impl Sim {
    pub(crate) fn new(scenario: &'static str) -> Self {
        Self {
            scenario,
            state: TempDir::new().unwrap(),
        }
    }

    /// A process on it.
    pub(crate) fn process(&self) -> Probe {
        self.process_with(&[])
    }

    /// A process on it, with variables set.
    pub(crate) fn process_with(&self, variables: &[(&str, &str)]) -> Probe {
        Probe::start(
            built().join("probe"),
            built(),
            self.scenario,
            self.state.path(),
            variables,
        )
    }

    /// A process whose loader finds another driver first.
    pub(crate) fn process_of_driver(&self, directory: &Path) -> Probe {
        Probe::start(
            built().join("probe"),
            directory,
            self.scenario,
            self.state.path(),
            &[],
        )
    }

    /// A process with a context on device 0.
    pub(crate) fn process_with_context(&self) -> Probe {
        let mut process = self.process();
        process.context(0);
        process
    }

    /// The machine itself.
    pub(crate) fn machine(&self) -> Machine {
        Machine::start(Some(self.scenario), Some(self.state.path()), "").unwrap()
    }

    /// The true state of device `i`.
    pub(crate) fn device(&self, i: usize) -> DeviceTruth {
        self.machine().truth().devices[i].clone()
    }
}

/// One process.
pub(crate) struct Probe {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Probe {
    fn start(
        program: PathBuf,
        driver: &Path,
        scenario: &str,
        state: &Path,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", driver)
            .env("GPUSLICE_SIM", scenario)
            .env("GPUSLICE_SIM_STATE", state)
            .env_remove("GPUSLICE_SIM_FAULTS")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("LD_PRELOAD")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one line, and returns the line of its answer.
    pub(crate) fn say(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    /// Makes a call, and returns its code.
    pub(crate) fn call(&mut self, line: &str) -> i32 {
        let answer = self.say(line);
        answer
            .parse()
            .unwrap_or_else(|_| panic!("{line}: {answer:?}"))
    }

    /// Makes a call that must succeed.
    pub(crate) fn ok(&mut self, line: &str) {
        assert_eq!(self.call(line), 0, "{line}");
    }

    pub(crate) fn show(&mut self, variable: &str) -> u64 {
        self.say(&format!("show {variable}")).parse().unwrap()
    }

    pub(crate) fn show_at(&mut self, variable: &str, bytes: u32, at: u32) -> u64 {
        self.say(&format!("show {variable} {bytes} {at}"))
            .parse()
            .unwrap()
    }

    /// Calls cuInit, and makes the primary context of a device current.
    pub(crate) fn context(&mut self, device: u32) {
        self.ok("cuInit 0");
        self.ok(&format!("cuDevicePrimaryCtxRetain @context {device}"));
        self.ok("cuCtxSetCurrent $context");
    }

    /// cuMemGetInfo_v2: free and total.
    pub(crate) fn info(&mut self) -> (u64, u64) {
        self.ok("cuMemGetInfo_v2 @free @total");
        (self.show("free"), self.show("total"))
    }

    pub(crate) fn free(&mut self) -> u64 {
        self.info().0
    }

    /// Allocates with cuMemAlloc_v2 into a variable, and returns the code.
    pub(crate) fn alloc(&mut self, variable: &str, bytes: u64) -> i32 {
        self.call(&format!("cuMemAlloc_v2 @{variable} {bytes}"))
    }

    /// nvmlDeviceGetMemoryInfo_v2 of GPU `index`: code, total, reserved, free, used.
    pub(crate) fn nvml(&mut self, index: u32) -> (i32, [u64; 4]) {
        self.ok("nvmlInit_v2");
        self.ok(&format!("nvmlDeviceGetHandleByIndex_v2 {index} @gpu"));
        self.ok("put memory 4:0x2000028 4:0 8:1 8:2 8:3 8:4");
        let code = self.call("nvmlDeviceGetMemoryInfo_v2 $gpu @memory");
        (
            code,
            [8, 16, 24, 32].map(|at| self.show_at("memory", 8, at)),
        )
    }

    /// Kills the process with SIGKILL, and reaps it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
