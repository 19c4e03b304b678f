//! The simulated machines, and the client on them.

use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;
use serde_json::{Value, json};

/// One machine: its scenario, its number of devices, and the sizes of the slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) scenario: &'static str,
    devices: usize,
    /// At least what the driver reports.
    whole: u64,
    small: u64,
    /// The uuid, where only CUDA knows that the device shares the host's memory.
    integrated: Option<&'static str>,
}

const fn card(scenario: &'static str, devices: usize, whole: u64, small: u64) -> Kind {
    Kind {
        scenario,
        devices,
        whole,
        small,
        integrated: None,
    }
}

pub(super) const MACHINES: [Kind; 7] = [
    card("rtx3090", 1, 24 * GIB, 2 * GIB),
    card("2xh200", 2, 141 * GIB, 3 * GIB),
    card("rtx3090@535", 1, 24 * GIB, GIB),
    card("rtx3090@550", 1, 24 * GIB, 3 * GIB),
    card("rtx3090@615", 1, 24 * GIB, 2 * GIB),
    card("h200-mig", 3, 141 * GIB, 2 * GIB),
    Kind {
        integrated: Some("GPU-b10aaaaa-4444-4555-8666-777788880000"),
        ..card("gb10", 1, 128 * GIB, 2 * GIB)
    },
];

/// The size of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// As large as the card: nothing is refused.
    Whole,
    /// Smaller than the card.
    Small,
}

/// A machine without a slice, and two of the same kind with one.
pub(super) struct Place {
    pub(super) kind: Kind,
    bare: Machine,
    whole: Counted,
    small: Counted,
}

impl Place {
    pub(super) fn new(kind: Kind) -> Place {
        Place {
            kind,
            bare: Machine::new(kind.scenario),
            whole: slice(kind, kind.whole),
            small: slice(kind, kind.small),
        }
    }

    pub(super) fn limit(&self, size: Size) -> u64 {
        match size {
            Size::Whole => self.kind.whole,
            Size::Small => self.kind.small,
        }
    }

    /// The log of sequences without a slice.
    pub(super) fn bare(&self, seed: u64, count: u64, length: u64, steps: &[u64]) -> String {
        let run = self.bare.place(Run::new(client()));
        log(run, seed, count, length, steps)
    }

    /// The log of the same sequences in a slice.
    pub(super) fn sliced(
        &self,
        size: Size,
        seed: u64,
        count: u64,
        length: u64,
        steps: &[u64],
    ) -> String {
        let slice = match size {
            Size::Whole => &self.whole,
            Size::Small => &self.small,
        };
        log(slice.run(client()), seed, count, length, steps)
    }
}

fn client() -> &'static str {
    env!("CARGO_BIN_EXE_client-random-calls")
}

fn log(run: Run, seed: u64, count: u64, length: u64, steps: &[u64]) -> String {
    let numbers = [seed, count, length].map(|number| number.to_string());
    let run = run.args(numbers).args(steps.iter().map(u64::to_string));
    run.answer().stdout
}

fn slice(kind: Kind, memory: u64) -> Counted {
    let keys: Value = match kind.integrated {
        None => json!({"memory": memory}),
        Some(uuid) => json!({
            "memory": memory,
            "devices": [{"uuid": uuid, "memory": memory, "integrated": true}],
        }),
    };
    Counted::of_devices(kind.scenario, &keys, kind.devices)
}
