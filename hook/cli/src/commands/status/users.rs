//! The owners of slices, and the runs of other users.
//! Touches: the registries of other users (as root), command lines in /proc.
//! Law: files of another user are read with that user's rights only. Links and names in them then
//! lead only to files that this user can open.

use super::process::Processes;
use crate::runs::registry::{self, Entry};
use crate::runs::run_dir;
use crate::runs::watcher;
use nix::unistd::{Gid, Pid, Uid, geteuid, setfsgid, setfsuid};
use serde::{Serialize, Serializer};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
        let known = nix::unistd::User::from_uid(Uid::from_raw(self.0));
        let known = known.ok().flatten().map(|user| user.name);
        known.unwrap_or_else(|| self.0.to_string())
    }
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
    /// The command's process, if it is still running.
    pub(super) pid: Option<i32>,
}

impl Run {
    fn of(user: User, entry: Entry) -> Run {
        let lives = |pid: &Pid| Path::new(&format!("/proc/{pid}")).exists();
        let pid = entry.pid.filter(lives).map(Pid::as_raw);
        let file = entry.file;
        Run { user, file, pid }
    }
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
        runs.extend(entries.into_iter().map(|entry| Run::of(user, entry)));
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
        let lives = |pid: &i32| Path::new(&format!("/proc/{pid}")).exists();
        let pid = Some(command).filter(lives);
        Some(Run { user, file, pid })
    });
    others.collect()
}

/// Runs `doing`, which depends on another user's files, with only that user's rights.
pub(super) fn with_rights_of<T>(user: User, doing: impl FnOnce() -> T) -> T {
    let own = User::own();
    if user == own || own != User(0) {
        return doing();
    }
    let known = nix::unistd::User::from_uid(Uid::from_raw(user.0));
    // If the user is unknown, a group without members is used.
    let group = known
        .ok()
        .flatten()
        .map_or(Gid::from_raw(user.0), |user| user.gid);
    // These calls affect only this thread, which is the process's only one. They also remove root's
    // capabilities over files.
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
