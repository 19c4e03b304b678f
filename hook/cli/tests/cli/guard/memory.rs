//! A machine with unified memory that runs short.

use super::{Guard, HERE, Program, events};
use crate::support::machine::Machine;
use crate::support::{eventually, spawn, told};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

const GIB: &str = "1073741824";

/// The memory that a simulated machine has available, in GiB.
fn available(machine: &Machine) -> u64 {
    let text = fs::read_to_string(machine.state.path().join("meminfo")).unwrap();
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib >> 20
}

/// Changes the simulated machine: `host +6GiB`.
fn sim(machine: &Machine, arguments: &[&str]) {
    let mut command = Command::new(HERE.folder.join("../sim/gpuslice-sim"));
    command
        .args(arguments)
        .env("GPUSLICE_SIM", machine.name())
        .env("GPUSLICE_SIM_STATE", machine.state.path());
    let (_, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 0));
}

/// A Spark with a slice that stays within its promise.
fn spark() -> (Machine, Program) {
    let machine = Machine::new(&HERE, "gb10");
    let options = ["--memory=30GiB", "--name=good"];
    let mut good = Program::start(&machine, &options, false, &[GIB, "20", "0"]);
    good.holds();
    (machine, good)
}

#[test]
fn a_program_that_slips_past_its_slice_is_ended_before_the_machine_is_short() {
    let (machine, mut good) = spark();
    let guard = Guard::start(&machine, "[guard]\nmemory = \"act\"\nbypass = \"off\"\n");
    guard.until("sends signals below");
    let options = ["--memory=8GiB", "--name=esc"];
    // Twenty GiB in a second, without end.
    let arguments = [GIB, "1000", "0.05", "stubborn"];
    let mut escaped = Program::start(&machine, &options, true, &arguments);
    let (_, line) = guard.until("slice esc (pid");
    assert!(line.contains("sends SIG"), "{line}");
    assert!(line.contains("and was promised 8.00 GiB"), "{line}");
    assert_eq!(escaped.signal_within(Duration::from_secs(30)), Some(9));
    assert!(good.runs());
    eventually("the event is written", || {
        let all = events(&machine, "guard");
        all.iter()
            .any(|event| event["slice"] == "esc" && event["pid"] == escaped.run.id())
    });
    sim(&machine, &["status"]);
    assert!(available(&machine) > 60, "{}", available(&machine));
}

#[test]
fn with_warn_the_guard_says_who_would_get_a_signal() {
    let (machine, mut good) = spark();
    let guard = Guard::start(&machine, "[guard]\nbypass = \"off\"\n");
    guard.until("warns when less than");
    let options = ["--memory=8GiB", "--name=esc"];
    let arguments = [GIB, "92", "0.02"];
    let mut escaped = Program::start(&machine, &options, true, &arguments);
    guard.until("the host is short of memory");
    let (_, line) = guard.until("slice esc (pid");
    assert!(line.contains("would send SIG"), "{line}");
    eventually("the event is written", || {
        let all = events(&machine, "guard");
        all.iter()
            .any(|event| event["slice"] == "esc" && event["warned"] == true)
    });
    escaped.holds();
    assert!(good.runs() && escaped.runs());
}

#[test]
fn a_program_outside_of_slices_gets_a_signal_only_if_it_is_listed() {
    let (machine, mut good) = spark();
    // Python's anonymous memory: this program is larger than the others of its name.
    let script = "x = bytearray(64 << 20); print(flush=True); import sys; sys.stdin.read()";
    let name = format!("hog{}", std::process::id());
    let code = format!("import ctypes; ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0); {script}");
    let mut program = Command::new("python3");
    program
        .args(["-c", &code])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut program = spawn(&mut program);
    let mut line = [0];
    std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut line).unwrap();
    let guard = Guard::start(&machine, "[guard]\nmemory = \"act\"\n");
    guard.until("sends signals below");
    let host = |sign: char| sim(&machine, &["host", &format!("{sign}92GiB")]);
    host('+');
    guard.until("no slice or program may get a signal");
    assert!(program.try_wait().unwrap().is_none() && good.runs());
    host('-');
    drop(guard);
    let config = format!("[guard]\nmemory = \"act\"\n[guard.host]\nprograms = [\"{name}\"]\n");
    let guard = Guard::start(&machine, &config);
    guard.until("sends signals below");
    host('+');
    let (_, line) = guard.until(&format!("program {name} (pid {})", program.id()));
    assert!(line.contains("sends SIG"), "{line}");
    program.wait().unwrap();
    assert!(good.runs());
}

#[test]
fn a_slice_within_a_slice_that_is_beyond_its_promise_is_left_alone() {
    let machine = Machine::new(&HERE, "gb10");
    // The outer command holds memory without the library, and starts a run of its own.
    let script = format!(
        "{} run --bare -- {} run --name=inner --memory=8GiB -- python3 -c \"$0\" {GIB} 1 0 <&3 & \
         exec env -u LD_PRELOAD python3 -c \"$0\" {GIB} 20 0",
        HERE.executable().display(),
        HERE.executable().display(),
    );
    let mut command = machine.run_command(
        &["--memory=4GiB", "--name=outer"],
        &["sh", "-c", &format!("exec 3<&0; {script}"), super::TAKES],
    );
    let mut outer = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let out = std::io::BufReader::new(outer.stdout.take().unwrap());
    let held: Vec<String> = std::io::BufRead::lines(out)
        .take(2)
        .map(Result::unwrap)
        .collect();
    assert_eq!(held, ["holds", "holds"]);
    let inner = || {
        let mut command = HERE.gpuslice();
        let (out, _, _) = told(machine.home.of(&mut command).args(["status", "--json"]));
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        let slices = json["slices"].as_array().unwrap().clone();
        let inner = slices.into_iter().find(|slice| slice["name"] == "inner")?;
        inner["devices"][0]["processes"][0]["pid"].as_i64()
    };
    let pid = inner().unwrap();
    let guard = Guard::start(&machine, "[guard]\nmemory = \"act\"\nbypass = \"off\"\n");
    guard.until("sends signals below");
    sim(&machine, &["host", "+91GiB"]);
    let (_, line) = guard.until("slice outer (pid");
    assert!(line.contains("sends SIG"), "{line}");
    // Both programs read from it: the inner one must not end by itself.
    let input = outer.stdin.take();
    outer.wait().unwrap();
    assert_eq!(inner(), Some(pid));
    drop(input);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}
