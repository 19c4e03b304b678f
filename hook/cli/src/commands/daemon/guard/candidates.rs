//! Lists whom the watching thread may act on.
//! Touches: processes, through pidfds; /proc.
//! Law: a process counts as a run's only if it belongs to the user of the run.

use super::memory::candidate::{Begin, Candidate};
use crate::base::text;
use crate::commands::status::containers::ContainerStatus;
use crate::commands::status::model::{DeviceStatus, SliceStatus, shown_name};
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use crate::commands::status::users::{User, with_rights_of};
use crate::runs::run_dir;
use gpuslice_config::slice::host_reserve::HOST_ALLOWANCE;
use nix::fcntl::OFlag;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

/// Lists whom the watching thread may act on: slices on unified memory, and the operator's programs.
pub(super) fn candidates(
    snapshot: &Snapshot,
    processes: &Processes,
    programs: &[String],
) -> Vec<Candidate> {
    let is_still = |pid| processes.is_still(pid);
    let slices = &snapshot.slices;
    let named: Vec<BTreeSet<u32>> = slices.iter().map(named).collect();
    let mut found = Vec::new();
    let mut in_slices = BTreeSet::new();
    for (place, slice) in slices.iter().enumerate() {
        let pids = members(place, &named, processes);
        in_slices.extend(pids.iter().copied());
        let pids = of_its_user(slice, pids, processes);
        found.extend(begin(slice, pids).and_then(|begin| {
            let promise = promise(slice);
            Candidate::open(begin, promise, is_still)
        }));
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
            name: text::printable(&name),
            pids: vec![pid],
            ..Begin::default()
        };
        found.extend(Candidate::open(begin, None, is_still));
    }
    found
}

/// Describes a slice on unified memory. None for other slices: their memory is not the host's.
fn begin(slice: &SliceStatus, pids: Vec<u32>) -> Option<Begin> {
    let is_unified = |device: &&DeviceStatus| device.unified == Some(true);
    let devices = slice.devices.iter().filter(is_unified);
    let promised = slice.promise.as_ref().map(|promise| promise.budget);
    let limit = devices.clone().filter_map(|device| device.limit).max();
    let held = devices.map(|device| {
        let escaped = device.without_library.iter().filter_map(|one| one.used);
        let counted = escaped.fold(device.used.unwrap_or(0), u64::saturating_add);
        counted.max(device.driver_used.unwrap_or(0))
    });
    Some(Begin {
        name: shown_name(&slice.name, &slice.file),
        is_slice: true,
        promised: promised.or(limit)?,
        device: held.fold(0, u64::saturating_add),
        allowance: slice.host_allowance.unwrap_or(HOST_ALLOWANCE).get(),
        pids,
    })
}

/// Opens the promise of a slice. Its path is in a file of the slice's user, so it may be a link, a
/// device or a pipe without a writer.
fn promise(slice: &SliceStatus) -> Option<File> {
    let path = &slice.promise.as_ref()?.file;
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut options = File::options();
    let options = options.read(true).custom_flags(flags.bits());
    let open = || options.open(path).ok();
    let user = slice.user.unwrap_or_else(User::own);
    let file = with_rights_of(user, open)?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// The processes that a slice names: the command or the containers' first processes, and those that
/// hold device memory. The shell that `gpuslice env` printed variables for is not one.
fn named(slice: &SliceStatus) -> BTreeSet<u32> {
    let is_printed = slice.file.with_file_name(run_dir::PRINTED).exists();
    let command = slice.pid.filter(|_| !is_printed);
    let first = slice.containers.iter();
    let first = first.filter_map(ContainerStatus::live_pid);
    let first = command.into_iter().chain(first);
    let mut named: BTreeSet<u32> = first.filter_map(|pid| u32::try_from(pid).ok()).collect();
    for device in &slice.devices {
        let counted = device.processes.iter().filter(|one| one.name.is_some());
        named.extend(counted.map(|one| one.pid));
        named.extend(device.without_library.iter().map(|one| one.pid));
    }
    named
}

/// The processes of the slice at a place: those that it names, and their descendants that belong to no
/// slice within it. The named ones come first.
fn members(place: usize, named: &[BTreeSet<u32>], processes: &Processes) -> Vec<u32> {
    let Some(own) = named.get(place) else {
        return Vec::new();
    };
    let others = named
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != place);
    let others: BTreeSet<u32> = others.flat_map(|(_, named)| named).copied().collect();
    let descends = |pid: &u32| {
        let line = std::iter::once(*pid).chain(processes.ancestors(*pid));
        let mut line = line.skip_while(|pid| !own.contains(pid) && !others.contains(pid));
        line.next().is_some_and(|nearest| own.contains(&nearest))
    };
    let this = std::process::id();
    let descendants = processes.all().keys().copied();
    let descendants = descendants
        .filter(|pid| !own.contains(pid))
        .filter(descends);
    let all = own.iter().copied().chain(descendants);
    all.filter(|pid| *pid > 1 && *pid != this).collect()
}

/// Leaves out processes of other users: the user of a run could name any process in its files. The
/// processes of containers come from files of root, and may have any user.
fn of_its_user(slice: &SliceStatus, mut pids: Vec<u32>, processes: &Processes) -> Vec<u32> {
    if let (Some(user), true) = (slice.user, slice.containers.is_empty()) {
        pids.retain(|pid| processes.user(*pid) == Some(user.0));
    }
    pids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::model::PromiseStatus;
    use gpuslice_config::words::units::Bytes;

    /// The guard took host memory that a slice was allowed for memory beyond its promise.
    #[test]
    fn the_host_memory_that_a_slice_may_have_is_what_its_slice_file_says() {
        let slice = |allowance| SliceStatus {
            promise: Some(PromiseStatus {
                budget: Bytes::gib(40).get(),
                ..PromiseStatus::default()
            }),
            host_allowance: allowance,
            ..SliceStatus::default()
        };
        for (allowance, expected) in [
            (None, HOST_ALLOWANCE),
            (Some(Bytes::gib(16)), Bytes::gib(16)),
            (Some(Bytes::ZERO), Bytes::ZERO),
        ] {
            let begin = begin(&slice(allowance), vec![1]).expect("it has a promise");
            assert_eq!(begin.allowance, expected.get());
        }
    }
}
