//! What `gpuslice top` costs: CPU time and memory.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "numbers of a test, which it prints"
)]

use super::session::{HERE, Session, top};
use crate::support::machine::{Machine, end};
use crate::support::member::Member;
use crate::support::start;
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Starts three more processes, and waits for the end of its standard input.
const WAITS: &str = "for one in 1 2 3; do sleep 1000 & all=\"$all $!\"; done
echo $GPUSLICE_CONFIG; read line; kill $all";

/// Returns the CPU time of a process and of its children that have ended.
fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<u64> = fields
        .split(' ')
        .map(|one| one.parse().unwrap_or(0))
        .collect();
    let ticks: u64 = fields[11..15].iter().sum();
    Duration::from_millis(ticks * 10)
}

fn memory(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Starts slices with four processes each and memory in use, and measures `top`.
fn measure(slices: usize, period: Duration) -> (Duration, u64, u64) {
    let machine = Machine::new(&HERE, "rtx3090");
    let started: Vec<(Child, Member)> = (0..slices)
        .map(|place| {
            let name = format!("--name=slice-{place:02}");
            let mut command = machine.run(&["--memory=256MiB", &name], WAITS);
            let (child, config) = start(command.stdin(Stdio::piped()));
            let member = Member::of(&config);
            member.take(Bytes::mib(16), Kind::Linear);
            (child, member)
        })
        .collect();
    let mut top = Session::start(&mut top(&machine.home, &[]), (120, 100));
    top.until("all slices are shown", |screen| {
        let rows = screen
            .lines()
            .filter(|line| line.contains("16.00 / 256.00 MiB"));
        rows.count() == slices
    });
    let before = cpu_time(top.pid());
    let start = Instant::now();
    // The screen is read meanwhile, so that top never waits for its terminal.
    top.until("the period is over", |_| start.elapsed() > period);
    let taken = cpu_time(top.pid()) - before;
    let pid = top.pid();
    let memory = (memory(pid, "VmRSS:"), memory(pid, "RssAnon:"));
    top.press("q");
    assert_eq!(top.end(), 0);
    started.into_iter().for_each(|(child, _)| end(child));
    (taken, memory.0, memory.1)
}

#[test]
fn eight_slices_take_little_memory_and_time() {
    let period = Duration::from_secs(12);
    let (taken, _, anonymous) = measure(8, period);
    // A test build on a busy machine is some times slower than the release (see the test below).
    assert!(taken < period / 5, "{taken:?} in {period:?}");
    assert!(anonymous <= 16 << 10, "{anonymous} KiB");
}

#[test]
#[ignore = "measures: cargo test --release -p gpuslice --test cli -- top::cost --ignored --nocapture"]
fn sixty_four_slices_with_256_processes_take_one_percent_of_a_core() {
    let period = Duration::from_secs(60);
    let (taken, resident, anonymous) = measure(64, period);
    println!(
        "top: {taken:?} of CPU time in {period:?}, {resident} KiB resident, {anonymous} KiB of it its own"
    );
    assert!(taken <= period / 100, "{taken:?}");
    assert!(resident <= 16 << 10, "{resident} KiB");
}
