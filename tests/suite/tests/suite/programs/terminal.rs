//! nvtop, which draws on a terminal: it starts on every simulated machine, shows the slice, and
//! lists the slice's processes.
//! Touches: nvtop as Debian has it, in a terminal of its own (`tests/clients/python/terminal.py`).

use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;

/// Runs nvtop until it has drawn its last line, the line of keys, and returns the drawing.
fn drawn(run: impl FnOnce(&str) -> Run, before: &[&str]) -> String {
    let script = place::source("python/terminal.py").display().to_string();
    let run = run("python3").args([&*script, "Quit", "q"]).args(before);
    run.args(["nvtop", "--no-color"]).answer().clean()
}

/// The text in each memory bar: used and total.
fn bars(drawn: &str) -> Vec<&str> {
    let bars = drawn.split("MEM[").skip(1);
    let inside = bars.filter_map(|rest| rest.split(']').next());
    inside
        .map(|bar| bar.trim_start_matches(['|', ' ']))
        .collect()
}

#[test]
fn nvtop_shows_the_slice_on_every_machine() {
    for (machine, cards) in [
        ("rtx3090", 1),
        ("h200", 1),
        ("h200-mig", 1),
        ("gb10", 1),
        ("orin", 1),
        ("thor", 1),
        ("n1x", 1),
        ("2xh200", 2),
    ] {
        let gpuslice = place::gpuslice().display().to_string();
        let words = [
            &*gpuslice, "run", "--sim", machine, "--memory", "4GiB", "--",
        ];
        let said = drawn(|program| Run::new(program), &words);
        assert_eq!(bars(&said), vec!["0.000Gi/4.000Gi"; cards], "{machine}");
    }
    // Without a slice, nvtop shows the card as it is.
    let machine = Machine::new("rtx3090");
    let said = drawn(|program| machine.place(Run::new(program)), &[]);
    assert_eq!(bars(&said), ["0.309Gi/24.000Gi"], "{said}");
}

#[test]
fn nvtop_in_a_slice_of_unified_memory_lists_who_holds_what() {
    let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
    let device = serde_json::json!({"uuid": uuid, "memory": 40 * GIB, "integrated": true});
    let slice = Counted::with("gb10", &serde_json::json!({"devices": [device]}));
    let neighbour = slice.neighbour();
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {GIB}"));
    let said = drawn(|program| slice.run(program), &[]);
    // The worker holds one gibibyte and a context of 256 MiB.
    assert_eq!(bars(&said), ["1.250Gi/40.000Gi"], "{said}");
    let lists = |pid: u32| said.contains(&format!(" {pid} "));
    assert!(lists(worker.pid()) && said.contains("1280MiB"), "{said}");
    assert!(!lists(neighbour.pid()), "{said}");
}
