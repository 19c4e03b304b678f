//! The runs of this user and of other users.
//! Touches: the registries of other users (as root), command lines in /proc.
//! Law: files of another user are read with that user's rights only. Links and names in them then
//! lead only to files that this user can open.

pub(crate) use crate::slice::user::{User, with_rights_of};

use super::process::Processes;
use crate::runs::registry::{self, Entry};
use crate::runs::run_dir;
use crate::runs::watcher;
use crate::slice::file as slice_file;
use gpuslice_host::machine::process::ProcessId;
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) user: User,
    /// The slice file.
    pub(super) file: PathBuf,
    /// The link in the registry; None if the registry is not visible.
    pub(super) link: Option<PathBuf>,
    /// The command's process, if it is still running.
    pub(super) pid: Option<i32>,
    /// The moment of its registration, in seconds since 1970; None if its registry is not visible.
    pub(super) registered: Option<u64>,
}

impl Run {
    fn of(user: User, entry: Entry) -> Run {
        let pid = command_of(&entry);
        let facts = fs::symlink_metadata(&entry.link).ok();
        let registered = facts.and_then(|facts| u64::try_from(facts.mtime()).ok());
        Run {
            user,
            file: entry.file,
            link: Some(entry.link),
            pid,
            registered,
        }
    }
}

/// Returns the live process that a run's entry names. The number may be another's by now: see
/// [`is_command`].
pub(crate) fn command_of(entry: &Entry) -> Option<i32> {
    let watcher = watcher_of(&entry.file);
    let pid = entry.pid.map(Pid::as_raw);
    pid.filter(|pid| is_command(*pid, watcher))
}

/// Returns the watcher of a run, as its slice file names it.
fn watcher_of(file: &Path) -> Option<ProcessId> {
    let descriptor = slice_file::read(file).ok()?.ledger_descriptor?;
    let watcher: i32 = descriptor.as_str().split('/').nth(2)?.parse().ok()?;
    let process = ProcessId::of(watcher)?;
    let line = fs::read(format!("/proc/{watcher}/cmdline")).ok()?;
    let (folder, _) = watcher::watched(&line)?;
    file.starts_with(folder).then_some(process)
}

/// Checks whether a process is the command of a run, or the owner of its slice. A run can outlive its
/// first process, whose number then goes to another one. A run's watcher starts after the command.
fn is_command(pid: i32, watcher: Option<ProcessId>) -> bool {
    let process = ProcessId::of(pid);
    let is_later =
        |process: ProcessId| watcher.is_some_and(|watcher| process.start_time > watcher.start_time);
    process.is_some_and(|process| !is_later(process))
}

/// Returns this user's runs, followed by the visible runs of other users.
pub(super) fn runs(processes: &Processes) -> Vec<Run> {
    let own = User::own();
    let mut runs: Vec<Run> = registry::running()
        .into_iter()
        .map(|entry| Run::of(own, entry))
        .collect();
    if registry::stands_alone() {
        return runs;
    }
    match own {
        User(0) => runs.extend(registered_by_others()),
        _ => runs.extend(watched_for_others(processes)),
    }
    runs
}

/// Returns the runs in all users' registries, which only root can read.
fn registered_by_others() -> Vec<Run> {
    let mut runs = Vec::new();
    for (user, folder) in registry::folders_of_others() {
        let user = User(user);
        let entries = with_rights_of(user, || {
            let links = fs::read_dir(&folder).into_iter().flatten();
            let entries = links.filter_map(|link| Entry::read(link.ok()?.path()));
            let mut running: Vec<Entry> = entries.filter(Entry::is_running).collect();
            running.sort_by(|one, other| one.link.file_name().cmp(&other.link.file_name()));
            running
        });
        runs.extend(with_rights_of(user, || {
            let runs = entries.into_iter().map(|entry| Run::of(user, entry));
            runs.collect::<Vec<_>>()
        }));
    }
    runs
}

/// Finds runs of other users by their watchers, which every user can see in /proc.
fn watched_for_others(processes: &Processes) -> Vec<Run> {
    let others = processes.all().iter().filter_map(|(pid, facts)| {
        let user = User(facts.user);
        let line = (user != User::own()).then(|| fs::read(format!("/proc/{pid}/cmdline")))?;
        let (folder, command) = watcher::watched(&line.ok()?)?;
        let file = folder.join(run_dir::SLICE);
        let watcher = i32::try_from(*pid).ok().and_then(ProcessId::of);
        let pid = Some(command).filter(|command| is_command(*command, watcher));
        Some(Run {
            user,
            file,
            link: None,
            pid,
            registered: None,
        })
    });
    others.collect()
}

/// Checks whether a file is a regular file of this user, and not a link to another.
pub(super) fn is_file_of(user: User, file: &Path) -> bool {
    let facts = fs::symlink_metadata(file);
    facts.is_ok_and(|facts| facts.is_file() && facts.uid() == user.0)
}
