//! The first line of a run's history.
//! Touches: nothing.

use serde::{Deserialize, Serialize};

/// A run, as its history begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunStart {
    /// The version of the history's format.
    pub(crate) schema: u64,
    /// The slice's name.
    pub(crate) name: String,
    /// The process of the command.
    pub(crate) pid: i32,
    /// The user's name.
    pub(crate) user: String,
    /// The time of the start.
    pub(crate) started: String,
    /// Whether the GPUs are simulated.
    #[serde(default)]
    pub(crate) simulated: bool,
    /// Whether requests over the limit are refused. If not, the ledger only counts them.
    #[serde(default = "enforced")]
    pub(crate) enforce: bool,
    /// The devices, in the order of the amounts in the history's points.
    pub(crate) devices: Vec<LimitedDevice>,
}

/// A history of an earlier version, which recorded nothing else.
const fn enforced() -> bool {
    true
}

/// A device of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitedDevice {
    /// Its uuid.
    pub(crate) device: String,
    /// Its index in nvidia-smi.
    pub(crate) index: u32,
    /// The name of the GPU.
    pub(crate) name: String,
    /// The slice's limit: at the start or, once the run has been resized, the last one.
    pub(crate) limit: u64,
}
