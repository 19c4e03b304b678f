//! Processes that hold device memory beyond what their slice counts.

use super::{Guard, HERE, Program, events};
use crate::support::eventually;
use crate::support::machine::Machine;
use std::time::{Duration, Instant};

const GIB: &str = "1073741824";

#[test]
fn a_program_that_left_its_slice_is_named_with_its_bytes() {
    let machine = Machine::new(&HERE, "rtx3090");
    let mut counted = Program::start(&machine, &["--memory=4GiB"], false, &[GIB, "1", "0"]);
    counted.holds();
    let guard = Guard::start(&machine, "[guard]\n");
    guard.until("compares what the driver reports");
    // The guard has seen the machine before.
    std::thread::sleep(Duration::from_secs(2));
    let options = ["--memory=2GiB", "--name=esc"];
    let mut escaped = Program::start(&machine, &options, true, &[GIB, "1", "0"]);
    escaped.holds();
    let begin = Instant::now();
    let (at, line) = guard.until("of slice esc holds");
    let pid = escaped.run.id();
    let head = format!("gpusliced: process python3 (pid {pid}) of slice esc holds 1.");
    assert!(line.starts_with(&head), "{line}");
    assert!(
        line.ends_with("that its slice does not count: the process has not loaded libgpuslice.so"),
        "{line}"
    );
    let after = at.duration_since(begin);
    eprintln!("named after {after:?}");
    assert!(after < Duration::from_secs(20), "{after:?}");
    eventually("the event is written", || {
        let all = events(&machine, "escape");
        all.iter()
            .any(|event| event["slice"] == "esc" && event["pid"] == pid)
    });
    // It is named once, and gets no signal.
    assert_eq!(guard.lines_of(Duration::from_secs(3)), Vec::<String>::new());
    assert!(escaped.runs() && counted.runs());
    assert_eq!(
        guard.metric("gpuslice_guard_named_processes_total"),
        Some(1)
    );
    assert_eq!(guard.metric("gpuslice_guard_kills_total"), Some(0));
}

#[test]
fn a_program_that_left_its_slice_is_ended_where_the_operator_wants_it() {
    let machine = Machine::new(&HERE, "rtx3090");
    let config = "[guard]\nbypass = \"kill\"\nstep_seconds = 0.5\n";
    let guard = Guard::start(&machine, config);
    guard.until("compares what the driver reports");
    let options = ["--memory=2GiB", "--name=esc"];
    let mut counted = Program::start(&machine, &["--memory=2GiB"], false, &[GIB, "1", "0"]);
    let mut escaped = Program::start(&machine, &options, true, &[GIB, "3", "0", "stubborn"]);
    counted.holds();
    escaped.holds();
    guard.until("of slice esc holds");
    let (_, line) = guard.until("the process got SIGTERM");
    assert!(line.contains("of slice esc"), "{line}");
    guard.until("the process got SIGKILL");
    assert_eq!(escaped.signal_within(Duration::from_secs(10)), Some(9));
    assert!(counted.runs());
    eventually("the kill is counted", || {
        guard.metric("gpuslice_guard_kills_total") == Some(1)
    });
}

#[test]
fn a_program_that_ends_when_it_is_asked_to_is_not_killed() {
    let machine = Machine::new(&HERE, "rtx3090");
    let config = "[guard]\nbypass = \"terminate\"\nstep_seconds = 0.5\n";
    let guard = Guard::start(&machine, config);
    let options = ["--memory=2GiB", "--name=esc"];
    let mut escaped = Program::start(&machine, &options, true, &[GIB, "3", "0"]);
    escaped.holds();
    guard.until("the process got SIGTERM");
    assert_eq!(escaped.signal_within(Duration::from_secs(10)), Some(15));
}

#[test]
fn programs_within_their_slices_are_never_suspected() {
    let machine = Machine::new(&HERE, "rtx3090");
    let guard = Guard::start(&machine, "[guard]\nbypass = \"kill\"\nstep_seconds = 0.1\n");
    let arguments = ["268435456", "12", "0.3"];
    let mut programs: Vec<Program> = (0..3)
        .map(|_| Program::start(&machine, &["--memory=4GiB"], false, &arguments))
        .collect();
    for program in &mut programs {
        program.holds();
    }
    assert_eq!(guard.lines_of(Duration::from_secs(4)), Vec::<String>::new());
    assert!(programs.iter_mut().all(Program::runs));
}

#[test]
fn on_unified_memory_an_escaped_program_is_named_as_soon() {
    let machine = Machine::new(&HERE, "gb10");
    let mut counted = Program::start(&machine, &["--memory=8GiB"], false, &[GIB, "1", "0"]);
    counted.holds();
    let guard = Guard::start(&machine, "[guard]\n");
    guard.until("compares what the driver reports");
    std::thread::sleep(Duration::from_secs(2));
    let options = ["--memory=8GiB", "--name=esc"];
    let mut escaped = Program::start(&machine, &options, true, &[GIB, "6", "0"]);
    escaped.holds();
    let begin = Instant::now();
    let (at, _) = guard.until("of slice esc holds");
    let after = at.duration_since(begin);
    eprintln!("named after {after:?}");
    assert!(after < Duration::from_secs(20), "{after:?}");
}

#[test]
fn a_guard_whose_child_is_killed_goes_on() {
    let machine = Machine::new(&HERE, "rtx3090");
    let guard = Guard::start(&machine, "[guard]\n");
    guard.until("compares what the driver reports");
    let asks = || {
        let listed = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_it = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = format!(") S {} ", guard.process.id());
            line.ends_with(b"driver-memory\0") && stat.contains(&parent)
        };
        numbers.into_iter().find(is_it)
    };
    eventually("the child asks", || asks().is_some());
    let child = nix::unistd::Pid::from_raw(asks().unwrap());
    nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
    let options = ["--memory=2GiB", "--name=esc"];
    let mut escaped = Program::start(&machine, &options, true, &[GIB, "3", "0"]);
    escaped.holds();
    guard.until("of slice esc holds");
    // It has been reaped.
    assert_eq!(
        nix::sys::signal::kill(child, None),
        Err(nix::errno::Errno::ESRCH)
    );
}
