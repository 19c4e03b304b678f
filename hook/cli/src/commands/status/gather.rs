//! Collects the state of all running slices.
//! Touches: everything `users`, `containers`, `files`, `promised`, `process` and `driver` touch.

use super::containers;
use super::driver::{Drivers, Machine};
use super::files::{self, LedgerFigures};
use super::model::{DeviceStatus, Escaped, ProcessStatus, RefusalsShown, SliceStatus};
use super::process::{self, FileId, Processes, Seen, variable};
use super::promised::Promised;
use super::users::{self, User, with_rights_of};
use crate::runs::headroom_store;
use crate::slice::current as current_slice;
use gpuslice_config::ledger::{Kind, Record, Refusals};
use gpuslice_config::slice::{self, Slice, Total};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A running slice whose files have not been read yet.
#[derive(Debug)]
struct ListedSlice {
    file: PathBuf,
    /// The user; None in a container.
    user: Option<User>,
    pid: Option<i32>,
    container: Option<containers::ContainerSlice>,
}

impl ListedSlice {
    fn pid(&self) -> Option<u32> {
        u32::try_from(self.pid?).ok()
    }
}

/// One snapshot of this machine.
struct Look<'a> {
    processes: &'a Processes,
    drivers: &'a Drivers,
    promised: Promised,
}

/// Collects all slices that are visible here.
pub(crate) fn gather(
    places: &HostPaths,
    processes: &Processes,
    drivers: &mut Drivers,
) -> Vec<SliceStatus> {
    let (found, damaged) = find(places, processes);
    let machine = |found: &ListedSlice| match found.container {
        None => Machine::of(found.pid(), processes),
        Some(_) => Machine::Real,
    };
    let found: Vec<(ListedSlice, Machine)> = found
        .into_iter()
        .map(|found| {
            let machine = machine(&found);
            (found, machine)
        })
        .collect();
    // NVML is queried before the ledgers are read. The ledgers then already count all memory that
    // NVML reports, and possibly memory that NVML does not report yet.
    drivers.look(found.iter().map(|(_, machine)| machine.clone()).collect());
    let look = Look {
        processes,
        drivers,
        promised: Promised::default(),
    };
    let slices = found
        .into_iter()
        .map(|(found, machine)| look.slice(found, &machine));
    slices.chain(damaged).collect()
}

fn find(places: &HostPaths, processes: &Processes) -> (Vec<ListedSlice>, Vec<SliceStatus>) {
    if let Some(file) = current_slice::mounted() {
        let mounted = ListedSlice {
            file,
            user: None,
            pid: None,
            container: None,
        };
        return (vec![mounted], Vec::new());
    }
    let runs = users::runs(processes).into_iter().map(|run| ListedSlice {
        file: run.file,
        user: Some(run.user),
        pid: run.pid,
        container: None,
    });
    let (held, damaged, unlisted) = match containers::held(places) {
        Ok((held, damaged)) => (held, damaged, None),
        Err(error) => {
            let error = format!("{:#}", anyhow::Error::new(error));
            (Vec::new(), Vec::new(), Some(error))
        }
    };
    let unlisted = unlisted.map(|error| SliceStatus {
        error: Some(error),
        file: places.slices(),
        ..SliceStatus::default()
    });
    let of_containers = held.into_iter().map(|held| ListedSlice {
        file: held.file.clone(),
        user: Some(User(0)),
        pid: held.containers.first().map(|container| container.pid),
        container: Some(held),
    });
    let unreadable = damaged.into_iter().map(|damaged| SliceStatus {
        error: Some(damaged.to_string()),
        name: damaged.slice,
        file: damaged.path,
        ..SliceStatus::default()
    });
    let unreadable = unreadable.chain(unlisted);
    (runs.chain(of_containers).collect(), unreadable.collect())
}

/// A ledger's contents, and the processes that it names.
struct LedgerContents {
    records: Vec<(Record, Option<Seen>)>,
    refusals: BTreeMap<DeviceUuid, Refusals>,
    is_damaged: bool,
}

impl LedgerContents {
    fn new(
        figures: LedgerFigures,
        ledger: Option<&FileId>,
        processes: &Processes,
    ) -> LedgerContents {
        // Two containers of one slice may both have a process 1. Each process is listed only once.
        let mut taken = BTreeSet::new();
        let mut seen = |record: &Record| {
            let mut named = processes.find(record.pid, ledger?).into_iter();
            let pid = named.find(|pid| taken.insert((record.device.map(|it| it.bytes), *pid)))?;
            let name = process::name(pid)?;
            Some(Seen { pid, name })
        };
        let records = figures.records.into_iter().map(|record| {
            let seen = seen(&record);
            (record, seen)
        });
        LedgerContents {
            records: records.collect(),
            refusals: figures.refusals,
            is_damaged: figures.is_damaged,
        }
    }

    fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        let seen = self.records.iter().filter_map(|(_, seen)| seen.as_ref());
        seen.map(|seen| seen.pid)
    }
}

impl Look<'_> {
    fn slice(&self, found: ListedSlice, machine: &Machine) -> SliceStatus {
        let mut status = SliceStatus {
            pid: found.pid,
            user: found.user,
            file: found.file.clone(),
            ..SliceStatus::default()
        };
        let there = found.container.as_ref().map(|held| &held.files);
        if let Some(held) = &found.container {
            status.containers = held.containers.clone();
            status.no_slice = held.no_slice();
            status.sealed = held.sealed;
            if let Some(name) = &held.unmade {
                status.name.clone_from(name);
                return status;
            }
        }
        let rights = found.user.unwrap_or_else(User::own);
        let files = with_rights_of(rights, || files::read(&found.file, found.user, there));
        status.error = files.error;
        status.is_private = files.is_private;
        status.ledger = files.ledger;
        let Some(written) = files.slice else {
            return status;
        };
        let slice = self.in_force(&found).unwrap_or(written);
        status.name = slice.name.as_str().to_owned();
        let meminfo = slice.meminfo.filter(|_| rights == User::own());
        status.meminfo = meminfo.map(|path| PathBuf::from(path.as_str()));
        status.enforce = slice.enforce;
        status.total = match slice.total {
            Total::Slice => "slice",
            Total::Device => "device",
        };
        let held = files.figures.map(|figures| {
            status.uncounted = figures.uncounted;
            LedgerContents::new(figures, files.mapped.as_ref(), self.processes)
        });
        let promise = match there {
            Some(there) => there.promise.clone(),
            None => slice.promise.map(|path| PathBuf::from(path.as_str())),
        };
        status.promise = promise.and_then(|promise| {
            with_rights_of(rights, || self.promised.of(&slice, promise, rights))
        });
        status.devices = devices(&found.file, &slice, held.as_ref());
        for device in &mut status.devices {
            let uuid = device.device.as_deref().and_then(|uuid| uuid.parse().ok());
            let now = uuid.and_then(|uuid: DeviceUuid| written.device(uuid));
            let now = now.map(|budget| budget.memory.get());
            device.pending_limit = now.filter(|now| Some(*now) != device.limit);
        }
        self.compare(&found, machine, held.as_ref(), &mut status.devices);
        status
    }

    /// Returns the slice with which the run's processes were started, because the slice file may
    /// have been edited since.
    fn in_force(&self, found: &ListedSlice) -> Option<Slice> {
        let (user, None) = (found.user?, &found.container) else {
            return None;
        };
        let file = found.file.as_os_str().as_bytes();
        let command = found.pid().into_iter();
        let mut all = command.chain(self.processes.naming(&found.file, user.0));
        all.find_map(|pid| {
            let named = variable(pid, b"GPUSLICE_CONFIG=")?;
            let text = variable(pid, b"GPUSLICE_SLICE=").filter(|_| named == file)?;
            slice::parse(&text).ok()
        })
    }

    /// Adds the memory that NVML reports for the slice's processes.
    fn compare(
        &self,
        found: &ListedSlice,
        machine: &Machine,
        held: Option<&LedgerContents>,
        devices: &mut [DeviceStatus],
    ) {
        let mut members = None;
        for device in devices {
            let uuid = device.device.as_deref().unwrap_or_default();
            for listed in self.drivers.processes(machine, uuid) {
                let mut own = device.processes.iter_mut();
                if let Some(known) = own.find(|one| one.pid == listed.pid && one.name.is_some()) {
                    known.driver_used = listed.used;
                    continue;
                }
                let members = members.get_or_insert_with(|| self.members(found, held));
                let mapped = self.processes.mapped(listed.pid);
                let has_escaped = mapped.is_some_and(|mapped| mapped.driver && !mapped.library)
                    && listed.used != Some(0)
                    && (found.user.is_none() || self.processes.descends_from(listed.pid, members));
                if has_escaped {
                    device.without_library.push(Escaped {
                        pid: listed.pid,
                        name: process::name(listed.pid),
                        used: listed.used,
                    });
                }
            }
        }
    }

    /// Returns the processes known to be in a slice. Their children are in the slice too, but not
    /// in the result.
    fn members(&self, found: &ListedSlice, held: Option<&LedgerContents>) -> BTreeSet<u32> {
        let mut members: BTreeSet<u32> = held.iter().flat_map(|held| held.processes()).collect();
        members.extend(found.pid());
        match (&found.container, found.user) {
            (Some(held), _) => {
                let pids = held.containers.iter().map(|container| container.pid);
                members.extend(pids.flat_map(|pid| self.processes.of_container(pid)));
            }
            (None, Some(user)) => members.extend(self.processes.naming(&found.file, user.0)),
            (None, None) => {}
        }
        members
    }
}

/// Returns the listed devices in their order, followed by the other devices in use.
fn devices(file: &Path, slice: &Slice, held: Option<&LedgerContents>) -> Vec<DeviceStatus> {
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

fn device(
    file: &Path,
    slice: &Slice,
    uuid: DeviceUuid,
    held: Option<&LedgerContents>,
) -> DeviceStatus {
    let budget = slice.device(uuid);
    let mut status = DeviceStatus {
        device: Some(uuid.to_string()),
        unified: budget.and_then(|budget| budget.integrated),
        limit: budget.map(|budget| budget.memory.get()),
        headroom: budget.map_or(0, |budget| budget.headroom.get()),
        headroom_learned: headroom_store::is_learned(file, slice, uuid),
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
            driver_used: None,
            by_kind: by_kind(&record.by_kind),
        });
    }
    status
        .processes
        .sort_by_key(|process| (std::cmp::Reverse(process.used), process.pid));
    if !held.is_damaged {
        status.by_kind = Some(by_kind(&kinds));
        status.used = Some(used.get());
        status.left = budget.map(|budget| budget.memory.minus(used).get());
    }
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
