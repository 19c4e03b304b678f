//! What the guard costs a node with many slices.

use super::{Guard, HERE, holder};
use crate::support::machine::Machine;
use crate::support::spawn;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The processor time of a process, of its children that have ended, and of those that have not.
fn processor_time(pid: u32) -> Duration {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_threads =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut children: Vec<u32> = children
        .into_iter()
        .chain(of_threads)
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect();
    children.sort_unstable();
    children.dedup();
    let own = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = own.rsplit_once(')').map_or(Vec::new(), |(_, fields)| {
        fields.split_whitespace().collect()
    });
    let ticks: u64 = fields
        .get(11..15)
        .unwrap_or_default()
        .iter()
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    // Linux counts in hundredths of a second.
    let own = Duration::from_millis(ticks.saturating_mul(10));
    children
        .into_iter()
        .map(processor_time)
        .fold(own, Duration::saturating_add)
}

/// Starts slices with four processes each, which hold memory of a GPU.
fn slices(machine: &Machine, count: usize, holder: &Path) -> Vec<Child> {
    let script = "for turn in 1 2 3 4; do \"$0\" 33554432 <&3 & done 3<&0; wait";
    let mut runs = Vec::new();
    for slice in 0..count {
        let name = format!("--name=s{slice}");
        let options = ["--device=0=4GiB", &name, "--overcommit"];
        let holder = holder.to_str().unwrap();
        let mut command = machine.run_command(&options, &["sh", "-c", script, holder]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = spawn(&mut command);
        let out = BufReader::new(run.stdout.as_mut().unwrap());
        assert_eq!(out.lines().take(4).map_while(Result::ok).count(), 4);
        runs.push(run);
    }
    runs
}

/// The part of a core that a guard of 64 slices and 256 processes uses for a minute, on a host with
/// this meminfo; and what it prints.
fn share(config: &str, meminfo: &Path) -> (f64, Vec<String>) {
    let (_folder, holder) = holder();
    let machine = Machine::new(&HERE, "2xh200");
    let mut runs = slices(&machine, 64, &holder);
    // The release build is measured, because users run it.
    let guard = Guard::released(&machine, config, meminfo);
    guard.until("compares what the driver reports");
    std::thread::sleep(Duration::from_secs(5));
    let (before, start) = (processor_time(guard.process.id()), Instant::now());
    let lines = guard.lines_of(Duration::from_secs(60));
    let used = processor_time(guard.process.id()).saturating_sub(before);
    let share = used.as_secs_f64() / start.elapsed().as_secs_f64();
    eprintln!("{used:?} in a minute, {:.3} % of a core", share * 100.0);
    for run in &mut runs {
        drop(run.stdin.take());
    }
    for run in &mut runs {
        run.wait().unwrap();
    }
    (share, lines)
}

#[test]
#[ignore = "make guard: a minute with 64 slices and 256 processes"]
fn near_the_reserve_a_snapshot_each_second_costs_a_small_part_of_a_core() {
    let folder = tempfile::tempdir().unwrap();
    let meminfo = folder.path().join("meminfo");
    let text =
        "MemTotal:       67108864 kB\nMemFree:         4000000 kB\nMemAvailable:    4000000 kB\n";
    fs::write(&meminfo, text).unwrap();
    let config = "[guard]\nmemory = \"warn\"\nreserve = \"4GiB\"\n";
    let (share, lines) = share(config, &meminfo);
    assert!(share <= 0.05, "{share}");
    assert!(
        lines.iter().any(|line| line.contains("memory")),
        "{lines:?}"
    );
}

#[test]
#[ignore = "make guard: a minute with 64 slices and 256 processes"]
fn sixty_four_slices_cost_two_thousandths_of_a_core() {
    let config = "[guard]\nmemory = \"act\"\n";
    let (share, lines) = share(config, Path::new("/proc/meminfo"));
    assert_eq!(lines, Vec::<String>::new());
    assert!(share <= 0.002, "{share}");
}
