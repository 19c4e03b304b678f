//! Killed daemons and hooks: the OCI hook at every system call of createRuntime and poststop, the
//! watcher of a run, and gpusliced.
//! Touches: hosts of their own; traced programs. Needs root.

use super::bench::containers::{self, ContainerHost};
use super::bench::host::{EXECS, Host, PATIENCE};
use super::bench::life::{self, Judge};
use super::bench::trace::{Act, Call, Director, trace};
use super::row::{Fault, Outcome, Row, injections, is_root, not_run, right, spread};
use super::signals::Once;
use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Worker;
use std::time::{Duration, Instant};

const NEEDS_ROOT: &str = "mount namespaces need root";

struct Counter;

impl Director for Counter {
    fn call(&mut self, _: &Call) -> Act {
        Act::Go
    }
}

/// The number of system calls of the hook at a stage.
fn calls_of_a_hook(host: &ContainerHost, stage: &str) -> usize {
    let container = host.container("counted", "8GiB");
    if stage == "poststop" {
        assert_eq!(container.hook("createRuntime").end, "exit 0");
    }
    let traced = trace(
        container.hook_run(stage),
        1,
        containers::PATIENCE,
        &mut Counter,
    );
    assert_eq!(traced.end, "exit 0", "{traced:?}");
    container.ends().expect("a clean end");
    traced.calls
}

/// The hook is killed at a call. The runtime then gives the container up: it is killed, and after
/// createRuntime no poststop follows.
fn hook_killed_at(host: &ContainerHost, stage: &str, at: usize) -> Outcome {
    let mut killed = host.container("killed", "24GiB");
    if stage == "poststop" {
        let said = killed.hook("createRuntime");
        right(said.end == "exit 0", || format!("{said:?}"))?;
        killed.dies();
    }
    let mut once = Once::new(at, Act::Kill);
    let traced = trace(killed.hook_run(stage), 1, containers::PATIENCE, &mut once);
    if once.reached {
        right(["signal 9", "exit 0"].contains(&&*traced.end), || {
            format!("{traced:?}")
        })?;
    }
    killed.dies();
    host.is_as_new()
}

fn hook_is_killed(name: &'static str, title: &'static str, stage: &str, by_default: usize) {
    if !is_root() {
        return not_run(name, title, NEEDS_ROOT);
    }
    let mut row = Row::new(name, title);
    let host = ContainerHost::new();
    let calls = calls_of_a_hook(&host, stage);
    for at in spread(calls, injections(by_default)) {
        row.inject(format!("call {at} of {calls}"), || {
            hook_killed_at(&host, stage, at)
        });
    }
    row.finish();
}

#[test]
fn a_hook_killed_at_any_call_of_create_runtime_costs_nothing() {
    let title = "SIGKILL at every system call of the hook at createRuntime";
    hook_is_killed("sigkill-hook-create", title, "createRuntime", 40);
}

#[test]
fn a_hook_killed_at_any_call_of_poststop_costs_nothing() {
    let title = "SIGKILL at every system call of the hook at poststop";
    hook_is_killed("sigkill-hook-poststop", title, "poststop", 25);
}

/// A worker in a run of 8 GiB on this host, which holds 1 GiB.
fn worker(host: &Host) -> Worker {
    let program = gpuslice_suite::compile::worker().display().to_string();
    let mut worker = Worker::start(host.slice("8GiB", &[&program]));
    worker.must("start 0");
    worker.must(&format!("alloc 0 {GIB}"));
    worker
}

/// Asserts that a worker of [`worker`] still has its slice, and its limit.
fn is_in_its_slice(worker: &mut Worker) -> Outcome {
    let info = worker.info();
    right(info.total == 8 * GIB && info.free < 7 * GIB, || {
        format!("{info:?}")
    })?;
    let granted = worker.code(&format!("alloc 1 {}", info.free));
    let refused = worker.code("alloc 2 2097152");
    right((granted, refused) == (0, 2), || {
        format!("{granted} and {refused}")
    })?;
    worker.must("free 1");
    Ok(())
}

fn watcher_of(host: &Host) -> Outcome<i32> {
    let start = Instant::now();
    loop {
        let found = host
            .processes()
            .into_iter()
            .find(|(_, line)| line.contains("tidy-up"));
        if let Some((pid, _)) = found {
            return Ok(pid);
        }
        if start.elapsed() > PATIENCE {
            return Err(Fault::Wrong("the run has no watcher".into()));
        }
        std::thread::yield_now();
    }
}

fn kill(pid: i32) {
    // SAFETY: takes numbers only. The process is on the test's own host.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// The watcher is killed, at once or after the program has allocated; then the program ends, by
/// itself or killed too.
fn watcher_killed(host: &Host, round: usize) -> Outcome {
    let mut worker = worker(host);
    let watcher = watcher_of(host)?;
    kill(watcher);
    is_in_its_slice(&mut worker)?;
    let shown = host.status()?;
    right(shown.stdout.contains("8589934592"), || {
        format!("the slice is not shown: {shown:?}")
    })?;
    // Another run still respects the room of this one.
    let whole = host.slice("23GiB", &["true"]).answer();
    right(whole.end == "exit 125", || {
        format!("promised twice: {whole:?}")
    })?;
    match round % 2 {
        0 => worker.kill(),
        _ => drop(worker),
    }
    host.is_as_new()
}

#[test]
fn a_run_whose_watcher_was_killed_keeps_its_slice() {
    const NAME: &str = "killed-watcher";
    const TITLE: &str = "The watcher of a run is killed";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    for round in 0..injections(3) {
        row.inject(format!("round {round}"), || watcher_killed(&host, round));
    }
    row.finish();
}

/// Kills the watcher at a call. The watcher is the process of a run that begins a session.
struct KillWatcher {
    at: usize,
    watcher: Option<i32>,
    calls: usize,
    reached: bool,
}

impl Director for KillWatcher {
    fn call(&mut self, call: &Call) -> Act {
        if call.number == libc::SYS_setsid {
            self.watcher = Some(call.pid);
        }
        if self.reached || self.watcher != Some(call.pid) {
            return Act::Go;
        }
        self.reached = self.calls == self.at;
        self.calls += 1;
        if self.reached { Act::Kill } else { Act::Go }
    }
}

/// The watcher is killed while its run starts, or later. The run then goes on in its slice or says why
/// it does not start, and leaves nothing behind.
fn watcher_killed_at(host: &Host, at: usize, is_over: &mut bool) -> Outcome {
    let mut kill = KillWatcher {
        at,
        watcher: None,
        calls: 0,
        reached: false,
    };
    let traced = trace(host.life(Judge::Strictly), EXECS, PATIENCE, &mut kill);
    *is_over = !kill.reached;
    let is_told = traced.end == "exit 125" && traced.stderr.starts_with("gpuslice: ");
    right(traced.end == life::LIVED || is_told, || {
        format!("{traced:?}")
    })?;
    host.status()?;
    host.is_as_new()
}

#[test]
fn a_run_whose_watcher_is_killed_at_any_call_has_its_slice_or_a_reason() {
    const NAME: &str = "sigkill-watcher";
    const TITLE: &str = "SIGKILL at every system call of a run's watcher";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    // In order: the run talks to it during its first calls. The last case is beyond its last call.
    let mut is_over = false;
    for at in 0..injections(5) {
        if !is_over {
            row.inject(format!("call {at}"), || {
                watcher_killed_at(&host, at, &mut is_over)
            });
        }
    }
    row.finish();
}

/// gpusliced with all its parts, beside an own link named so.
fn gpusliced(host: &Host, guard: bool) -> Run {
    let config = "[metrics]\nlisten = \"/run/gpusliced.sock\"\n[page-cache]\npaths = [\"/mnt\"]\n\
                  [meminfo]\n[guard]\nmemory = \"warn\"\nbypass = \"warn\"\n";
    std::fs::write(host.path("/run/gpusliced.toml"), config).expect("a configuration");
    let run = host
        .run("bash")
        .args(["-c", "exec -a gpusliced \"$0\" \"$@\""])
        .arg(place::gpuslice());
    let run = run.args(["--config", "/run/gpusliced.toml"]);
    let run = run
        .env("GPUSLICE_SIM", "rtx3090")
        .env("LD_LIBRARY_PATH", place::sim());
    if guard { run.arg("--guard") } else { run }
}

/// Kills the daemon at a call; if it has not come to that call, after a second.
struct Kill {
    at: usize,
    reached: bool,
}

impl Director for Kill {
    fn call(&mut self, call: &Call) -> Act {
        self.reached |= call.index >= self.at;
        if self.reached { Act::Kill } else { Act::Go }
    }
}

fn daemon_killed(host: &Host, worker: &mut Worker, guard: bool, at: usize) -> Outcome {
    let mut kill = Kill { at, reached: false };
    let traced = trace(
        gpusliced(host, guard),
        EXECS + 1,
        Duration::from_secs(4),
        &mut kill,
    );
    // A daemon that waits for work makes no further calls, and was killed where it waited. If its
    // child is killed, it says so and ends, and systemd starts both again.
    let childs = "the process that writes the meminfo pages has ended";
    let is_childs = traced.end == "exit 1" && traced.stderr.contains(childs);
    right(traced.end == "signal 9" || is_childs, || {
        format!("the daemon ended by itself: {traced:?}")
    })?;
    is_in_its_slice(worker)
}

#[test]
fn a_killed_daemon_takes_no_slice_with_it_and_starts_again() {
    const NAME: &str = "killed-daemons";
    const TITLE: &str = "gpusliced and the guard are killed at any system call";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    let mut worker = worker(&host);
    let count = injections(6);
    for (number, at) in spread(1200, count).into_iter().enumerate() {
        let guard = number % 2 == 1;
        row.inject(format!("call {at}, guard: {guard}"), || {
            daemon_killed(&host, &mut worker, guard, at)
        });
    }
    row.check("after the last daemon", || {
        worker.kill();
        // A daemon keeps its state and the folders of its pages in /run/gpuslice.
        host.is_idle().and_then(|()| host.promises_all())
    });
    row.finish();
}
