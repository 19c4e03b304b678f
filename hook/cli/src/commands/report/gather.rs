//! Collects the memory use of all slices at one moment.
//! Touches: everything `gpuslice status` touches; /proc; cgroups, by reading them.

use super::allowance::Allowance;
use super::host::{self, HostUse};
use crate::base::{host_files, text};
use crate::commands::status::containers::ContainerStatus;
use crate::commands::status::driver::Drivers;
use crate::commands::status::gather::gather;
use crate::commands::status::model::{DeviceStatus, Escaped, SliceStatus};
use crate::commands::status::process::{self, Processes, cgroup, processes_of};
use crate::commands::status::users::User;
use crate::slice::current as current_slice;
use gpuslice_config::host::meminfo::{self, HostMemory};
use gpuslice_host::base::paths::HostPaths;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The memory use of all slices and of the machine, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Report {
    /// The slices.
    pub(super) slices: Vec<SliceReport>,
    /// The machine on which the slices run.
    pub(super) machine: Option<MachineReport>,
}

/// A slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct SliceReport {
    /// The slice's name.
    pub(super) name: String,
    /// The command's process.
    pub(super) pid: Option<i32>,
    /// The user who owns the slice; None in a container.
    pub(super) user: Option<User>,
    /// The slice file.
    #[serde(serialize_with = "text::serialize_path")]
    pub(super) file: PathBuf,
    /// The reason why its programs do not load the library; the slice then limits nothing.
    pub(super) no_slice: Option<String>,
    /// The error message about files that cannot be read.
    pub(super) error: Option<String>,
    /// The slice's name if its files cannot be read although they should be readable.
    #[serde(skip)]
    pub(super) unread: Option<String>,
    /// The devices, with their limits and use.
    pub(super) devices: Vec<DeviceReport>,
    /// Its processes.
    pub(super) processes: Vec<ProcessReport>,
    /// Page cache that no process has mapped; None if the slice has no cgroup of its own.
    pub(super) page_cache_unmapped: Option<u64>,
}

/// A slice's share of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct DeviceReport {
    /// The device's uuid; None for all devices that are not listed.
    pub(super) device: Option<String>,
    /// Whether the device shares the host's memory, if known.
    pub(super) unified: Option<bool>,
    /// The limit.
    pub(super) limit: Option<u64>,
    /// The memory in use; None if no memory is counted, or the ledger cannot be read.
    pub(super) used: Option<u64>,
    /// The memory in use by kind; None if `used` is None.
    pub(super) by_kind: Option<Map<String, Value>>,
    /// Processes of the slice that hold device memory but have not loaded the library.
    pub(super) without_library: Vec<Escaped>,
    /// The number of refused allocations, for the plot.
    #[serde(skip)]
    pub(super) refused: u64,
}

/// A process of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ProcessReport {
    /// The process id in this pid namespace.
    pub(super) pid: u32,
    /// The process name; None if the process is not visible here.
    pub(super) name: Option<String>,
    /// Device memory by kind, summed over all devices; None if the ledger cannot be read.
    pub(super) device: Option<BTreeMap<String, u64>>,
    /// The sum of the device memory that NVML reports for the process; None if NVML reports none.
    pub(super) driver_used: Option<u64>,
    /// Host memory; None if the process is not visible here.
    pub(super) host: Option<HostUse>,
    /// The growth of its memory, in bytes per minute.
    pub(super) growth_per_minute: Option<Growth>,
}

/// The growth of a process's memory, in bytes per minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Growth {
    /// Its device memory.
    pub(super) device: Option<i64>,
    /// Its host memory, without page cache.
    pub(super) host: Option<i64>,
    /// The part of its host memory that malloc keeps after `free`.
    pub(super) kept: Option<i64>,
    /// The length of the measurement.
    pub(super) over_seconds: u64,
}

/// The machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct MachineReport {
    /// The total memory.
    pub(super) total: u64,
    /// The available memory.
    pub(super) available: u64,
    /// The memory that the slices shown here hold; None if it is unknown for one of them.
    pub(super) slices: Option<u64>,
    /// The remaining memory in use: that of the kernel, its drivers and all other programs.
    pub(super) unaccounted: Option<u64>,
    /// Page cache that can be evicted at once; it counts as available.
    pub(super) page_cache_clean: u64,
}

impl ProcessReport {
    /// Returns all its device memory; None if unknown.
    pub(super) fn on_device(&self) -> Option<u64> {
        let each = self.device.as_ref()?.values();
        Some(each.fold(0, |sum, bytes| sum.saturating_add(*bytes)))
    }

    /// Returns the memory of its contexts; None if unknown.
    pub(super) fn contexts(&self) -> Option<u64> {
        let held = self.device.as_ref()?.get("context");
        Some(held.copied().unwrap_or(0))
    }

    /// Returns its host memory without page cache; None if unknown.
    pub(super) fn on_host(&self) -> Option<u64> {
        self.host.map(|host| host.held())
    }
}

impl SliceReport {
    /// Returns the memory that the slice holds of the host's: its processes' host memory, and the
    /// memory on devices that share the host's.
    fn of_the_machine(&self) -> Option<u64> {
        let is_known =
            |device: &DeviceReport| device.unified == Some(false) || device.used.is_some();
        if self.unread.is_some() && (self.devices.is_empty() || !self.devices.iter().all(is_known))
        {
            return None;
        }
        let unified = self.devices.iter();
        let unified = unified.filter(|device| device.unified == Some(true));
        let device = unified.flat_map(|device| {
            let escaped = device.without_library.iter().filter_map(|one| one.used);
            device.used.into_iter().chain(escaped)
        });
        let host = self.processes.iter().filter_map(ProcessReport::on_host);
        Some(device.chain(host).fold(0, u64::saturating_add))
    }
}

/// Collects every slice that is visible here.
pub(super) fn report(drivers: &mut Drivers) -> Report {
    let processes = Processes::default();
    let mut report = Report::default();
    let mut named = None;
    let slices = gather(&HostPaths::default(), &processes, drivers);
    let count = slices.len();
    for status in slices {
        named = named.or(status.meminfo.clone());
        report.slices.push(slice_report(
            status,
            &processes,
            &mut Allowance::share_of(count),
        ));
    }
    let named = named.unwrap_or_else(|| PathBuf::from("/proc/meminfo"));
    let read = host_files::read_unhooked(&named).unwrap_or_default();
    let text = String::from_utf8_lossy(&read).into_owned();
    let host = meminfo::parse(text.as_bytes());
    report.machine = host.map(|host| machine(&host, &text, &report.slices));
    report
}

fn machine(host: &HostMemory, text: &str, slices: &[SliceReport]) -> MachineReport {
    let amount = |name| host::field(text, name).unwrap_or(0);
    let cached = amount("Cached").saturating_add(amount("Buffers"));
    let cannot_go = ["Shmem", "Dirty", "Writeback"].map(amount);
    let held = slices.iter().map(SliceReport::of_the_machine);
    let held: Option<Vec<u64>> = held.collect();
    let held = held.map(|held| held.into_iter().fold(0, u64::saturating_add));
    let in_use = host.total.minus(host.available).get();
    MachineReport {
        total: host.total.get(),
        available: host.available.get(),
        slices: held,
        unaccounted: held.map(|held| in_use.saturating_sub(held)),
        page_cache_clean: cannot_go.into_iter().fold(cached, u64::saturating_sub),
    }
}

fn slice_report(status: SliceStatus, all: &Processes, allowance: &mut Allowance) -> SliceReport {
    let unread = status.unread();
    let mut processes = holders(&status.devices);
    // If the ledger cannot be read, the device memory of the slice's processes is unknown.
    let is_known = unread.is_none() || status.devices.iter().all(|device| device.used.is_some());
    let is_known = is_known && !(unread.is_some() && status.devices.is_empty());
    let contained = status.containers.iter();
    let contained = contained.filter_map(ContainerStatus::live_pid);
    let contained = contained.flat_map(|pid| all.of_container(pid));
    let user = status.user.unwrap_or_else(User::own);
    for pid in others(&status.file, user.0, all)
        .into_iter()
        .chain(contained)
    {
        processes.entry(pid).or_insert_with(|| ProcessReport {
            pid,
            name: process::name(pid),
            device: is_known.then(BTreeMap::new),
            ..ProcessReport::default()
        });
    }
    let pids: Vec<u32> = processes.keys().copied().collect();
    let mut processes: Vec<ProcessReport> = processes.into_values().collect();
    for one in &mut processes {
        // A process id without a name belongs to another pid namespace. Here it may be another
        // process's id.
        one.host = one.name.as_ref().and_then(|_| host::of(one.pid, allowance));
    }
    processes.sort_by_key(|one| {
        let [device, host] = [one.on_device(), one.on_host()].map(Option::unwrap_or_default);
        let all = device.saturating_add(host);
        (std::cmp::Reverse(all), one.pid)
    });
    let devices = status.devices.into_iter().map(|device| DeviceReport {
        unified: device.unified,
        device: device.device,
        limit: device.limit,
        used: device.used,
        by_kind: device.by_kind,
        refused: device.refusals.map_or(0, |refusals| refusals.count),
        without_library: device.without_library,
    });
    SliceReport {
        devices: devices.collect(),
        page_cache_unmapped: unmapped(&pids, &processes),
        processes,
        name: status.name,
        pid: status.pid,
        user: status.user,
        no_slice: status.no_slice,
        file: status.file,
        error: status.error,
        unread,
    }
}

/// The kind of memory that NVML reports and no ledger counts.
const WITHOUT_LIBRARY: &str = "without library";

/// Returns the processes that hold device memory.
fn holders(devices: &[DeviceStatus]) -> BTreeMap<u32, ProcessReport> {
    let mut processes: BTreeMap<u32, ProcessReport> = BTreeMap::new();
    for held in devices.iter().flat_map(|device| &device.processes) {
        let one = processes.entry(held.pid).or_default();
        (one.pid, one.name) = (held.pid, held.name.clone());
        one.device.get_or_insert_default();
        for (kind, bytes) in &held.by_kind {
            let device = one.device.get_or_insert_default();
            let sum = device.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(bytes.as_u64().unwrap_or_default());
        }
        if let Some(driver_used) = held.driver_used {
            let sum = one.driver_used.get_or_insert(0);
            *sum = sum.saturating_add(driver_used);
        }
    }
    let mut unknown = BTreeSet::new();
    for escaped in devices.iter().flat_map(|device| &device.without_library) {
        let one = processes.entry(escaped.pid).or_default();
        (one.pid, one.name) = (escaped.pid, escaped.name.clone());
        let Some(used) = escaped.used else {
            unknown.insert(escaped.pid);
            continue;
        };
        let device = one.device.get_or_insert_default();
        let kind = device.entry(WITHOUT_LIBRARY.to_owned()).or_default();
        *kind = kind.saturating_add(used);
        one.driver_used = Some(one.driver_used.unwrap_or(0).saturating_add(used));
    }
    // If NVML does not report a process's memory, the sum is unknown.
    for one in processes
        .values_mut()
        .filter(|one| unknown.contains(&one.pid))
    {
        (one.device, one.driver_used) = (None, None);
    }
    processes
}

/// Returns the processes of a run, including those that its ledger does not list. In a container
/// with a slice, returns all its processes.
fn others(file: &Path, user: u32, processes: &Processes) -> Vec<u32> {
    let is_mounted = current_slice::mounted().is_some_and(|mounted| mounted == file);
    let found = match is_mounted {
        true => processes.all().keys().copied().collect(),
        false => processes.naming(file, user),
    };
    let own = std::process::id();
    found.into_iter().filter(|pid| *pid != own).collect()
}

/// Returns the page cache of the slice that none of its processes has mapped. It is measured in the
/// slice's cgroups. Returns None if one of them also has processes outside the slice.
fn unmapped(pids: &[u32], processes: &[ProcessReport]) -> Option<u64> {
    let cgroups: Option<BTreeSet<PathBuf>> = pids.iter().map(|pid| cgroup(*pid)).collect();
    let cgroups = cgroups.filter(|cgroups| !cgroups.is_empty())?;
    let mut files = 0u64;
    for folder in cgroups {
        if !processes_of(&folder)?.iter().all(|pid| pids.contains(pid)) {
            return None;
        }
        let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
        let amount = |name: &str| -> Option<u64> {
            let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
            line.strip_prefix(' ')?.parse().ok()
        };
        let own = amount("file")?.saturating_sub(amount("shmem").unwrap_or(0));
        files = files.saturating_add(own);
    }
    let mapped = processes.iter().filter_map(|one| one.host);
    let mapped = mapped.fold(0u64, |sum, host| sum.saturating_add(host.page_cache_mapped));
    Some(files.saturating_sub(mapped))
}
