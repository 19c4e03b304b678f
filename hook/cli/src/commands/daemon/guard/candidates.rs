//! Lists whom the watching thread may act on.
//! Touches: processes, through pidfds; /proc.
//! Law: a process counts as a run's only if it belongs to the user of the run.

use super::memory::candidate::{Begin, Candidate};
use crate::commands::status::model::{DeviceStatus, SliceStatus, shown_name};
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use crate::runs::run_dir;
use gpuslice_config::slice::host_reserve::HOST_ALLOWANCE;
use std::collections::BTreeSet;

/// Lists whom the watching thread may act on: slices on unified memory, and the operator's programs.
pub(super) fn candidates(
    snapshot: &Snapshot,
    processes: &Processes,
    programs: &[String],
) -> Vec<Candidate> {
    let is_still = |pid| processes.is_still(pid);
    let mut found = Vec::new();
    let mut in_slices = BTreeSet::new();
    for slice in &snapshot.slices {
        let pids = members(slice, processes);
        in_slices.extend(pids.iter().copied());
        let is_unified = |device: &&DeviceStatus| device.unified == Some(true);
        let devices = slice.devices.iter().filter(is_unified);
        let promised = slice.promise.as_ref().map(|promise| promise.budget);
        let limit = devices.clone().filter_map(|device| device.limit).max();
        let Some(promised) = promised.or(limit) else {
            continue;
        };
        let held = devices.map(|device| {
            let escaped = device.without_library.iter().filter_map(|one| one.used);
            let counted = device.used.unwrap_or(0);
            let counted = escaped.fold(counted, u64::saturating_add);
            counted.max(device.driver_used.unwrap_or(0))
        });
        let begin = Begin {
            name: shown_name(&slice.name, &slice.file),
            is_slice: true,
            promised,
            device: held.fold(0, u64::saturating_add),
            allowance: HOST_ALLOWANCE.get(),
            pids,
        };
        let promise = slice.promise.as_ref().map(|promise| promise.file.as_path());
        found.extend(Candidate::open(begin, promise, is_still));
    }
    if programs.is_empty() {
        return found;
    }
    let own = std::process::id();
    for pid in processes.all().keys().copied() {
        let name = processes.name(pid).filter(|name| programs.contains(name));
        let Some(name) = name.filter(|_| pid > 1 && pid != own && !in_slices.contains(&pid)) else {
            continue;
        };
        let begin = Begin {
            name,
            pids: vec![pid],
            ..Begin::default()
        };
        found.extend(Candidate::open(begin, None, is_still));
    }
    found
}

/// The processes of a slice: those that hold device memory, the command or the containers' first
/// processes, and their descendants. The shell that `gpuslice env` printed variables for is not one.
fn members(slice: &SliceStatus, processes: &Processes) -> Vec<u32> {
    let is_printed = slice.file.with_file_name(run_dir::PRINTED).exists();
    let command = slice.pid.filter(|_| !is_printed);
    let first = slice.containers.iter().map(|container| container.pid);
    let first = command.into_iter().chain(first);
    let mut pids: Vec<u32> = first.filter_map(|pid| u32::try_from(pid).ok()).collect();
    for device in &slice.devices {
        let named = device.processes.iter().filter(|one| one.name.is_some());
        pids.extend(named.map(|one| one.pid));
        pids.extend(device.without_library.iter().map(|one| one.pid));
    }
    let known: BTreeSet<u32> = pids.iter().copied().collect();
    let all = processes.all().keys().copied();
    pids.extend(all.filter(|pid| processes.descends_from(*pid, &known)));
    let mut taken = BTreeSet::new();
    let own = std::process::id();
    // The user of a run could name any process in its files.
    let is_users = |pid: u32| {
        let user = slice.user.map(|user| user.0);
        user.is_none_or(|user| processes.user(pid) == Some(user))
    };
    pids.retain(|pid| *pid > 1 && *pid != own && taken.insert(*pid) && is_users(*pid));
    pids
}
