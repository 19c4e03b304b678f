//! Compares the cost of the hook's whole life with stored numbers: instructions, system calls and
//! page faults of a container's start and end.
//! Touches: target/release/gpuslice-hook, mounts, ptrace. Needs root.

use crate::support::{Container, Host, is_root};
use gpuslice_bench::budgets::{Cost, compare};
use gpuslice_bench::start::{Start, instructions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shipped hook at a stage of a container, as a runtime starts it.
fn shipped(container: &Container<'_>, stage: &str) -> Command {
    let mut state = tempfile::tempfile().unwrap();
    state.write_all(container.state().as_bytes()).unwrap();
    std::io::Seek::rewind(&mut state).unwrap();
    let mut hook = Command::new(top().join("target/release/gpuslice-hook"));
    hook.env_clear()
        .arg("--root")
        .arg(container.host.path(""))
        .arg(stage)
        .stdin(state)
        .stdout(Stdio::null());
    hook
}

/// Runs both stages of one container by `run`, and checks that it had its slice in between.
fn life<T>(host: &Host, id: &str, run: impl Fn(Command) -> T) -> [T; 2] {
    let mut container = host.container(id);
    let start = run(shipped(&container, "createRuntime"));
    assert!(container.inside(".gpuslice/slice.json").exists());
    container.dies();
    let end = run(shipped(&container, "poststop"));
    let left = host.left();
    assert!(!left.iter().any(|name| name.contains(id)), "{left:?}");
    [start, end]
}

/// Adds the costs of both stages on a host. Single steps take seconds, so they are optional.
fn count(name: &str, host: &Host, with_steps: bool, costs: &mut Vec<Cost>) {
    // The first container of a host makes folders that later ones find.
    let _first = life(host, "zero", Start::count);
    let steps = with_steps.then(|| life(host, "one", instructions));
    let lives = ["two", "three", "four"].map(|id| life(host, id, Start::count));
    for (at, stage) in ["createRuntime", "poststop"].into_iter().enumerate() {
        let least = |of: fn(&Start) -> u64| lives.iter().map(|life| of(&life[at])).min().unwrap();
        let mut cost = |unit: &str, value, slack| {
            costs.push(Cost {
                name: format!("{stage}, {name}: {unit}"),
                value,
                slack,
                detail: String::new(),
            });
        };
        if let Some(steps) = steps {
            cost("instructions", steps[at], 0);
        }
        cost("system calls", least(|start| start.system_calls), 0);
        // How many pages of a file one fault maps depends on the page cache.
        cost("page faults", least(|start| start.page_faults), 30);
    }
}

#[test]
fn no_stage_of_the_hook_costs_more_than_stored() {
    if !is_root() {
        return;
    }
    // Where Rust's library for musl is absent, the hook is linked to glibc, with other costs.
    let musl = format!("target/{}-unknown-linux-musl/hook", std::env::consts::ARCH);
    if !top().join(musl).exists() {
        println!("not compared: the stored costs are those of a hook that is linked to musl");
        return;
    }
    let mut costs = Vec::new();
    count("a card", &Host::new(), true, &mut costs);
    count("unified memory", &Host::spark(), false, &mut costs);
    let file = format!("tests/bench/budgets/hook-{}.txt", std::env::consts::ARCH);
    compare(
        &top().join(file),
        "What gpuslice-hook costs at the start and the end of a container",
        &costs,
    );
}
