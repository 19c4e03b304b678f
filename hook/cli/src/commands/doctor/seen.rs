//! The slices that are visible here, and the processes of each.
//! Touches: the registries of runs, the records of containers, /proc.
//! Law: nothing is removed, also where a run has ended.

use super::checks::ContainerSeen;
use super::membership::RunSeen;
use crate::commands::status::process::{Processes, cgroup, variable};
use crate::commands::status::users::{self, User, with_rights_of};
use crate::runs::registry::{self, Entry, Remains};
use crate::runs::run_dir;
use crate::runs::watcher;
use gpuslice_config::slice;
use gpuslice_config::words::paths;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::records::{self, SliceRecord};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A slice.
#[derive(Clone, Debug)]
pub(super) struct SliceSeen {
    pub(super) name: String,
    /// The run, or None for containers.
    pub(super) run: Option<RunSeen>,
    pub(super) containers: Vec<ContainerSeen>,
}

/// Returns the slices of runs and of containers.
pub(super) fn slices(places: &HostPaths) -> Vec<SliceSeen> {
    let runs = runs().into_iter().map(|run| SliceSeen {
        name: name_of(&run),
        run: Some(run),
        containers: Vec::new(),
    });
    runs.chain(recorded(places)).collect()
}

/// Returns the runs of this user; for root, also those of all other users.
pub(super) fn runs() -> Vec<RunSeen> {
    let own = registry::running_and(Remains::Keep);
    let own = own.into_iter().map(|entry| run_of(User::own(), entry));
    let others = match User::own() == User(0) && !registry::stands_alone() {
        true => registry::folders_of_others(),
        false => Vec::new(),
    };
    let others = others.into_iter().flat_map(|(user, folder)| {
        let links = fs::read_dir(folder).into_iter().flatten().flatten();
        let entries = links.filter_map(|link| Entry::read(link.path()));
        // Another user's link may lead anywhere, so root's rights do not open its target. It is removed when the
        // run has ended.
        let entries = entries.filter(|entry| fs::symlink_metadata(&entry.file).is_ok());
        let entries: Vec<Entry> = entries.collect();
        entries.into_iter().map(move |it| run_of(User(user), it))
    });
    own.chain(others.filter(|run| run.pid.is_some())).collect()
}

fn run_of(user: User, entry: Entry) -> RunSeen {
    let command = with_rights_of(user, || users::command_of(&entry));
    let pid = command.and_then(|pid| u32::try_from(pid).ok());
    let folder = run_dir::private_folder(&entry.file);
    let is_printed = folder.is_some_and(|it| it.join(run_dir::PRINTED).exists());
    RunSeen {
        pid,
        is_printed,
        file: entry.file,
        user: user.0,
    }
}

/// Returns the name of a run: as its slice file has it, or as its command was told at the start.
fn name_of(run: &RunSeen) -> String {
    let is_own = User::own().0 == run.user;
    let file = is_own.then(|| crate::slice::file::read(&run.file).ok());
    let carried = || {
        let name = [paths::SLICE.to_bytes(), b"="].concat();
        slice::parse(&variable(run.pid?, &name)?).ok()
    };
    let found = file.flatten().or_else(carried);
    let name = found.map(|slice| slice.name.as_str().to_owned());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| crate::base::text::escaped_path(&run.file))
}

/// Returns the slices in the records of containers that are alive.
fn recorded(places: &HostPaths) -> Vec<SliceSeen> {
    let (all, _) = records::survey(places).unwrap_or_default();
    all.iter()
        .map(|record| SliceSeen {
            name: record.name.clone(),
            run: None,
            containers: containers(record),
        })
        .filter(|slice| !slice.containers.is_empty())
        .collect()
}

fn containers(record: &SliceRecord) -> Vec<ContainerSeen> {
    let members = record.containers.iter();
    members
        .filter(|member| member.owner.lives())
        .map(|member| ContainerSeen {
            id: member.id.clone(),
            name: match record.containers.len() {
                1 => record.name.clone(),
                _ => member.name.clone(),
            },
            pid: u32::try_from(member.owner.pid).ok(),
            no_slice: member.no_slice.clone(),
            has_budget: !record.devices.is_empty(),
            is_recorded: true,
            bundle: Some(member.bundle.clone()),
        })
        .collect()
}

impl SliceSeen {
    /// Checks whether a name or the start of a container's id means this slice.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let mut containers = self.containers.iter();
        self.name == name
            || containers
                .any(|one| one.name == name || !name.is_empty() && one.id.starts_with(name))
    }

    /// Returns the processes that started the slice: the command, or the containers' first ones.
    pub(super) fn first(&self) -> Vec<u32> {
        let run = self.run.iter().filter_map(|run| run.pid);
        let containers = self.containers.iter().filter_map(|one| one.pid);
        run.chain(containers).collect()
    }

    /// Returns the processes of the slice: those that started it, those that descend from them, and
    /// those whose environment names its file.
    pub(super) fn members(&self, processes: &Processes) -> BTreeSet<u32> {
        let mut members: BTreeSet<u32> = self.first().into_iter().collect();
        if let Some(run) = &self.run {
            members.extend(processes.naming(&run.file, run.user));
            let known = members.clone();
            let descends = |pid: &&u32| {
                let ancestors = processes.ancestors(**pid);
                ancestors.iter().any(|pid| known.contains(pid))
            };
            members.extend(processes.all().keys().filter(descends));
        }
        for container in &self.containers {
            let pid = container.pid.and_then(|pid| i32::try_from(pid).ok());
            members.extend(pid.into_iter().flat_map(|pid| processes.of_container(pid)));
        }
        members.remove(&std::process::id());
        members.retain(|pid| !is_watcher(*pid));
        members
    }

    /// Returns the container that a process is in.
    pub(super) fn container_of(&self, pid: u32) -> Option<&ContainerSeen> {
        let mut all = self.containers.iter();
        all.find(|container| container.pid.is_some_and(|first| shares(first, pid)))
    }
}

/// Checks whether a process is in the container with this first process: in its pid namespace or
/// its cgroup, if the container has one of its own.
fn shares(first: u32, pid: u32) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace(&first.to_string());
    let in_namespace =
        || own.is_some() && own != namespace("self") && own == namespace(&pid.to_string());
    let in_cgroup = || {
        let own = cgroup(first).filter(|own| own != Path::new("/sys/fs/cgroup/"));
        own.is_some() && own != cgroup(std::process::id()) && own == cgroup(pid)
    };
    first == pid || in_namespace() || in_cgroup()
}

/// Checks whether a process is the watcher of a run, which is in no slice on purpose.
fn is_watcher(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    watcher::watched(&line).is_some()
}
