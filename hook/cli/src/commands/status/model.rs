//! The data that `gpuslice status` shows about a slice. The JSON has these fields in this order.
//! Touches: nothing.

use super::containers::ContainerStatus;
use super::driver::Machine;
use super::users::User;
use crate::base::text;
use gpuslice_config::slice::DriverLimit;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::pod::Pod;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SliceStatus {
    /// The slice's name.
    pub(crate) name: String,
    /// The command's process, if it is still running.
    pub(crate) pid: Option<i32>,
    /// The containers of the slice; empty for a run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) containers: Vec<ContainerStatus>,
    /// The user who owns the slice; None in a container.
    pub(crate) user: Option<User>,
    /// The command, word by word; None if it has ended, or belongs to another user.
    pub(crate) command: Option<Vec<String>>,
    /// The start of the command, as RFC 3339 in UTC; None if unknown.
    pub(crate) started: Option<String>,
    /// The seconds since the start.
    pub(crate) age: Option<u64>,
    /// The machine on which it runs.
    pub(crate) machine: Machine,
    /// The mechanism that enforces the limit.
    pub(crate) fence: Fence,
    /// The slice file.
    #[serde(serialize_with = "text::serialize_path")]
    pub(crate) file: PathBuf,
    /// The reason why its programs do not load the library; the slice then limits nothing.
    pub(crate) no_slice: Option<String>,
    /// The ledger; None if no memory is counted.
    #[serde(serialize_with = "text::serialize_some_path")]
    pub(crate) ledger: Option<PathBuf>,
    /// Whether the ledger is sealed, so that no program can truncate it; None if unknown.
    pub(crate) sealed: Option<bool>,
    /// Whether requests over the limit are refused; None if the slice cannot be read.
    pub(crate) enforce: Option<bool>,
    /// The meaning of TOTAL; None if the slice cannot be read.
    pub(crate) total: Option<&'static str>,
    /// The number of allocations for which the ledger had no room.
    pub(crate) uncounted: Option<u64>,
    /// The error message about files that cannot be read.
    pub(crate) error: Option<String>,
    /// Whether the slice's files belong to another user and this user cannot read them.
    #[serde(skip)]
    pub(crate) is_private: bool,
    /// The slice's promise on a unified-memory machine.
    pub(crate) promise: Option<PromiseStatus>,
    /// The slice's share of each device.
    pub(crate) devices: Vec<DeviceStatus>,
    /// Its place in Kubernetes.
    #[serde(skip)]
    pub(crate) pod: Option<Pod>,
    /// The meminfo file that the slice names, if it belongs to this user.
    #[serde(skip)]
    pub(crate) meminfo: Option<PathBuf>,
    /// The host memory that counts as no part of the slice; None if the slice file sets none.
    #[serde(skip)]
    pub(crate) host_allowance: Option<Bytes>,
    /// How long ago the slice's meminfo page was written; None if it has no page.
    #[serde(skip)]
    pub(crate) page_age: Option<Duration>,
}

/// The mechanism that holds a slice's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fence {
    /// The driver refuses requests over the limit, of all processes in the slice's cgroup.
    Driver(DriverLimit),
    /// libgpuslice.so in each program refuses requests over the limit. A program can leave it.
    #[default]
    Preload,
    /// Requests are counted and not refused.
    Counted,
    /// Programs do not load the library: the limit is not in force.
    None,
    /// The slice cannot be read.
    Unknown,
}

impl Fence {
    /// Returns the fence as a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fence::Driver(_) => "driver",
            Fence::Preload => "preload",
            Fence::Counted => "counted",
            Fence::None => "none",
            Fence::Unknown => "unknown",
        }
    }

    /// Returns the fence with its meaning.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Fence::Driver(DriverLimit::Dmem) => "driver (dmem): limits every program of the slice",
            Fence::Driver(DriverLimit::Misc) => "driver (misc): limits every program of the slice",
            Fence::Preload => "preload: cooperative",
            Fence::Counted => "counted: nothing is refused",
            Fence::None => "none: the limit is not in force",
            Fence::Unknown => "unknown: the slice cannot be read",
        }
    }
}

impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl SliceStatus {
    /// Returns what enforces the limit of a slice that refuses: the driver, if it holds that of every
    /// device.
    pub(super) fn strongest_fence(&self) -> Fence {
        let limited = self.devices.iter().filter(|device| device.limit.is_some());
        let mut held = limited.map(|device| device.driver_limit);
        match held.next().flatten() {
            Some(first) if held.all(|other| other.is_some()) => Fence::Driver(first),
            _ => Fence::Preload,
        }
    }

    /// Returns the slice's name if its files cannot be read although they should be readable.
    pub(crate) fn unread(&self) -> Option<String> {
        let is_unread = self.error.is_some() && !self.is_private;
        is_unread.then(|| shown_name(&self.name, &self.file))
    }

    /// Checks whether a process is known to be in the slice.
    pub(crate) fn has(&self, pid: u32) -> bool {
        let mut first = self
            .containers
            .iter()
            .filter_map(ContainerStatus::live_pid)
            .chain(self.pid);
        first.any(|first| u32::try_from(first) == Ok(pid))
            || self.devices.iter().any(|device| {
                let held = device.processes.iter().map(|one| one.pid);
                let escaped = device.without_library.iter().map(|one| one.pid);
                held.chain(escaped).any(|one| one == pid)
            })
    }
}

/// Returns the name to show for a slice: its name, or its file if it has no name.
pub(crate) fn shown_name(name: &str, file: &Path) -> String {
    match name {
        "" => text::printable(&file.display().to_string()),
        name => text::printable(name),
    }
}

/// Returns the message about slices that could not be read; None if `names` is empty.
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

/// A slice's promise, and the memory that its host can still promise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PromiseStatus {
    /// The promise's file.
    #[serde(serialize_with = "text::serialize_path")]
    pub(crate) file: PathBuf,
    /// The promised memory.
    pub(crate) budget: u64,
    /// The part of it in use.
    pub(crate) spent: u64,
    /// The unused part.
    pub(crate) unused: u64,
    /// The memory available on the host.
    pub(crate) host_available: Option<u64>,
    /// The memory that the host can promise to another slice.
    pub(crate) host_left: Option<u64>,
}

/// A GPU or MIG instance, and the slices' share of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CardStatus {
    /// The GPU's index in nvidia-smi. A MIG instance has that of its GPU.
    pub(crate) index: u32,
    /// The device's uuid.
    pub(crate) device: String,
    /// Its name.
    pub(crate) name: String,
    /// The machine that has it.
    pub(crate) machine: Machine,
    /// The memory that programs can use in total; that of the host on unified memory.
    pub(crate) total: Option<u64>,
    /// The part of it in use by all programs: NVML's number; the host's on unified memory.
    pub(crate) used: Option<u64>,
    /// The part that the slices count.
    pub(crate) in_slices: u64,
    /// The part that no slice counts.
    pub(crate) outside_slices: Option<u64>,
    /// The sum of the slices' limits.
    pub(crate) limits_sum: u64,
    /// The memory that another slice can be given.
    pub(crate) left_to_give: Option<u64>,
    /// Whether it shares the host's memory.
    pub(crate) unified: bool,
    /// Whether it shares the host's memory, or the driver does not say.
    #[serde(skip)]
    pub(crate) may_be_unified: bool,
}

/// A slice's share of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DeviceStatus {
    /// The device's uuid; None for all devices that are not listed.
    pub(crate) device: Option<String>,
    /// Whether the device shares the host's memory, if known.
    #[serde(skip)]
    pub(crate) unified: Option<bool>,
    /// The memory that the slice may hold; None if it is not limited.
    pub(crate) limit: Option<u64>,
    /// The limit for programs that start now, if the slice file was edited since.
    pub(crate) pending_limit: Option<u64>,
    /// How the driver enforces the limit; None if the library does.
    pub(crate) driver_limit: Option<DriverLimit>,
    /// The headroom: the amount withheld from the reported total.
    pub(crate) headroom: u64,
    /// Whether the headroom was learned from earlier runs.
    pub(crate) headroom_learned: bool,
    /// The memory in use; None if no memory is counted, or the ledger cannot be read.
    pub(crate) used: Option<u64>,
    /// The unused part of the limit.
    pub(crate) left: Option<u64>,
    /// The memory that NVML reports for the slice's processes; None if it reports none.
    pub(crate) driver_used: Option<u64>,
    /// The memory in use by kind; None if unknown.
    pub(crate) by_kind: Option<Map<String, Value>>,
    /// The refused requests.
    pub(crate) refusals: Option<RefusalsShown>,
    /// The processes that hold the memory.
    pub(crate) processes: Vec<ProcessStatus>,
    /// Processes of the slice that hold device memory but have not loaded the library.
    pub(crate) without_library: Vec<Escaped>,
}

impl DeviceStatus {
    /// Returns the memory in use: by the ledger, or by NVML if the ledger is another user's.
    pub(crate) fn used_or_reported(&self) -> Option<u64> {
        self.used.or(self.driver_used)
    }
}

/// A process that holds device memory and is neither counted nor limited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Escaped {
    /// The process id in this pid namespace.
    pub(crate) pid: u32,
    /// The process name.
    pub(crate) name: Option<String>,
    /// The memory that NVML reports for it; None if NVML does not report it.
    pub(crate) used: Option<u64>,
}

/// The refused requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RefusalsShown {
    /// Their number.
    pub(crate) count: u64,
    /// The largest shortfall of a request.
    pub(crate) worst_short_by: u64,
}

/// A process's memory on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ProcessStatus {
    /// The process id in the process's own namespace.
    #[serde(skip)]
    pub(crate) number: u32,
    /// The process's slot in the ledger.
    #[serde(skip)]
    pub(crate) slot: usize,
    /// The process id in this pid namespace; in its own namespace if it is not visible here.
    pub(crate) pid: u32,
    /// The process name; None if the process is not visible here.
    pub(crate) name: Option<String>,
    /// The memory it holds.
    pub(crate) used: u64,
    /// The memory that NVML reports for the process; None if NVML does not report it.
    pub(crate) driver_used: Option<u64>,
    /// The memory it holds, by kind.
    pub(crate) by_kind: Map<String, Value>,
}
