//! Defines the option for the behaviour when a unified-memory host runs short of memory.
//! Touches: its arguments.

use clap::ValueEnum;
use gpuslice_config::slice::Pressure;

/// `--pressure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PressureChoice {
    /// Refuses.
    Refuse,
    /// Asks for what is only kept.
    Release,
}

impl From<PressureChoice> for Pressure {
    fn from(choice: PressureChoice) -> Pressure {
        match choice {
            PressureChoice::Refuse => Pressure::Refuse,
            PressureChoice::Release => Pressure::Release,
        }
    }
}
