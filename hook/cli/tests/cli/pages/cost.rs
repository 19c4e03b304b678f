//! The processor time that the pages of a node with many slices take.

use super::{Host, Running};
use crate::support::processor_time;
use gpuslice_config::words::units::Bytes;
use std::time::{Duration, Instant};

#[test]
#[ignore = "a minute with 64 slices, and a release build"]
fn sixty_four_pages_cost_a_small_part_of_a_core() {
    let mut host = Host::new();
    for slice in 0..64 {
        host.slice(&format!("s{slice}"), 1, true);
    }
    // The release build is measured, because users run it.
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
