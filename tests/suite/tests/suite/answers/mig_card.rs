//! In a slice of all GPUs, NVML's answer for a card that MIG has divided has the sum of its instances.
//! Touches: workers on a simulated H200 with three instances.

use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::worker::Worker;
use gpuslice_suite::{compile, place};
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
