//! What is known of the slices that are running.
//! Touches: the registry, slice files, ledgers and promises (by reading), /proc.

use super::containers::{self, ContainerStatus};
use super::process::{self, FileId, Processes, Seen};
use crate::admission::Room;
use crate::promise::{self, Promises};
use crate::registry::{self, Entry};
use crate::{environment, learned, slice_file, slice_ledger};
use gpuslice_config::device::DeviceUuid;
use gpuslice_config::ledger::{Kind, MAX_SIZE, Record, Refusals, Snapshot};
use gpuslice_config::slice::{Slice, Total};
use gpuslice_config::units::Bytes;
use gpuslice_config::{policy, promises};
use gpuslice_oci::place::Places;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SliceStatus {
    /// What people call it.
    pub(crate) name: String,
    /// The command's process, where it is still there.
    pub(crate) pid: Option<i32>,
    /// The containers that have it; none for a run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) containers: Vec<ContainerStatus>,
    /// The slice file.
    pub(crate) file: PathBuf,
    /// Its ledger; None where nothing is counted.
    pub(crate) ledger: Option<PathBuf>,
    /// Whether what is over the limit is refused.
    pub(crate) enforce: bool,
    /// What TOTAL says.
    pub(crate) total: &'static str,
    /// Allocations that the ledger had no room for.
    pub(crate) uncounted: Option<u64>,
    /// What cannot be read.
    pub(crate) error: Option<String>,
    /// What it was promised of a unified-memory machine.
    pub(crate) promise: Option<PromiseStatus>,
    /// What it has of which device.
    pub(crate) devices: Vec<DeviceStatus>,
}

/// What a slice was promised, and what its host can still promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PromiseStatus {
    /// Its file.
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
    /// What may be held of it; None when that is not limited.
    pub(crate) limit: Option<u64>,
    /// How much less is shown.
    pub(crate) headroom: u64,
    /// Whether earlier runs have taught that.
    pub(crate) headroom_learned: bool,
    /// What is held.
    pub(crate) used: Option<u64>,
    /// What is left of the limit.
    pub(crate) left: Option<u64>,
    /// What is held, by kind.
    pub(crate) by_kind: Map<String, Value>,
    /// What was refused.
    pub(crate) refusals: Option<RefusalsShown>,
    /// Who holds it.
    pub(crate) processes: Vec<ProcessStatus>,
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
    /// That, by kind.
    pub(crate) by_kind: Map<String, Value>,
}

/// All slices that can be seen from here.
pub(crate) fn gather(places: &Places, processes: &Processes) -> Vec<SliceStatus> {
    let slice = |file: &Path, pid, there| slice(file, pid, there, processes);
    if let Some(mounted) = environment::mounted_slice() {
        return vec![slice(&mounted, None, None)];
    }
    let entries = registry::running();
    let pid = |entry: &Entry| {
        let pid = entry.pid?;
        Path::new(&format!("/proc/{pid}"))
            .exists()
            .then(|| pid.as_raw())
    };
    let runs = entries
        .iter()
        .map(|entry| slice(&entry.file, pid(entry), None));
    let (held, damaged) = containers::held(places);
    let of_containers = held.into_iter().map(|held| of_containers(held, processes));
    let unreadable = damaged.into_iter().map(|damaged| SliceStatus {
        error: Some(damaged.to_string()),
        name: damaged.slice,
        file: damaged.path,
        ..SliceStatus::default()
    });
    runs.chain(of_containers).chain(unreadable).collect()
}

fn of_containers(held: containers::Held, processes: &Processes) -> SliceStatus {
    let pid = held.containers.first().map(|container| container.pid);
    SliceStatus {
        containers: held.containers,
        ..slice(&held.file, pid, Some(&held.files), processes)
    }
}

/// `there` is where a container's files are, which its slice file names as they are seen inside.
fn slice(
    file: &Path,
    pid: Option<i32>,
    there: Option<&containers::Files>,
    processes: &Processes,
) -> SliceStatus {
    let mut status = SliceStatus {
        pid,
        file: file.to_owned(),
        ..SliceStatus::default()
    };
    let slice = match slice_file::read(file) {
        Ok(slice) => slice,
        Err(error) => {
            status.error = Some(format!("{:#}", anyhow::Error::new(error)));
            return status;
        }
    };
    status.name = slice.name.as_str().to_owned();
    status.enforce = slice.enforce;
    status.total = match slice.total {
        Total::Slice => "slice",
        Total::Device => "device",
    };
    status.ledger = match there {
        Some(there) => Some(there.ledger.clone()),
        None => slice_ledger::path(file, &slice),
    };
    let mut bytes = vec![0; MAX_SIZE];
    let read = status
        .ledger
        .as_deref()
        .map(|path| Snapshot::read(&slice_ledger::c_path(path), &mut bytes));
    let held = match read {
        None => None,
        Some(Ok(snapshot)) => {
            status.uncounted = Some(snapshot.uncounted());
            Some(Held::read(&snapshot, status.ledger.as_deref(), processes))
        }
        Some(Err(error)) => {
            status.error = Some(error.to_string());
            None
        }
    };
    let own = match there {
        Some(there) => there.promise.clone(),
        None => slice.promise.map(|path| PathBuf::from(path.as_str())),
    };
    status.promise = own.and_then(|own| promise(&slice, own));
    status.devices = devices(file, &slice, held.as_ref());
    status
}

fn promise(slice: &Slice, file: PathBuf) -> Option<PromiseStatus> {
    let folder = file.parent()?;
    let (_, id) = file.file_name()?.to_str()?.split_once('.')?;
    let held = promises::read_folder(folder).ok()?;
    let own = held.iter().find(|held| held.slice == id)?;
    let meminfo = slice.meminfo.as_ref();
    let meminfo = meminfo.map_or("/proc/meminfo", |path| path.as_str());
    let host = promise::host(Path::new(meminfo)).ok();
    let left = host.map(|host| {
        let reserve = slice.reserve;
        let reserve = reserve.unwrap_or(policy::default_reserve(host.total));
        let neighbours = Promises::in_folder(folder).standing();
        Room::on(&host, reserve, neighbours).left().get()
    });
    Some(PromiseStatus {
        budget: own.budget.get(),
        spent: own.budget.minus(own.unused).get(),
        unused: own.unused.get(),
        host_available: host.map(|host| host.available.get()),
        host_left: left,
        file,
    })
}

/// What a ledger says.
struct Held {
    records: Vec<(Record, Option<Seen>)>,
    refusals: BTreeMap<DeviceUuid, Refusals>,
}

impl Held {
    fn read(snapshot: &Snapshot<'_>, path: Option<&Path>, processes: &Processes) -> Held {
        let ledger = path.and_then(FileId::of);
        // Two containers of one slice may both have a process 1: each is named once.
        let mut taken = BTreeSet::new();
        let mut seen = |record: &Record| {
            let named = processes.find(record.pid, ledger.as_ref()?);
            let mut free = named.into_iter();
            let pid = free.find(|pid| taken.insert((record.device.map(|it| it.bytes), *pid)))?;
            let name = process::name(pid)?;
            Some(Seen { pid, name })
        };
        let alive = snapshot.slots().filter(|record| record.alive);
        let records = alive.map(|record| {
            let seen = seen(&record);
            (record, seen)
        });
        Held {
            records: records.collect(),
            refusals: snapshot.refusals().collect(),
        }
    }
}

/// The listed devices in their order, and then the others that are used.
fn devices(file: &Path, slice: &Slice, held: Option<&Held>) -> Vec<DeviceStatus> {
    let mut uuids: Vec<DeviceUuid> = slice.devices().map(|listed| listed.uuid).collect();
    let used = held.iter().flat_map(|held| {
        let held_on = held.records.iter().filter_map(|(record, _)| record.device);
        held_on.chain(held.refusals.keys().copied())
    });
    for uuid in used {
        if !uuids.contains(&uuid) {
            uuids.push(uuid);
        }
    }
    let mut devices: Vec<DeviceStatus> = uuids
        .into_iter()
        .map(|uuid| device(file, slice, uuid, held))
        .collect();
    if let (true, Some(memory)) = (devices.is_empty(), slice.memory) {
        devices.push(DeviceStatus {
            limit: Some(memory.get()),
            headroom: slice.headroom.get(),
            ..DeviceStatus::default()
        });
    }
    devices
}

fn device(file: &Path, slice: &Slice, uuid: DeviceUuid, held: Option<&Held>) -> DeviceStatus {
    let budget = slice.device(uuid);
    let mut status = DeviceStatus {
        device: Some(uuid.to_string()),
        limit: budget.map(|budget| budget.memory.get()),
        headroom: budget.map_or(0, |budget| budget.headroom.get()),
        headroom_learned: learned::is_learned(file, slice, uuid),
        ..DeviceStatus::default()
    };
    let Some(held) = held else {
        return status;
    };
    let own = held
        .records
        .iter()
        .filter(|(record, _)| record.device == Some(uuid));
    let (mut used, mut kinds) = (Bytes::ZERO, Kind::ALL.map(|kind| (kind, 0u64)));
    for (record, seen) in own {
        used = used.plus(Bytes::new(record.used));
        for ((_, sum), (_, part)) in kinds.iter_mut().zip(record.by_kind) {
            *sum = sum.saturating_add(part);
        }
        status.processes.push(ProcessStatus {
            pid: seen.as_ref().map_or(record.pid, |seen| seen.pid),
            name: seen.as_ref().map(|seen| seen.name.clone()),
            used: record.used,
            by_kind: by_kind(&record.by_kind),
        });
    }
    status
        .processes
        .sort_by_key(|process| (std::cmp::Reverse(process.used), process.pid));
    status.by_kind = by_kind(&kinds);
    status.used = Some(used.get());
    status.left = budget.map(|budget| budget.memory.minus(used).get());
    let refusals = held.refusals.get(&uuid).copied();
    status.refusals = Some(RefusalsShown {
        count: refusals.map_or(0, |refusals| refusals.count),
        worst_short_by: refusals.map_or(0, |refusals| refusals.regret.get()),
    });
    status
}

fn by_kind(kinds: &[(Kind, u64)]) -> Map<String, Value> {
    let held = kinds.iter().filter(|(_, bytes)| *bytes > 0);
    held.map(|(kind, bytes)| (kind.name().to_owned(), (*bytes).into()))
        .collect()
}
