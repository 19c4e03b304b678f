//! Contexts whose memory cannot be measured with NVML.

use gpuslice_suite::compile;
use gpuslice_suite::place;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};

const MIB: u64 = 1 << 20;

/// A worker of a slice that finds libcuda, but no libnvidia-ml: a container whose driver
/// capabilities are `compute` alone.
fn without_nvml(slice: &Counted) -> Worker {
    let folder = slice.machine().folder().join("compute");
    let driver = folder.join("libcuda.so.1");
    if !driver.exists() {
        std::fs::create_dir_all(&folder).expect("a folder");
        std::os::unix::fs::symlink(place::sim().join("libcuda.so.1"), driver).expect("a link");
    }
    let run = slice.run(compile::without_nvml());
    Worker::start(run.env("LD_LIBRARY_PATH", folder))
}

#[test]
fn a_context_is_counted_where_there_is_no_nvml() {
    for (scenario, context) in [("rtx3090", 254), ("h200", 520), ("gb10", 256)] {
        let slice = Counted::new(scenario, 1200 * MIB);
        let mut workers: Vec<Worker> = (0..3).map(|_| without_nvml(&slice)).collect();
        let room = 1200 / context;
        for (number, worker) in (1..).zip(&mut workers) {
            let expected = if number <= room { 0 } else { OUT_OF_MEMORY };
            assert_eq!(worker.code("start 0"), expected, "{scenario}, {number}");
        }
        let held = room.min(3) * context * MIB;
        assert!(
            slice.counted().abs_diff(held) <= 4 * MIB,
            "{scenario}: {}",
            slice.counted()
        );
        assert!(slice.held() <= 1200 * MIB, "{scenario}: {}", slice.held());
    }
}

#[test]
fn a_context_beside_a_neighbour_is_counted_where_there_is_no_nvml() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut neighbour = slice.neighbour();
    neighbour.must(&format!("alloc 0 {}", 4 * GIB));
    let mut worker = without_nvml(&slice);
    worker.must("start 0");
    assert_eq!(slice.counted(), 256 * MIB, "the usual size");
    drop(neighbour);
}

#[test]
fn another_process_with_our_pid_in_nvml_is_not_taken_for_us() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let run = slice.run(compile::worker());
    let mut worker = Worker::start(run.env("GPUSLICE_SIM_FAULTS", "other-pid"));
    worker.must("start 0");
    assert_eq!(slice.counted(), 254 * MIB);
}
