//! What the pages of a node with many slices cost.

use super::{Host, Running};
use gpuslice_config::words::units::Bytes;
use std::fs;
use std::time::{Duration, Instant};

/// The processor time that a process has used.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u64 = [11, 12]
        .map(|field: usize| fields[field].parse::<u64>().unwrap())
        .iter()
        .sum();
    // Linux counts in hundredths of a second.
    Duration::from_millis(ticks.saturating_mul(10))
}

#[test]
#[ignore = "a minute with 64 slices, and a release build"]
fn sixty_four_pages_cost_a_small_part_of_a_core() {
    let mut host = Host::new();
    for slice in 0..64 {
        host.slice(&format!("s{slice}"), 1, true);
    }
    // What users run, not the build for tests.
    let released = crate::support::built().join("release/gpuslice");
    let daemon = Running(host.daemon(&released, &[]).spawn().unwrap());
    host.shows("s63", 1);
    for (what, changes) in [("idle", false), ("each slice allocates each second", true)] {
        let (before, start) = (processor_time(daemon.0.id()), Instant::now());
        while start.elapsed() < Duration::from_secs(30) {
            if changes {
                (0..64).for_each(|slice| host.allocate(slice, Bytes::mib(2)));
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        let used = processor_time(daemon.0.id()) - before;
        let share = used.as_secs_f64() / start.elapsed().as_secs_f64();
        eprintln!("{what}: {:.2} % of a core", share * 100.0);
        assert!(share < 0.10, "{what}: {share}");
    }
}
