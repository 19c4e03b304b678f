//! In a slice of all GPUs, NVML's answer for a card that MIG has divided has the sum of its instances.
//! Touches: workers on a simulated H200 with three instances.

use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::worker::{Counted, Worker};
use gpuslice_suite::{compile, place};
use serde_json::json;
use std::collections::BTreeMap;

const GIB: u64 = 1 << 30;

/// A worker of the run with this environment, on one instance of the card.
fn on_instance(environment: &BTreeMap<String, String>, instance: &str) -> Worker {
    let run = environment
        .iter()
        .fold(Run::new(compile::worker()), |run, (name, value)| {
            run.env(name, value)
        });
    let mut worker = Worker::start(run.env("CUDA_VISIBLE_DEVICES", instance));
    worker.must("start 0");
    worker
}

/// Only the first instance was added: a program that asks NVML for the card saw memory as free that
/// another instance of the slice held.
#[test]
fn a_card_reports_the_memory_of_all_its_instances() {
    let machine = Machine::new("h200-mig");
    let run = machine.place(Run::new(place::gpuslice()));
    let run = run.args(["run", "--sim", "h200-mig", "--memory", "8GiB", "--"]);
    let mut first = Worker::start(run.arg(compile::worker()));
    first.must("start 0");
    let text = std::fs::read_to_string(format!("/proc/{}/environ", first.pid())).unwrap();
    let environment: BTreeMap<String, String> = text
        .split('\0')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let before = first.nvml()[2];
    let mut second = on_instance(&environment, "MIG-b2222222-3333-5444-8555-666677770000");
    second.must(&format!("alloc 0 {GIB}"));
    let held = second.nvml()[2] - before;
    assert!(
        held > GIB,
        "the card shows {held} bytes of the second instance"
    );
    assert_eq!(first.nvml(), second.nvml());
    first.must(&format!("alloc 0 {GIB}"));
    assert_eq!(second.nvml()[2], before + held + GIB);
}

/// The list of the card was empty in a slice, and monitors show processes by it.
#[test]
fn a_card_lists_the_processes_of_all_its_instances() {
    for keys in [
        json!({"memory": 8 * GIB}),
        json!({"devices": [
            {"uuid": "MIG-a1111111-3333-5444-8555-666677770000", "memory": 8 * GIB},
            {"uuid": "MIG-b2222222-3333-5444-8555-666677770000", "memory": 8 * GIB},
        ], "memory": 8 * GIB}),
    ] {
        let slice = Counted::of_devices("h200-mig", &keys, 3);
        let mut first = slice.worker();
        first.must(&format!("alloc 0 {GIB}"));
        let second = slice.run(compile::worker());
        let second = second.env(
            "CUDA_VISIBLE_DEVICES",
            "MIG-b2222222-3333-5444-8555-666677770000",
        );
        let mut second = Worker::start(second);
        second.must("start 0");
        let held = |worker: &mut Worker| worker.nvml()[2].cast_signed();
        let (pids, used) = ([first.pid(), second.pid()].map(i64::from), held(&mut first));
        let [0, 2, listed @ ..] = &first.ask("listed 8")[..] else {
            panic!(
                "the list has not both processes: {:?}",
                first.ask("listed 8")
            );
        };
        let mut found = [listed[0], listed[2]];
        found.sort_unstable();
        assert!(pids.iter().all(|pid| found.contains(pid)), "{listed:?}");
        assert!(
            listed[1] + listed[3] >= GIB.cast_signed(),
            "{listed:?} of {used}"
        );
    }
}
