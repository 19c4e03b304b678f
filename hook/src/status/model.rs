//! The data that `gpuslice status` shows of a slice. The JSON has these fields in this order.
//! Touches: nothing.

use super::containers::ContainerStatus;
use super::users::User;
use crate::text;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SliceStatus {
    /// The slice's name.
    pub(crate) name: String,
    /// The command's process, where it is still there.
    pub(crate) pid: Option<i32>,
    /// The containers that have it; none for a run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) containers: Vec<ContainerStatus>,
    /// The user whose slice it is; None in a container.
    pub(crate) user: Option<User>,
    /// The slice file.
    #[serde(serialize_with = "text::serialize_path")]
    pub(crate) file: PathBuf,
    /// Why its programs do not load the library: nothing is limited then.
    pub(crate) no_slice: Option<String>,
    /// Its ledger; None where nothing is counted.
    #[serde(serialize_with = "text::serialize_some_path")]
    pub(crate) ledger: Option<PathBuf>,
    /// Whether the ledger is sealed, so that nobody can cut it short; None where that is unknown.
    pub(crate) sealed: Option<bool>,
    /// Whether what is over the limit is refused.
    pub(crate) enforce: bool,
    /// The meaning of TOTAL.
    pub(crate) total: &'static str,
    /// Allocations that the ledger had no room for.
    pub(crate) uncounted: Option<u64>,
    /// What cannot be read.
    pub(crate) error: Option<String>,
    /// Whether that is another user's, and not for this user to read.
    #[serde(skip)]
    pub(crate) is_private: bool,
    /// The slice's promise on a unified-memory machine.
    pub(crate) promise: Option<PromiseStatus>,
    /// The slice's share of each device.
    pub(crate) devices: Vec<DeviceStatus>,
    /// The meminfo that it names, where it is this user's.
    #[serde(skip)]
    pub(crate) meminfo: Option<PathBuf>,
}

impl SliceStatus {
    /// What it is called where it should be read and cannot be.
    pub(crate) fn unread(&self) -> Option<String> {
        let is_unread = self.error.is_some() && !self.is_private;
        is_unread.then(|| shown_name(&self.name, &self.file))
    }

    /// Whether a process is known to be in it.
    pub(super) fn has(&self, pid: u32) -> bool {
        let mut first = self
            .containers
            .iter()
            .map(|container| container.pid)
            .chain(self.pid);
        first.any(|first| u32::try_from(first) == Ok(pid))
            || self.devices.iter().any(|device| {
                let held = device.processes.iter().map(|one| one.pid);
                let escaped = device.without_library.iter().map(|one| one.pid);
                held.chain(escaped).any(|one| one == pid)
            })
    }
}

/// What people call a slice: its name, or its file where it has none.
pub(crate) fn shown_name(name: &str, file: &Path) -> String {
    match name {
        "" => text::printable(&file.display().to_string()),
        name => text::printable(name),
    }
}

/// Says which slices could not be read; None where all could.
pub(crate) fn not_read(names: &[String]) -> Option<String> {
    match names {
        [] => None,
        [name] => Some(format!("slice {name} could not be read")),
        names => Some(format!(
            "{} slices could not be read: {}",
            names.len(),
            names.join(", ")
        )),
    }
}

/// What a slice was promised, and what its host can still promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PromiseStatus {
    /// Its file.
    #[serde(serialize_with = "text::serialize_path")]
    pub(crate) file: PathBuf,
    /// What was promised.
    pub(crate) budget: u64,
    /// What of it is spent.
    pub(crate) spent: u64,
    /// The rest.
    pub(crate) unused: u64,
    /// What is available on the host.
    pub(crate) host_available: Option<u64>,
    /// What the host can promise to another slice.
    pub(crate) host_left: Option<u64>,
}

/// What a slice has of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DeviceStatus {
    /// Its uuid; None for all that are not listed.
    pub(crate) device: Option<String>,
    /// Whether it shares the host's memory, where that is known.
    #[serde(skip)]
    pub(crate) unified: Option<bool>,
    /// The memory that the slice may hold; None if it is not limited.
    pub(crate) limit: Option<u64>,
    /// The limit of programs that start now, where the slice file was edited since.
    pub(crate) pending_limit: Option<u64>,
    /// The headroom: the amount by which less is shown.
    pub(crate) headroom: u64,
    /// Whether the headroom was learned from earlier runs.
    pub(crate) headroom_learned: bool,
    /// What is held; None where nothing is counted, or the ledger cannot be read.
    pub(crate) used: Option<u64>,
    /// The rest of the limit.
    pub(crate) left: Option<u64>,
    /// What is held, by kind; None where that is not known.
    pub(crate) by_kind: Option<Map<String, Value>>,
    /// What was refused.
    pub(crate) refusals: Option<RefusalsShown>,
    /// The processes that hold the memory.
    pub(crate) processes: Vec<ProcessStatus>,
    /// The processes of the slice that hold device memory and have not loaded the library.
    pub(crate) without_library: Vec<Escaped>,
}

/// A process that holds device memory and is neither counted nor limited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Escaped {
    /// Its number here.
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) name: Option<String>,
    /// What NVML says that it holds; None where it does not say.
    pub(crate) used: Option<u64>,
}

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RefusalsShown {
    /// How often.
    pub(crate) count: u64,
    /// The most that a request was short by.
    pub(crate) worst_short_by: u64,
}

/// What a process holds of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProcessStatus {
    /// Its number here; that in its own pid namespace when it cannot be seen from here.
    pub(crate) pid: u32,
    /// What it is called; None when it cannot be seen from here.
    pub(crate) name: Option<String>,
    /// What it holds.
    pub(crate) used: u64,
    /// The memory that NVML reports for the process; None if NVML does not report it.
    pub(crate) driver_used: Option<u64>,
    /// What it holds, by kind.
    pub(crate) by_kind: Map<String, Value>,
}
