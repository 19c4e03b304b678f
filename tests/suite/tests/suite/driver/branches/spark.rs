//! The public record shows two NVMLs of the DGX Spark: one returns NOT_SUPPORTED, the other reports
//! MemTotal as the total.

use gpuslice_sim_machine::Machine as Simulated;
use gpuslice_suite::compile;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, write};
use gpuslice_suite::worker::{Counted, Said, Worker};
use serde_json::json;

const UUID: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";
const TOTAL: u64 = 127_600_748 << 10;
const LIMIT: u64 = 40 * GIB;
const CONTEXT: u64 = 256 << 20;
const NOT_SUPPORTED: i64 = 3;

/// A bare worker on the machine, with a context.
fn bare(machine: &Machine) -> Worker {
    let mut worker = Worker::start(machine.place(Run::new(compile::worker())));
    worker.must("start 0");
    worker
}

#[test]
fn without_the_library_nvml_returns_the_recorded_answers() {
    for branch in ["", "@580", "@615"] {
        let machine = Machine::new(&format!("gb10{branch}"));
        let answer = bare(&machine).ask("nvml");
        assert_eq!(answer.first(), Some(&NOT_SUPPORTED), "{branch}");

        let machine = Machine::new(&format!("gb10-nvml-answers{branch}"));
        let mut worker = bare(&machine);
        let Said { total, free } = worker.info();
        assert_eq!(total, TOTAL);
        assert_eq!(worker.nvml(), [free, TOTAL, TOTAL - free], "{branch}");
    }
}

#[test]
fn in_a_slice_both_sparks_give_the_one_answer() {
    for scenario in [
        "gb10",
        "gb10-nvml-answers",
        "gb10@615",
        "gb10-nvml-answers@615",
    ] {
        let device = json!({"uuid": UUID, "memory": LIMIT, "integrated": true});
        let slice = Counted::with(scenario, &json!({"devices": [device]}));
        let mut worker = slice.worker();
        for cache in ["+0", "+60GiB"] {
            slice.simulator(&["cache", cache]);
            let free = LIMIT - CONTEXT;
            assert_eq!(worker.info(), Said { total: LIMIT, free }, "{scenario}");
            assert_eq!(
                worker.nvml(),
                [free, LIMIT, CONTEXT],
                "{scenario}, cache {cache}"
            );
        }
        worker.must(&format!("alloc 0 {}", 20 * GIB));
        let free = LIMIT - CONTEXT - 20 * GIB;
        assert_eq!(worker.nvml(), [free, LIMIT, LIMIT - free], "{scenario}");
    }
}

#[test]
fn without_a_slice_the_library_gives_nvml_cudas_answer_on_both() {
    for scenario in ["gb10", "gb10-nvml-answers"] {
        let machine = Machine::new(scenario);
        let state = machine.state();
        let simulated = Simulated::start(Some(scenario), Some(&state), "").unwrap();
        let file = machine.folder().join("slice.json");
        let meminfo = state.join("meminfo").display().to_string();
        write(
            &file,
            json!({"version": 1, "meminfo": meminfo})
                .to_string()
                .as_bytes(),
        );
        let run = machine.place(Run::new(compile::worker())).with_shim();
        let mut worker = Worker::start(run.slice(&file));
        worker.must("start 0");
        let host = simulated.truth().host.unwrap();
        let total = gpuslice_config::words::units::Bytes::new(host.mem_total);
        let reserve = gpuslice_config::slice::host_reserve::default_reserve(total).get();
        let free = host.mem_available - reserve;
        let said = worker.info();
        assert_eq!(said, Said { total: TOTAL, free }, "{scenario}");
        assert_eq!(worker.nvml(), [free, TOTAL, TOTAL - free], "{scenario}");
    }
}
