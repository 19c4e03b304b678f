//! One row: a question and its answer, as the child sends it to the parent.
//! Touches: nothing.

use serde::{Deserialize, Serialize};

/// What a function said of a device. What it does not speak of is None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reading {
    /// The memory there is.
    pub(super) total: Option<u64>,
    /// The memory that can be had.
    pub(super) free: Option<u64>,
    /// The rest, in the vendor's own reckoning.
    pub(super) used: Option<u64>,
    /// What NVML counts separately (`nvmlMemory_v2_t`).
    pub(super) reserved: Option<u64>,
    /// Whether the device shares the host's memory.
    pub(super) integrated: Option<bool>,
}

/// One question and its answer: a line of `rows` in the JSON output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    /// The uuid, as NVML writes it; `*` where no device could be asked.
    pub(super) device: String,
    /// The vendor's name of the function.
    pub(super) api: String,
    /// How the function was found.
    pub(super) route: String,
    /// What it said.
    #[serde(flatten)]
    pub(super) reading: Reading,
    /// The vendor's name of the error, where it did not answer.
    pub(super) error: Option<String>,
}

/// A question that was not asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Skipped {
    /// The vendor's name of the function; `*` for the whole route.
    pub(super) api: String,
    /// How it would have been found.
    pub(super) route: String,
    /// Why it was not asked.
    pub(super) why: String,
}

/// A device on which a route could make no context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NoContext {
    /// The device's uuid.
    pub(super) device: String,
    /// The route.
    pub(super) route: String,
    /// The call that failed, and the vendor's name of its error: `call: ERROR`.
    pub(super) why: String,
    /// The functions that could not be asked.
    pub(super) apis: Vec<String>,
}

/// What a child tells, one line of JSON each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    /// What is done next: if nothing follows, it is what crashed or hung.
    Step(String),
    /// A driver library, and why it cannot be loaded.
    Library {
        /// The file name.
        name: String,
        /// None where it is loaded.
        error: Option<String>,
    },
    /// The library of gpuslice that is loaded into the child.
    Shim(Option<String>),
    /// A device that was found.
    Device {
        /// Its uuid.
        uuid: String,
        /// Its marketing name.
        name: String,
    },
    /// A MIG parent: a container is given its instances.
    Parent(String),
    /// An answer.
    Row {
        /// The answer.
        row: Row,
        /// The `free` that the yardstick told immediately before and after.
        beside: Option<u64>,
        /// Whether the numbers held still for so long.
        settled: bool,
    },
    /// The route does not get as far as asking this function: it is not found, or nothing can be
    /// initialised. Whether that is a disagreement depends on the other routes.
    Unanswered {
        /// The function.
        api: String,
        /// The route.
        route: String,
        /// Why.
        why: String,
    },
    /// A question that was not asked.
    Skipped(Skipped),
    /// No context can be made on a device, so that questions cannot be asked.
    NoContext(NoContext),
    /// All is said.
    Done,
}
