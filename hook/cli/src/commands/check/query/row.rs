//! Defines a row: a query and its answer, as the child sends it to the parent.
//! Touches: nothing.

use super::routes::Route;
use serde::{Deserialize, Serialize};

/// A function's answer about a device. A value that the function does not report is None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// The total memory.
    pub(crate) total: Option<u64>,
    /// The memory that can be allocated.
    pub(crate) free: Option<u64>,
    /// The used memory, by the vendor's own calculation.
    pub(crate) used: Option<u64>,
    /// The reserved memory that NVML counts separately (`nvmlMemory_v2_t`).
    pub(crate) reserved: Option<u64>,
    /// Whether the device shares the host's memory.
    pub(crate) integrated: Option<bool>,
}

/// One query and its answer: a line of `rows` in the JSON output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The device's uuid, in NVML's format; `*` if no device could be queried.
    pub(crate) device: String,
    /// The vendor's name of the function.
    pub(crate) api: String,
    /// The route by which the function was found.
    pub(crate) route: String,
    /// The answer.
    #[serde(flatten)]
    pub(crate) reading: Reading,
    /// The vendor's name of the error, if the function failed.
    pub(crate) error: Option<String>,
}

impl Row {
    /// Checks whether the answer is another API's than CUDA's and NVML's.
    pub(crate) fn is_of_other_api(&self) -> bool {
        Route::parse(&self.route).is_ok_and(Route::is_other_api)
    }
}

/// A query that was not made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skipped {
    /// The vendor's name of the function; `*` for the whole route.
    pub(crate) api: String,
    /// The route by which the function would have been found.
    pub(crate) route: String,
    /// The reason why the query was not made.
    pub(crate) why: String,
}

/// A device on which a route could not create a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NoContext {
    /// The device's uuid.
    pub(crate) device: String,
    /// The route.
    pub(crate) route: String,
    /// The call that failed, and the vendor's name of its error: `call: ERROR`.
    pub(crate) why: String,
    /// The functions that could not be queried.
    pub(crate) apis: Vec<String>,
}

/// An event that a child reports, as one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The next step. If no event follows, the child crashed or hung in this step.
    Step(String),
    /// The result of loading a driver library.
    Library {
        /// The file name.
        name: String,
        /// The error; None if the library is loaded.
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
    /// A GPU that MIG divides; a container is given its instances.
    Parent(String),
    /// An answer.
    Row {
        /// The answer.
        row: Row,
        /// The `free` that the yardstick reported immediately before and after the query.
        beside: Option<u64>,
        /// Whether the numbers stayed constant during the query.
        settled: bool,
    },
    /// The route cannot query this function: the function is not found, or the driver cannot be
    /// initialised. Whether that is a disagreement depends on the other routes.
    Unanswered {
        /// The function.
        api: String,
        /// The route.
        route: String,
        /// The reason.
        why: String,
    },
    /// A query that was not made.
    Skipped(Skipped),
    /// No context can be created on a device, so some functions cannot be queried.
    NoContext(NoContext),
    /// The child has reported everything.
    Done,
}
