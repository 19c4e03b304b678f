//! `gpuslice events` and `gpuslice history`: what is known of slices while they run and afterwards.
//! Touches: slices of their own, on simulated machines.

mod history;
mod hostile;
mod journal;
mod kept;
mod on_refusal;
mod users;

use crate::support::{Home, Installation, eventually, start, told};
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("events"));

/// Allocates device memory through the driver, as much as it is told to, and says what the driver
/// returned.
const PROGRAM: &str = r#"
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(os.getpid(), os.environ["GPUSLICE_CONFIG"], flush=True)
for line in sys.stdin:
    size = ctypes.c_size_t(int(line) << 20)
    print(cuda.cuMemAlloc_v2(ctypes.byref(address), size), flush=True)
"#;

/// A program in a slice, which allocates.
struct Program {
    child: Child,
    pid: i32,
    config: PathBuf,
    out: std::io::BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(home: &Home, options: &[&str]) -> Program {
        let mut command = HERE.gpuslice();
        home.of(&mut command)
            .args(["run", "--sim=rtx3090"])
            .args(options)
            .args(["--", "python3", "-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = crate::support::spawn(&mut command);
        let out = child.stdout.take().unwrap();
        let mut program = Program {
            child,
            pid: 0,
            config: PathBuf::new(),
            out: std::io::BufReader::new(out),
        };
        let line = program.hear();
        let (pid, config) = line.split_once(' ').unwrap();
        (program.pid, program.config) = (pid.parse().unwrap(), config.into());
        program
    }

    fn hear(&mut self) -> String {
        use std::io::BufRead;
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Allocates so many MiB, and returns CUDA's code: 2 is out of memory.
    fn allocates(&mut self, mib: u64) -> i32 {
        writeln!(self.child.stdin.as_mut().unwrap(), "{mib}").unwrap();
        self.hear().parse().unwrap()
    }

    fn ends(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// The events as JSON.
fn events(home: &Home, options: &[&str]) -> Vec<Value> {
    let mut command = HERE.gpuslice();
    let (out, _, status) = told(
        home.of(&mut command)
            .args(["events", "--json"])
            .args(options),
    );
    assert_eq!(status, 0, "{out}");
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn kinds(home: &Home) -> Vec<String> {
    let events = events(home, &[]).into_iter();
    events
        .map(|event| event["event"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits for an event.
fn awaited(home: &Home, kind: &str) -> Value {
    let find = || {
        events(home, &[])
            .into_iter()
            .rfind(|event| event["event"] == kind)
    };
    eventually(kind, || find().is_some());
    find().unwrap()
}

/// What a command says on standard output; nothing on standard error.
fn said(home: &Home, words: &[&str]) -> String {
    let mut command = HERE.gpuslice();
    let (out, err, status) = told(home.of(&mut command).args(words));
    assert_eq!((err.as_str(), status), ("", 0), "{out}");
    out
}

/// A run that lasts until its standard input ends.
fn waiting(home: &Home, options: &[&str]) -> (Child, String) {
    let mut command = HERE.run(options, "echo $GPUSLICE_CONFIG; read line");
    start(home.of(&mut command).stdin(Stdio::piped()))
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}
