//! Machines on which the GPU uses the host's memory.

use crate::probe::{GIB, MIB, Sim};
use std::fs;

const CONTEXT: u64 = 256 * MIB;

fn meminfo(sim: &Sim, name: &str) -> u64 {
    let text = fs::read_to_string(sim.state.path().join("meminfo")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn the_total_is_memtotal_and_free_is_memfree() {
    let sim = Sim::new("gb10");
    let mut process = sim.process_with_context();
    assert_eq!(
        process.info(),
        (103 * GIB + GIB / 4 - CONTEXT, 127_600_748 * 1024)
    );
    assert_eq!(
        process.info(),
        (meminfo(&sim, "MemFree"), meminfo(&sim, "MemTotal"))
    );
    assert_eq!(process.alloc("a", 10 * GIB), 0);
    assert_eq!(process.free(), meminfo(&sim, "MemFree"));
    assert_eq!(process.free(), 93 * GIB + GIB / 4 - CONTEXT);
}

#[test]
fn page_cache_is_not_free_but_can_be_allocated() {
    let sim = Sim::new("gb10");
    let mut process = sim.process_with_context();
    let idle = (meminfo(&sim, "MemFree"), meminfo(&sim, "MemAvailable"));
    sim.machine().change_cache("+60GiB").unwrap();
    assert_eq!(
        (process.free(), meminfo(&sim, "MemAvailable")),
        (idle.0 - 60 * GIB, idle.1)
    );
    assert_eq!(process.alloc("a", 100 * GIB), 0);
    assert_eq!(
        (process.free(), meminfo(&sim, "MemAvailable")),
        (0, idle.1 - 100 * GIB)
    );
    assert_eq!(process.alloc("b", 16 * GIB), 2);
    process.ok("cuMemFree_v2 $a");
    assert_eq!(
        process.free(),
        100 * GIB,
        "page cache that shrank does not come back"
    );
}

#[test]
fn host_programs_take_the_same_memory() {
    let sim = Sim::new("gb10");
    let mut process = sim.process_with_context();
    let before = process.free();
    sim.machine().change_host("+6GiB").unwrap();
    assert_eq!(before - process.free(), 6 * GIB);
    process.ok(&format!("cuMemHostAlloc @a {GIB} 0"));
    assert_eq!(before - process.free(), 7 * GIB, "pinned memory too");
    sim.machine().reset_host();
    process.ok("cuMemFreeHost $a");
    assert_eq!(process.free(), before);
}

#[test]
fn a_killed_process_gives_memory_back_to_the_host() {
    let sim = Sim::new("gb10");
    let (mut one, mut other) = (sim.process_with_context(), sim.process_with_context());
    let before = other.free();
    assert_eq!(one.alloc("a", 20 * GIB), 0);
    one.kill();
    assert_eq!(other.free(), before + CONTEXT);
    assert_eq!(meminfo(&sim, "MemFree"), before + CONTEXT);
}

#[test]
fn the_meminfo_file_never_changes_its_length() {
    let sim = Sim::new("gb10");
    let mut process = sim.process_with_context();
    let len = || fs::read(sim.state.path().join("meminfo")).unwrap().len();
    let before = len();
    assert_eq!(process.alloc("a", 115 * GIB), 0);
    assert_eq!(len(), before);
    let text = fs::read_to_string(sim.state.path().join("meminfo")).unwrap();
    let first: Vec<&str> = text
        .lines()
        .take(5)
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert_eq!(
        first,
        ["MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached"]
    );
}

#[test]
fn nvml_has_three_ways_of_not_answering_and_one_of_answering() {
    for (scenario, code, total, free) in [
        ("gb10", 3, 1, 3),
        ("gb10-nvml-answers", 0, 127_600_748 << 10, 103 * GIB),
        ("orin", 3, 1, 3),
        ("thor", 0, 0, 0),
        ("n1x", 0, 8128 * MIB, 7929 * MIB),
    ] {
        let sim = Sim::new(scenario);
        let mut process = sim.process_with_context();
        let (rc, [said_total, _, said_free, _]) = process.nvml(0);
        // Where NVML does not answer, the caller's variables keep their values.
        let expected = if code == 3 {
            (3, 1, 3)
        } else {
            (code, total, free)
        };
        assert_eq!((rc, said_total, said_free), expected, "{scenario}");
        assert_eq!(
            process.call("nvmlDeviceGetMemoryInfo $gpu @old"),
            code,
            "{scenario}"
        );
        process.ok("cuDeviceGetAttribute @integrated 18 0");
        assert_eq!(process.show_at("integrated", 4, 0), 1, "{scenario}");
    }
}

#[test]
fn on_gb10_nvml_still_knows_what_each_process_uses() {
    let sim = Sim::new("gb10");
    let mut process = sim.process_with_context();
    assert_eq!(process.alloc("a", GIB), 0);
    process.nvml(0);
    process.ok("put count 4:4");
    process.ok("nvmlDeviceGetComputeRunningProcesses_v3 $gpu @count @list");
    assert_eq!(process.show_at("count", 4, 0), 1);
    let seen = (process.show_at("list", 4, 0), process.show_at("list", 8, 8));
    assert_eq!(seen, (u64::from(process.pid()), GIB + CONTEXT));
}
