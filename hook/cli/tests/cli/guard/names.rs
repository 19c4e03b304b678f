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
        line.ends_with("beyond its slice: it has not loaded libgpuslice.so"),
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
    let (_, line) = guard.until("it got SIGTERM");
    assert!(line.contains("of slice esc"), "{line}");
    guard.until("it got SIGKILL");
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
    guard.until("it got SIGTERM");
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
