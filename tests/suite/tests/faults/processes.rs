//! SIGKILL and SIGSTOP at every system call of `gpuslice run`, from its start to the end of its
//! program and its watcher; and process numbers that come again.
//! Touches: hosts of their own; traced programs; a pid namespace with few numbers. Needs root.

use super::bench::driver_lock::DriverLock;
use super::bench::host::{EXECS, Host, PATIENCE};
use super::bench::life::{self, Judge};
use super::bench::slice::{Bench, LIMIT};
use super::bench::trace::{Act, Call, Director, trace};
use super::row::{Outcome, Row, injections, is_root, not_run, right, spread};
use super::signals::Once;
use gpuslice_suite::run::Run;

/// Counts the calls of the command's own processes until its program starts, and of the watcher.
struct Counter;

impl Director for Counter {
    fn call(&mut self, _: &Call) -> Act {
        Act::Go
    }
}

/// The number of calls of a run, its program and its watcher. It differs a little each time.
fn calls_of_a_run(host: &Host) -> usize {
    let traced = trace(host.life(Judge::Strictly), EXECS, PATIENCE, &mut Counter);
    assert_eq!(traced.end, "exit 0", "{traced:?}");
    host.is_clean().expect("a clean host");
    traced.calls
}

const NEEDS_ROOT: &str = "a host of its own needs root";

fn killed_at(host: &Host, at: usize) -> Outcome {
    killed_by(host, &mut Once::new(at, Act::Kill))
}

/// A run of which this director kills a process.
fn killed_by(host: &Host, director: &mut dyn Director) -> Outcome {
    let traced = trace(host.life(Judge::Strictly), EXECS, PATIENCE, director);
    // The killed process was the run's own, or a child that it can do without or has to report.
    let is_expected = ["exit 0", "signal 9", "exit 125"].contains(&&*traced.end);
    right(is_expected && !traced.is_late, || format!("{traced:?}"))?;
    let is_told = traced.end != "exit 125" || traced.stderr.starts_with("gpuslice: ");
    right(is_told, || format!("no reason is given: {traced:?}"))?;
    host.is_as_new()
}

#[test]
fn a_run_killed_at_any_call_promises_nothing_for_ever() {
    const NAME: &str = "sigkill-run";
    const TITLE: &str = "SIGKILL at every system call of gpuslice run and its watcher";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    let calls = calls_of_a_run(&host);
    for at in spread(calls, injections(8)) {
        row.inject(format!("call {at} of {calls}"), || killed_at(&host, at));
    }
    row.finish();
}

/// The system calls that remove or rename a file.
const REMOVALS: [i64; 6] = [
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
];

/// Kills the process that makes a removal, before it is made.
struct AtRemoval {
    /// The removals that are still let through.
    left: usize,
    /// The removals that were seen.
    seen: usize,
}

impl AtRemoval {
    fn after(left: usize) -> AtRemoval {
        AtRemoval { left, seen: 0 }
    }
}

impl Director for AtRemoval {
    fn call(&mut self, call: &Call) -> Act {
        if !REMOVALS.contains(&call.number) {
            return Act::Go;
        }
        self.seen += 1;
        match self.seen > self.left {
            true => Act::Kill,
            false => Act::Go,
        }
    }
}

/// A killed removal leaves a file behind that names other files, or a folder whose files are gone.
#[test]
fn a_run_killed_at_any_removal_of_a_file_leaves_nothing() {
    const NAME: &str = "sigkill-removal";
    const TITLE: &str = "SIGKILL at every removal of a file by gpuslice run and its watcher";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    let mut counter = AtRemoval::after(usize::MAX);
    let traced = trace(host.life(Judge::Strictly), EXECS, PATIENCE, &mut counter);
    assert_eq!(traced.end, "exit 0", "{traced:?}");
    host.is_clean().expect("a clean host");
    for left in 0..counter.seen {
        row.inject(format!("removal {left} of {}", counter.seen), || {
            killed_by(&host, &mut AtRemoval::after(left))
        });
    }
    row.finish();
}

/// Stops a process of the run at a call, and looks at the host meanwhile.
struct Stop<'a> {
    once: Once,
    host: &'a Host,
    lock: DriverLock,
    outcome: Outcome,
}

impl Director for Stop<'_> {
    fn call(&mut self, call: &Call) -> Act {
        if self.lock.is_held(call) || self.once.reached || call.index < self.once.at {
            return Act::Go;
        }
        self.once.reached = true;
        Act::Stop
    }

    fn stopped(&mut self) {
        self.outcome = self.host.status().map(drop);
    }
}

fn stopped_at(host: &Host, at: usize) -> Outcome {
    let once = Once::new(at, Act::Stop);
    let mut stop = Stop {
        once,
        host,
        lock: DriverLock::default(),
        outcome: Ok(()),
    };
    let traced = trace(host.life(Judge::Strictly), EXECS, PATIENCE, &mut stop);
    let outcome = stop.outcome;
    outcome?;
    Judge::Strictly.traced(&traced)?;
    host.is_as_new()
}

#[test]
fn a_run_stopped_at_any_call_goes_on_and_status_answers_meanwhile() {
    const NAME: &str = "sigstop-run";
    const TITLE: &str = "SIGSTOP at every system call of gpuslice run and its watcher";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    let calls = calls_of_a_run(&host);
    for at in spread(calls, injections(6)) {
        row.inject(format!("call {at} of {calls}"), || stopped_at(&host, at));
    }
    row.finish();
}

/// Whether this kernel keeps `pid_max` for each pid namespace (Linux 6.14). On others, a test would
/// change it for the whole machine.
fn has_own_pid_max() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 14)
}

fn reused(bench: &mut Bench) -> Outcome {
    let program = life::program("life_reuse").display().to_string();
    let script =
        "mount -t proc none /proc && echo 400 >/proc/sys/kernel/pid_max && exec \"$0\" \"$@\"";
    let run: Run = bench.slice.run("unshare");
    let run = run.args([
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
    ]);
    let run = run.args(["sh", "-c", script, &program, "strictly", &LIMIT.to_string()]);
    let answer = run.arg("1").answer();
    Judge::Strictly.answer(&answer)?;
    right(answer.stdout == "1\n", || {
        format!("the number did not come again: {answer:?}")
    })?;
    bench.is_clean()
}

#[test]
fn a_process_number_that_comes_again_inherits_no_memory() {
    const NAME: &str = "pid-reuse";
    const TITLE: &str = "A killed process's number is given to the next process of the slice";
    if !is_root() {
        return not_run(NAME, TITLE, "a pid namespace needs root");
    }
    if !has_own_pid_max() {
        return not_run(
            NAME,
            TITLE,
            "pid_max is the whole machine's before Linux 6.14",
        );
    }
    let mut row = Row::new(NAME, TITLE);
    let mut bench = Bench::new();
    for round in 0..injections(8) {
        row.inject(format!("round {round}"), || reused(&mut bench));
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}
