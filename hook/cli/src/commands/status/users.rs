//! The owners of slices, and the runs of other users.
//! Touches: the registries of other users (as root), command lines in /proc.
//! Law: files of another user are read with that user's rights only. Links and names in them then
//! lead only to files that this user can open.

use super::process::Processes;
use crate::runs::registry::{self, Entry};
use crate::runs::run_dir;
use crate::runs::watcher;
use crate::slice::file as slice_file;
use gpuslice_host::machine::process::ProcessId;
use nix::unistd::{Gid, Pid, Uid, geteuid, setfsgid, setfsuid};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A user, by user id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User(pub(crate) u32);

impl User {
    /// The user who runs the command.
    pub(crate) fn own() -> User {
        User(geteuid().as_raw())
    }

    /// Returns the user's name, or the user id if there is no name.
    pub(crate) fn name(self) -> String {
        let known = self.account().map(|account| account.name);
        known.unwrap_or_else(|| self.0.to_string())
    }

    /// Looks the user up, once in each process of gpuslice.
    fn account(self) -> Option<Account> {
        static KNOWN: Mutex<BTreeMap<u32, Option<Account>>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let account = known.entry(self.0).or_insert_with(|| {
            let found = nix::unistd::User::from_uid(Uid::from_raw(self.0));
            let found = found.ok().flatten();
            found.map(|user| Account {
                name: user.name,
                group: user.gid,
            })
        });
        account.clone()
    }
}

/// A user's entry in the machine's list of users.
#[derive(Clone, Debug)]
struct Account {
    name: String,
    group: Gid,
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.name())
    }
}

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

/// Runs code that depends on another user's files, with only that user's rights.
pub(crate) fn with_rights_of<T>(user: User, doing: impl FnOnce() -> T) -> T {
    let own = User::own();
    if user == own || own != User(0) {
        return doing();
    }
    // If the user is unknown, a group without members is used.
    let group = user
        .account()
        .map_or(Gid::from_raw(user.0), |account| account.group);
    // These calls affect this thread only, and remove root's capabilities over files.
    let groups = setfsgid(group);
    let users = setfsuid(Uid::from_raw(user.0));
    let done = doing();
    setfsuid(users);
    setfsgid(groups);
    done
}

/// Checks whether a file is a regular file of this user, and not a link to another.
pub(super) fn is_file_of(user: User, file: &Path) -> bool {
    let facts = fs::symlink_metadata(file);
    facts.is_ok_and(|facts| facts.is_file() && facts.uid() == user.0)
}
