//! Computes a slice's share of each device from its slice file and its ledger.
//! Touches: the store of learned headroom; names of processes in /proc.

use super::model::{DeviceStatus, ProcessStatus, RefusalsShown};
use super::process::{FileId, Processes, Seen};
use crate::runs::headroom_store;
use gpuslice_config::ledger::{Kind, Record, Refusals};
use gpuslice_config::slice::{DriverLimit, Slice};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::slices::figures::LedgerFigures;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A ledger's contents, and the processes that it names.
pub(super) struct LedgerContents {
    records: Vec<(Record, Option<Seen>)>,
    refusals: BTreeMap<DeviceUuid, Refusals>,
    limits: BTreeMap<DeviceUuid, Bytes>,
    is_damaged: bool,
}

impl LedgerContents {
    pub(super) fn new(
        figures: LedgerFigures,
        ledger: Option<&FileId>,
        processes: &Processes,
    ) -> LedgerContents {
        // Two containers of one slice may both have a process 1; each process is listed once.
        let mut taken = BTreeSet::new();
        let mut seen = |record: &Record| {
            let device = record.device.map(|it| it.bytes);
            let ledger = ledger?;
            // Most processes have the same number here. The list of all is read only for others.
            let is_same =
                |pid: &u32| processes.has_same_number(*pid) && processes.has_mapped(*pid, ledger);
            let here = Some(record.pid).filter(is_same);
            let pid = here.filter(|pid| taken.insert((device, *pid)));
            let pid = pid.or_else(|| {
                let mut named = processes.find(record.pid, ledger).into_iter();
                named.find(|pid| taken.insert((device, *pid)))
            })?;
            let name = processes.name(pid)?;
            Some(Seen { pid, name })
        };
        let records = figures.records.into_iter().map(|record| {
            let seen = seen(&record);
            (record, seen)
        });
        LedgerContents {
            records: records.collect(),
            refusals: figures.refusals,
            limits: figures.limits,
            is_damaged: figures.is_damaged,
        }
    }

    /// Returns the limit of a device that was set since the start of the slice.
    pub(super) fn limit(&self, uuid: DeviceUuid) -> Option<Bytes> {
        self.limits.get(&uuid).copied()
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        let seen = self.records.iter().filter_map(|(_, seen)| seen.as_ref());
        seen.map(|seen| seen.pid)
    }
}

/// Returns the listed devices in their order, followed by the other devices in use.
pub(super) fn devices(
    file: &Path,
    slice: &Slice,
    held: Option<&LedgerContents>,
) -> Vec<DeviceStatus> {
    let mut uuids: Vec<DeviceUuid> = slice.devices().map(|listed| listed.uuid).collect();
    let used = held.iter().flat_map(|held| {
        let held_on = held.records.iter().filter_map(|(record, _)| record.device);
        let resized = held.limits.keys();
        held_on.chain(held.refusals.keys().chain(resized).copied())
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

/// Returns how the driver holds a limit, if it does.
fn driver_limit(slice: &Slice, uuid: DeviceUuid) -> Option<DriverLimit> {
    let listed = slice.devices().find(|listed| listed.uuid == uuid)?;
    listed.driver_limit.filter(|_| slice.enforce)
}

fn device(
    file: &Path,
    slice: &Slice,
    uuid: DeviceUuid,
    held: Option<&LedgerContents>,
) -> DeviceStatus {
    let mut budget = slice.device(uuid);
    if let (Some(budget), Some(limit)) = (&mut budget, held.and_then(|held| held.limit(uuid))) {
        budget.memory = limit;
    }
    let mut status = DeviceStatus {
        device: Some(uuid.to_string()),
        unified: budget.and_then(|budget| budget.integrated),
        limit: budget.map(|budget| budget.memory.get()),
        driver_limit: driver_limit(slice, uuid),
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
    let kinds = sums(own.clone().map(|(record, _)| record));
    let mut used = Bytes::ZERO;
    for (record, seen) in own {
        used = used.plus(Bytes::new(record.used));
        status.processes.push(ProcessStatus {
            number: record.pid,
            slot: record.slot,
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
    status.refusals = Some(refusals(held.refusals.get(&uuid).copied()));
    status
}

/// Returns the refused requests, as they are shown.
pub(super) fn refusals(refusals: Option<Refusals>) -> RefusalsShown {
    RefusalsShown {
        count: refusals.map_or(0, |refusals| refusals.count),
        worst_short_by: refusals.map_or(0, |refusals| refusals.regret.get()),
    }
}

/// Sums the memory of several processes by kind.
pub(super) fn sums<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<(Kind, u64)> {
    let mut kinds = Kind::ALL.map(|kind| (kind, 0u64));
    for record in records {
        for ((_, sum), (_, part)) in kinds.iter_mut().zip(record.by_kind) {
            *sum = sum.saturating_add(part);
        }
    }
    kinds.to_vec()
}

/// Returns the kinds of memory that are in use.
pub(super) fn by_kind(kinds: &[(Kind, u64)]) -> Map<String, Value> {
    let held = kinds.iter().filter(|(_, bytes)| *bytes > 0);
    held.map(|(kind, bytes)| (kind.name().to_owned(), (*bytes).into()))
        .collect()
}
