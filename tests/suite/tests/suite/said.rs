//! Runs `gpuslice check --json` and parses its output.
//! Touches: `gpuslice check`, on simulated machines.

use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Machine, Run};
use serde_json::Value;

/// The output of `gpuslice check`, as JSON.
pub(crate) struct Said {
    pub(crate) answer: Answer,
    pub(crate) json: Value,
}

impl Said {
    pub(crate) fn new(answer: Answer) -> Said {
        let json = serde_json::from_str(&answer.stdout)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {answer:?}"));
        Said { answer, json }
    }

    pub(crate) fn rows(&self, uuid: &str) -> Vec<&Value> {
        let rows = self.json["rows"].as_array().unwrap();
        rows.iter().filter(|row| row["device"] == uuid).collect()
    }

    pub(crate) fn disagreements(&self) -> Vec<&str> {
        let said = self.json["disagreements"].as_array().unwrap();
        said.iter().map(|said| said.as_str().unwrap()).collect()
    }
}

pub(crate) fn check(machine: &Machine, options: &[&str]) -> Run {
    let run = Run::new(place::gpuslice()).args(["check", "--json"]);
    // The loaders of Vulkan and OpenCL find the simulated drivers.
    let run = run
        .env("VK_ICD_FILENAMES", place::sim().join("nvidia_icd.json"))
        .env("OCL_ICD_VENDORS", place::sim().join("OpenCL/vendors"));
    machine.place(run).args(options)
}
