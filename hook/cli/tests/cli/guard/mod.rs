//! `gpusliced --guard`: what slips past a slice is named and, if the operator wants it, stopped; a
//! machine with unified memory is kept alive.
//! Touches: simulated machines and children in folders of their own.

mod cost;
mod memory;
mod names;
mod pages;
mod users;

use crate::support::machine::Machine;
use crate::support::{Installation, eventually, spawn, told};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

static HERE: LazyLock<Installation> = LazyLock::new(|| {
    let here = Installation::new("guard");
    // The daemon is the same executable by another name.
    fs::hard_link(here.executable(), here.folder.join("gpusliced")).unwrap();
    here
});

/// Allocates device memory in steps, and holds it until its standard input ends: the bytes of a step,
/// the number of steps, the seconds between two. With `later` it first waits for a line.
const TAKES: &str = r#"
import ctypes, os, signal, sys, time
# One call for a line: two programs may write to one pipe, and `print` may write the end of a line alone.
say = lambda word: os.write(1, word.encode() + b"\n")
cuda = ctypes.CDLL("libcuda.so.1")
context, place = ctypes.c_void_p(), ctypes.c_void_p()
step, steps, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "later" in sys.argv:
    say("holds")
    sys.stdin.readline()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for turn in range(steps):
    if cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(step)):
        break
    time.sleep(pause)
say("holds")
sys.stdin.read()
"#;

/// The guard of a simulated machine, and its lines.
struct Guard {
    process: Child,
    lines: Receiver<(Instant, String)>,
    folder: tempfile::TempDir,
}

impl Guard {
    /// Starts the guard with a configuration, as root of the simulated machine.
    fn start(machine: &Machine, config: &str) -> Guard {
        let meminfo = machine.state.path().join("meminfo");
        let host = Path::new("/proc/meminfo");
        let meminfo = if meminfo.exists() { &meminfo } else { host };
        Guard::with_meminfo(machine, config, meminfo)
    }

    /// Starts the guard that `make` has built.
    fn released(machine: &Machine, config: &str, meminfo: &Path) -> Guard {
        let folder = HERE.folder.join("../released");
        let _ = fs::create_dir(&folder);
        let daemon = folder.join("gpusliced");
        let _ = fs::remove_file(&daemon);
        let built = crate::support::built().join("release/gpuslice");
        gpuslice_test_programs::copy_program(&built, &daemon);
        Guard::of_executable(&daemon, machine, config, meminfo)
    }

    /// Starts the guard of a host that has this memory.
    fn with_meminfo(machine: &Machine, config: &str, meminfo: &Path) -> Guard {
        Guard::of_executable(&HERE.folder.join("gpusliced"), machine, config, meminfo)
    }

    fn of_executable(executable: &Path, machine: &Machine, config: &str, meminfo: &Path) -> Guard {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gpusliced.toml");
        fs::write(&file, config).unwrap();
        // Its state is not that of this host's guard.
        fs::create_dir_all(folder.path().join("run/gpuslice")).unwrap();
        let state = machine.state.path();
        let mut daemon = Command::new(executable);
        for (name, _) in HERE.gpuslice().get_envs() {
            daemon.env_remove(name);
        }
        machine
            .home
            .of(&mut daemon)
            .args(["--guard", "--config"])
            .arg(&file)
            .env("GPUSLICE_SIM", machine.name())
            .env("GPUSLICE_SIM_STATE", state)
            .env("LD_LIBRARY_PATH", HERE.folder.join("../sim"))
            .arg("--meminfo")
            .arg(meminfo)
            .arg("--root")
            .arg(folder.path())
            .stderr(Stdio::piped());
        let mut process = spawn(&mut daemon);
        let said = BufReader::new(process.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let _ = sender.send((Instant::now(), line));
            }
        });
        Guard {
            process,
            lines,
            folder,
        }
    }

    /// Waits for a line with this part. Returns its time, and the line.
    fn until(&self, part: &str) -> (Instant, String) {
        let mut before = Vec::new();
        loop {
            let next = self.lines.recv_timeout(Duration::from_secs(60));
            let (at, line) = next.unwrap_or_else(|_| panic!("no line with {part}: {before:?}"));
            if line.contains(part) {
                return (at, line);
            }
            before.push(line);
        }
    }

    /// A metric of the guard, as `gpuslice metrics` prints it.
    fn metric(&self, name: &str) -> Option<u64> {
        let mut command = HERE.gpuslice();
        let (out, _, _) = told(command.args(["metrics", "--root"]).arg(self.folder.path()));
        let mut lines = out.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// The number of snapshots that the guard has taken, by the file that it keeps for metrics.
    fn snapshots(&self) -> u64 {
        let file = self.folder.path().join("run/gpuslice/guard.json");
        let text = fs::read(file).unwrap_or_default();
        let state: Value = serde_json::from_slice(&text).unwrap_or_default();
        state["snapshots"].as_u64().unwrap_or(0)
    }

    /// Waits for a snapshot after the first `before` ones. Returns the number of snapshots.
    fn snapshots_after(&self, before: u64) -> u64 {
        eventually("another snapshot is taken", || self.snapshots() > before);
        self.snapshots()
    }

    /// The lines of some time, without those about the guard's own start.
    fn lines_of(&self, time: Duration) -> Vec<String> {
        let end = Instant::now().checked_add(time).unwrap();
        let mut lines = Vec::new();
        while let Ok((_, line)) = self.lines.recv_timeout(end.duration_since(Instant::now())) {
            let is_start = [
                "when less than",
                "compares what",
                "may choose",
                "is not locked",
            ];
            if !is_start.iter().any(|start| line.contains(start)) {
                lines.push(line);
            }
        }
        lines
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program in a slice of a machine. Without the preload it slips past its limit.
struct Program {
    run: Child,
    out: BufReader<ChildStdout>,
}

impl Program {
    fn start(machine: &Machine, options: &[&str], escapes: bool, arguments: &[&str]) -> Program {
        let script = match escapes {
            true => "exec env -u LD_PRELOAD python3 -c \"$@\"",
            false => "exec python3 -c \"$@\"",
        };
        let words = ["sh", "-c", script, "sh", TAKES];
        let words = [&words[..], arguments].concat();
        let mut command = machine.run_command(options, &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = spawn(&mut command);
        let out = BufReader::new(run.stdout.take().unwrap());
        Program { run, out }
    }

    /// Lets a program that was started with `later` allocate.
    fn goes_on(&mut self) {
        use std::io::Write;
        let input = self.run.stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// Waits until it holds all that it takes, or, with `later`, until it has started.
    fn holds(&mut self) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line, "holds\n");
    }

    /// The signal that ended it; None if it still runs after some time.
    fn signal_within(&mut self, time: Duration) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        let start = Instant::now();
        loop {
            if let Some(status) = self.run.try_wait().unwrap() {
                return Some(status.signal().unwrap_or_else(|| panic!("ended: {status}")));
            }
            if start.elapsed() > time {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn runs(&mut self) -> bool {
        self.run.try_wait().unwrap().is_none()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

/// Compiles the program that holds device memory. Returns its folder and its path.
fn holder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("holder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/device_holder.c");
    let mut compile = Command::new("cc");
    compile
        .args(["-O1", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-ldl");
    let (_, said, status) = told(&mut compile);
    assert_eq!((said.as_str(), status), ("", 0));
    (folder, program)
}

/// The events of a kind that a machine's home has.
fn events(machine: &Machine, kind: &str) -> Vec<Value> {
    let file = machine.home.state.path().join("gpuslice/events.jsonl");
    let text = fs::read_to_string(file).unwrap_or_default();
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    all.filter(|event: &Value| event["event"] == kind).collect()
}
