//! `gpuslice report`: the memory of a slice's processes on the device and on the host, and the
//! freed memory that malloc keeps.

use crate::support::member::{GPU, Member, ledger_of};
use crate::support::terminal::Terminal;
use crate::support::{Home, Installation, spawn, told};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("report"));

/// Allocates with libc's malloc in the main arena, and in a thread that gets an arena of its own.
/// Prints how many bytes malloc keeps by its own count.
const PROGRAM: &str = r#"
import ctypes, os, sys, threading
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
libc.mallinfo2.restype = Info
held = []
def take():
    for _ in range(2000):
        block = libc.malloc(50000)
        libc.memset(block, 1, 50000)
        held.append(block)
def give():
    for block in held[::2] + held[1::2][:-1]:
        libc.free(block)
    del held[:]
done, turn = threading.Event(), threading.Event()
def other():
    take(); give(); done.set(); turn.wait()
actions = {
    "arena": lambda: (threading.Thread(target=other, daemon=True).start(), done.wait()),
    "main": lambda: (take(), give()),
    "trim": lambda: libc.malloc_trim(0),
    "untouched": lambda: untouched(),
    "hold": lambda: held.append(bytearray(os.urandom(64 << 20))),
    "share": lambda: held.append(shared()),
}
def untouched():
    blocks = [libc.malloc(100000) for _ in range(1000)]
    for block in blocks[::2]:
        libc.free(block)
    held.extend(blocks[1::2])
def shared():
    import mmap
    memory = mmap.mmap(-1, 32 << 20)
    memory.write(bytes(32 << 20))
    return memory
print(os.getpid(), os.environ.get("GPUSLICE_CONFIG"), flush=True)
for line in sys.stdin:
    actions[line.strip()]()
    print(libc.mallinfo2().fordblks, flush=True)
"#;

/// A Python program in a slice that performs the actions it is sent.
struct Program {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pid: u32,
    config: String,
    home: Home,
}

impl Program {
    fn start(options: &[&str]) -> Program {
        let home = Home::new();
        let mut command = HERE.gpuslice();
        home.of(&mut command)
            .args(["run", "--name=held", "--memory=8GiB"])
            .args(options)
            .args(["--", "python3", "-c", PROGRAM]);
        Program::spawn(&mut command, home)
    }

    fn spawn(command: &mut Command, home: Home) -> Program {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command);
        let mut program = Program {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            pid: 0,
            config: String::new(),
            home,
        };
        let line = program.hear();
        let (pid, config) = line.split_once(' ').unwrap();
        (program.pid, program.config) = (pid.parse().unwrap(), config.to_owned());
        program
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Performs an action. Returns how many bytes malloc keeps by its own count.
    fn does(&mut self, action: &str) -> u64 {
        writeln!(self.stdin, "{action}").unwrap();
        self.hear().parse().unwrap()
    }

    fn report(&self, options: &[&str]) -> (String, String, i32) {
        let mut command = HERE.gpuslice();
        told(self.home.of(&mut command).arg("report").args(options))
    }

    fn json(&self, options: &[&str]) -> Value {
        let (out, err, status) = self.report(&[&["--json"], options].concat());
        assert_eq!((err.as_str(), status), ("", 0));
        serde_json::from_str(&out).unwrap()
    }

    /// The host memory of the program in the report.
    fn host(&self) -> Value {
        self.json(&[&self.pid.to_string()])["slices"][0]["processes"][0]["host"].clone()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const MIB: u64 = 1 << 20;

fn bytes(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no amount: {value}"))
}

#[test]
fn freed_memory_that_malloc_keeps_is_reported_until_it_is_trimmed() {
    let mut program = Program::start(&["--sim=rtx3090"]);
    let before = bytes(&program.host()["kept"]);
    for action in ["arena", "main"] {
        let said = program.does(action);
        let kept = bytes(&program.host()["kept"]);
        assert!(
            said > 80 * MIB,
            "malloc keeps only {said}: nothing is tested"
        );
        // malloc cannot return parts of pages, and pages that were never touched take no memory.
        let (most, least) = (said + 4 * MIB, said * 9 / 10 - 4 * MIB);
        assert!(
            (least..=most).contains(&kept),
            "{action}: {kept}, malloc says {said}"
        );
    }
    let live = bytes(&program.host()["live"]);
    program.does("trim");
    let kept = bytes(&program.host()["kept"]);
    assert!(
        kept < before + 4 * MIB,
        "{kept} after a trim, {before} before all"
    );
    let after = bytes(&program.host()["live"]);
    assert!(
        after.abs_diff(live) < 8 * MIB,
        "{live} in use, and {after} after the trim"
    );
}

#[test]
fn what_was_freed_and_never_touched_is_not_kept() {
    let mut program = Program::start(&["--sim=rtx3090"]);
    let before = program.host();
    let said = program.does("untouched");
    assert!(
        said > 40 * MIB,
        "malloc keeps only {said}: nothing is tested"
    );
    for _ in 0..2 {
        // The report itself must not touch the pages.
        let after = program.host();
        let kept = bytes(&after["kept"]).abs_diff(bytes(&before["kept"]));
        assert!(kept < 4 * MIB, "{before} {after}");
    }
}

#[test]
fn what_is_in_use_and_what_is_shared_have_columns_of_their_own() {
    let mut program = Program::start(&["--sim=rtx3090"]);
    let before = program.host();
    program.does("hold");
    program.does("share");
    let after = program.host();
    let grown = |key: &str| bytes(&after[key]).saturating_sub(bytes(&before[key]));
    assert!(
        (60 * MIB..76 * MIB).contains(&grown("live")),
        "{before} {after}"
    );
    assert!(
        (31 * MIB..33 * MIB).contains(&grown("shmem")),
        "{before} {after}"
    );
    assert!(bytes(&after["page_cache_mapped"]) > 0);
}

#[test]
fn device_memory_is_reported_by_kind_and_process_and_adds_up() {
    let program = Program::start(&["--sim=rtx3090"]);
    let member = Member::of(&program.config);
    member.take(Bytes::gib(3), Kind::Linear);
    member.take(Bytes::mib(256), Kind::Context);
    let report = program.json(&["held"]);
    let slice = &report["slices"][0];
    assert_eq!(
        (&slice["name"], &slice["pid"]),
        (&"held".into(), &program.pid.into())
    );
    let device = serde_json::json!([{
        "device": GPU, "unified": false, "limit": 8u64 << 30, "used": 13u64 << 28,
        "by_kind": {"linear": 3u64 << 30, "context": 256u64 << 20}, "without_library": [],
    }]);
    assert_eq!(slice["devices"], device);
    let processes = slice["processes"].as_array().unwrap();
    let of = |pid: u32| processes.iter().find(|one| one["pid"] == pid).unwrap();
    let held = serde_json::json!({"linear": 3u64 << 30, "context": 256u64 << 20});
    assert_eq!(of(std::process::id())["device"], held);
    assert_eq!(of(program.pid)["device"], serde_json::json!({}));
    let machine = &report["machine"];
    let [total, available, slices, rest] =
        ["total", "available", "slices", "unaccounted"].map(|key| bytes(&machine[key]));
    assert_eq!(total, available + slices + rest, "{machine}");
    assert!(
        slices > bytes(&of(program.pid)["host"]["live"]),
        "{machine}"
    );
    // The memory of a card is not part of the machine's memory.
    assert!(slices < 3 << 30, "{machine}");
}

#[test]
fn a_watch_says_what_grows_and_draws_it() {
    let mut program = Program::start(&["--sim=gb10"]);
    let plot = program.home.state.path().join("plot.svg");
    let mut command = HERE.gpuslice();
    program
        .home
        .of(&mut command)
        .args(["report", "--watch", "--json", "--plot"])
        .arg(&plot)
        .stdout(Stdio::piped());
    let mut watch = spawn(&mut command);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    let growth = |report: &Value| {
        let processes = report["slices"][0]["processes"].as_array().unwrap().clone();
        let own = processes.into_iter().find(|one| one["pid"] == program.pid);
        own.unwrap()["growth_per_minute"].clone()
    };
    assert_eq!(growth(&first), Value::Null);
    writeln!(program.stdin, "hold").unwrap();
    // The watch prints once a second. The 64 MiB appear in one of the next lines.
    let grows =
        (0..10).any(|_| growth(&next())["host"].as_i64().unwrap() > (60 * MIB).cast_signed());
    assert!(grows);
    watch.kill().unwrap();
    watch.wait().unwrap();
    let drawn = fs::read_to_string(plot).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    assert!(drawn.contains("host, freed but kept"));
}

#[test]
fn one_look_is_a_table_and_who_is_in_no_slice_is_told_so() {
    let program = Program::start(&["--sim=gb10"]);
    let (out, err, status) = program.report(&["held"]);
    assert_eq!((err.as_str(), status), ("", 0));
    let head = "PID DEVICE CONTEXT HOST KEPT SHMEM MAPPED GROWTH/MIN NAME";
    let heads = out
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(heads.into_iter().any(|line| line == head), "{out}");
    assert!(
        out.lines()
            .any(|line| line.trim().starts_with(&program.pid.to_string()))
    );
    assert!(out.contains("machine: "), "{out}");
    let (_, err, status) = program.report(&["llama"]);
    assert_eq!(
        (err.as_str(), status),
        ("gpuslice: no slice is called \"llama\"\n", 125)
    );
    let (_, err, status) = program.report(&["1"]);
    assert_eq!(status, 125);
    assert_eq!(
        err,
        "gpuslice: process 1 is in no slice that is visible from here\n"
    );
}

#[test]
fn what_another_allocator_keeps_is_not_guessed() {
    let jemalloc = ["x86_64", "aarch64"]
        .map(|arch| format!("/usr/lib/{arch}-linux-gnu/libjemalloc.so.2"))
        .into_iter()
        .find(|path| fs::exists(path).unwrap());
    // tests/clients/setup.sh installs jemalloc, as it does everything that the tests of programs
    // need.
    let jemalloc = jemalloc.expect("run tests/clients/setup.sh first");
    let home = Home::new();
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .env("LD_PRELOAD", jemalloc)
        .args(["run", "--sim=rtx3090", "--name=held", "--memory=8GiB", "--"])
        .args(["python3", "-c", PROGRAM]);
    let program = Program::spawn(&mut command, home);
    let host = program.host();
    assert_eq!(host["kept"], Value::Null);
    assert!(bytes(&host["live"]) > 0);
}

#[test]
fn a_plot_without_a_time_to_look_is_an_error_that_names_the_fix() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let plot = folder.path().join("empty.svg");
    let mut command = HERE.gpuslice();
    let (out, err, status) = told(home.of(&mut command).args(["report", "--plot"]).arg(&plot));
    let message = "gpuslice: --plot draws memory over time: add --watch or --for SECONDS\n";
    assert_eq!((out.as_str(), err.as_str(), status), ("", message, 125));
    assert!(!plot.exists());
}

#[test]
fn memory_in_a_ledger_that_cannot_be_read_is_unknown_and_not_zero() {
    let program = Program::start(&["--sim=rtx3090"]);
    let ledger = ledger_of(&program.config);
    let ledger = fs::OpenOptions::new().write(true).open(ledger).unwrap();
    ledger.set_len(100).unwrap();
    let why = "the ledger is 100 bytes long, which is no ledger's length";
    let (out, err, status) = program.report(&[]);
    let said = "gpuslice: slice held could not be read\n";
    assert_eq!((err.as_str(), status), (said, 1), "{out}");
    assert!(out.contains(&format!("  {why}\n")), "{out}");
    assert!(out.contains(&format!("  {GPU}  ? of 8.00 GiB\n")), "{out}");
    let row = out
        .lines()
        .find(|line| line.ends_with("  python3"))
        .unwrap();
    let [_, device, context, host] = row.split_whitespace().collect::<Vec<_>>()[..4] else {
        panic!("{row}");
    };
    assert!(device == "?" && context == "?" && host != "?", "{row}");
    let (json, _, status) = program.report(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let slice = &json["slices"][0];
    assert_eq!((status, &slice["error"]), (1, &why.into()));
    let device = &slice["devices"][0];
    assert_eq!([&device["used"], &device["by_kind"]], [&Value::Null; 2]);
    assert_eq!(slice["processes"][0]["device"], Value::Null);
}

#[test]
fn a_slice_that_ends_while_it_is_measured_is_shown_with_its_last_numbers() {
    let home = Home::new();
    let mut run = HERE.run(
        &["--sim=rtx3090", "--memory=4GiB", "--name=short"],
        "read line",
    );
    let mut child = home.of(&mut run).stdin(Stdio::piped()).spawn().unwrap();
    let mut command = HERE.gpuslice();
    let shown = home.of(&mut command);
    let is_there = |home: &Home| {
        let mut command = HERE.gpuslice();
        told(home.of(&mut command).args(["status", "--json"]))
            .0
            .contains("\"short\"")
    };
    crate::support::eventually("it runs", || is_there(&home));
    // The figure shows that the slice was measured.
    let figure = home.state.path().join("figure.svg");
    let shown = shown.args(["report", "short", "--for", "600", "--every", "1", "--plot"]);
    let shown = shown
        .arg(&figure)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    crate::support::eventually("it is measured", || figure.exists());
    drop(child.stdin.take());
    child.wait().unwrap();
    let shown = shown.wait_with_output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&shown.stdout),
        String::from_utf8_lossy(&shown.stderr),
    );
    assert!(shown.status.success(), "{err}");
    assert!(
        err.contains("short has ended: these are its last numbers"),
        "{err}"
    );
    assert!(out.contains("short"), "{out}");
}

/// A minute without a word looked like a program that hangs.
#[test]
fn a_measurement_on_a_terminal_counts_the_seconds_that_are_left() {
    let home = Home::new();
    let mut terminal = Terminal::new(24, 80);
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["report", "--for", "2"])
        .stderr(terminal.errors());
    let mut child = terminal.start(&mut command);
    terminal.until("a countdown", |shown| shown.contains("measuring: "));
    let shown = terminal.until("a report", |shown| shown.contains("no slices are running"));
    assert!(!shown.contains("measuring"), "{shown}");
    assert!(child.wait().unwrap().success());
}
