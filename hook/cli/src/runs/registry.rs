//! The registry of this user's running slices: one symbolic link per slice, to its slice file.
//! Touches: the registry's folder; the private folders that its links lead to; /proc.
//!
//! A link outlives a run that was killed together with its watcher, so a link alone proves nothing.
//! A run counts as running while its watcher holds the lock on its private folder. It also counts
//! as running while a process is alive that its ledger lists or whose environment names its folder.

mod folders;

pub(crate) use folders::{
    all_folders, folder, folders_of_others, make, shared_folder, stands_alone,
};

use crate::runs::run_dir::{self, private_folder};
use crate::runs::{folder_users, former, watcher};
use crate::slice::{file as slice_file, ledger as slice_ledger};
use folders::{folders, is_ours};
use gpuslice_config::ledger::Snapshot;
use gpuslice_host::base::ledger_room::room;
use gpuslice_host::base::sys;
use nix::fcntl::OFlag;
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// A run, as the registry lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The registry's link.
    pub link: PathBuf,
    /// The slice file.
    pub file: PathBuf,
    /// The process that runs the command, and ran gpuslice before `exec`.
    pub pid: Option<Pid>,
}

/// A registry link. Dropping it removes the link again if the command could not be started.
#[derive(Debug)]
pub(crate) struct Registration {
    link: PathBuf,
}

impl Registration {
    /// The registry's link.
    pub(crate) fn link(&self) -> &Path {
        &self.link
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.link);
    }
}

/// Registers the slice of the process `pid`. `own` says that its file is in that process's private
/// folder, which `watcher` watches. The link's name carries the watcher's process id if a former
/// slice of the process has the usual name and goes on.
///
/// # Errors
/// When no folder can be used.
pub(crate) fn register(
    name: &str,
    pid: Pid,
    file: &Path,
    own: bool,
    watcher: Option<i32>,
) -> io::Result<Registration> {
    let name = match name {
        "" => "slice".to_owned(),
        name if name.starts_with(ENDED) => format!("_{}", name.replace('/', "_")),
        name => name.replace('/', "_"),
    };
    let link_in = |folder: &Path| {
        let link = folder.join(format!("{name}-{pid}"));
        let former = fs::read_link(&link).ok();
        let former = former.as_deref().and_then(private_folder);
        match watcher.filter(|_| former.is_some_and(|former| is_still_used(former, pid))) {
            Some(watcher) => folder.join(format!("{name}-{watcher}")),
            None => link,
        }
    };
    let private = private_folder(file).filter(|_| own);
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders() {
        let link = link_in(&folder);
        // The folder names the link first, so that whoever finds the link can remove the folder.
        let named = make(&folder).and_then(|()| private.map_or(Ok(()), |own| name_in(own, &link)));
        match named.and_then(|()| link_to(file, &link)) {
            Ok(()) => return Ok(Registration { link }),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Checks whether a former slice of the process `pid` goes on, although that process gets another one.
fn is_still_used(former: &Path, pid: Pid) -> bool {
    // This process leaves its former slice. A slice of `gpuslice env` belongs to another process,
    // whose programs may use it later.
    (pid != Pid::this() && is_watched(former)) || former::is_used_by_others(former)
}

/// Records a registry link in a private folder.
fn name_in(private: &Path, link: &Path) -> io::Result<()> {
    let name = private.join(run_dir::ENTRY);
    let _ = fs::remove_file(&name);
    symlink(link, name)
}

/// Returns the registry link that leads to a private folder, as recorded in that folder.
pub(crate) fn link_of(private: &Path) -> Option<PathBuf> {
    fs::read_link(private.join(run_dir::ENTRY)).ok()
}

/// The beginning of the name of a link whose run has ended.
const ENDED: &str = ".ended-";

/// Marks a run as ended: renames the registry link that leads to its private folder. The link stays
/// until the files of the run are removed, so that a later command finds what a killed one leaves.
/// Returns the new path; `None` if the link does not lead to the folder.
pub(crate) fn mark_ended(link: &Path, private: &Path) -> Option<PathBuf> {
    let file = fs::read_link(link).ok()?;
    let name = link.file_name()?.to_str()?;
    let ended = link.with_file_name(format!("{ENDED}{name}"));
    let leads_there = file.parent() == Some(private);
    (leads_there && fs::rename(link, &ended).is_ok()).then_some(ended)
}

fn is_marked_ended(link: &Path) -> bool {
    let name = link.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(ENDED)
}

/// Whether to remove the files of runs that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Remove them.
    Remove,
    /// Keep them, because the caller must not change any file.
    Keep,
}

/// Returns the running runs, sorted by name. Removes the files of all other runs.
#[must_use]
pub(crate) fn running() -> Vec<Entry> {
    running_and(Remains::Remove)
}

/// Returns the running runs, sorted by name.
#[must_use]
pub(crate) fn running_and(remains: Remains) -> Vec<Entry> {
    let mut entries: Vec<Entry> = links().filter_map(Entry::read).collect();
    entries.sort_by(|one, other| one.link.file_name().cmp(&other.link.file_name()));
    let (running, left): (Vec<Entry>, Vec<Entry>) =
        entries.into_iter().partition(Entry::is_running);
    if remains == Remains::Remove {
        left.iter().for_each(Entry::clean);
        let ended = links().filter_map(Entry::ended);
        // A watcher that lives is still removing the files of its run.
        let left = ended.filter(|entry| !private_folder(&entry.file).is_some_and(is_watched));
        left.for_each(|entry| entry.clean());
    }
    running
}

/// Returns the names of the links in this user's folders: `NAME-PID`.
#[must_use]
pub(crate) fn link_names() -> BTreeSet<String> {
    let name = |link: PathBuf| {
        let name = link.file_name()?.to_str()?;
        Some(name.strip_prefix(ENDED).unwrap_or(name).to_owned())
    };
    links().filter_map(name).collect()
}

/// The links in this user's folders.
fn links() -> impl Iterator<Item = PathBuf> {
    let found = folders().into_iter().filter(|folder| is_ours(folder));
    let listed = found.filter_map(|folder| fs::read_dir(folder).ok());
    listed.flatten().filter_map(|link| Some(link.ok()?.path()))
}

impl Entry {
    /// Reads the link of a run. `None` if the run has ended.
    pub(crate) fn read(link: PathBuf) -> Option<Entry> {
        (!is_marked_ended(&link))
            .then(|| Entry::any(link))
            .flatten()
    }

    /// Reads the link of a run that has ended.
    fn ended(link: PathBuf) -> Option<Entry> {
        is_marked_ended(&link).then(|| Entry::any(link)).flatten()
    }

    fn any(link: PathBuf) -> Option<Entry> {
        let file = fs::read_link(&link).ok()?;
        let name = link.file_name()?.to_str()?;
        let (_, pid) = name.rsplit_once('-')?;
        let pid = pid.parse().ok().map(Pid::from_raw);
        Some(Entry { link, file, pid })
    }

    pub(crate) fn is_running(&self) -> bool {
        // The program may have removed the slice file, but the watcher still holds the folder's
        // lock.
        if private_folder(&self.file).is_some_and(is_watched) {
            return true;
        }
        if !self.file.exists() {
            return false;
        }
        holds_something(&self.file) || folder_users::another_user(&self.file).is_some()
            // Between the creation of the link and `exec`, the process still runs gpuslice.
            || self.pid.is_some_and(is_gpuslice)
    }

    /// Returns the run's private folder if gpuslice created it. A folder of the user may have such a
    /// name, so the link that the folder records must be this run's. Only a link that leads to a
    /// folder of gpuslice is marked as ended: if its folder records no link, the process that was
    /// removing the folder's files was killed.
    fn private(&self) -> Option<&Path> {
        let name = self.link.file_name()?.to_str()?;
        let before_its_end = name.strip_prefix(ENDED);
        let link = self.link.with_file_name(before_its_end.unwrap_or(name));
        let is_made = |private: &&Path| {
            is_ours(private)
                && match link_of(private) {
                    Some(recorded) => recorded == link,
                    None => before_its_end.is_some(),
                }
        };
        private_folder(&self.file).filter(is_made)
    }

    fn clean(&self) {
        if let Some(private) = self.private() {
            watcher::finish(private, link_of(private).as_deref(), &[]);
        }
        let _ = fs::remove_file(&self.link);
    }
}

/// Returns the records of running runs, to which this link in their folders leads. Root sees those of
/// all users. A user's run can only use a record of that user.
pub(crate) fn records_in_use(link: &str) -> Vec<PathBuf> {
    let owner = |path: &Path| fs::symlink_metadata(path).ok().map(|facts| facts.uid());
    let mut records = Vec::new();
    for folder in all_folders() {
        let links = fs::read_dir(&folder).into_iter().flatten().flatten();
        let entries = links.filter_map(|link| Entry::read(link.path()));
        let recorded = entries
            .filter(Entry::is_running)
            .filter_map(|entry| fs::read_link(private_folder(&entry.file)?.join(link)).ok());
        records.extend(recorded.filter(|record| owner(record) == owner(&folder)));
    }
    records
}

fn is_watched(private: &Path) -> bool {
    let locked = |folder: File| matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock));
    // Another user's link may lead to a pipe, which must not block root.
    let flags = (OFlag::O_DIRECTORY | OFlag::O_NONBLOCK).bits();
    let folder = File::options().read(true).custom_flags(flags).open(private);
    match folder {
        Ok(folder) => locked(folder),
        // The run's files must not be removed if nothing is known of it.
        Err(error) => sys::is_passing(&error),
    }
}

/// Checks whether any process that the ledger lists is alive.
fn holds_something(file: &Path) -> bool {
    let ledger = slice_file::read(file)
        .ok()
        .and_then(|slice| slice_ledger::path(file, &slice));
    ledger.is_some_and(|ledger| {
        let mut bytes = room(&ledger);
        Snapshot::read(&slice_ledger::c_path(&ledger), &mut bytes)
            .is_ok_and(|snapshot| snapshot.slots().any(|record| record.alive))
    })
}

/// Returns the private folders of the runs whose ledgers list a living process.
pub(crate) fn folders_with_holders() -> impl Iterator<Item = PathBuf> {
    let files = links().filter_map(|link| fs::read_link(link).ok());
    let files = files.filter(|file| holds_something(file));
    files.filter_map(|file| private_folder(&file).map(Path::to_owned))
}

fn is_gpuslice(pid: Pid) -> bool {
    let executable = fs::read_link(format!("/proc/{pid}/exe"));
    executable.is_ok_and(|path| Some(path) == fs::read_link("/proc/self/exe").ok())
}

/// Creates a registry link. Replaces a link left by an earlier process with this process id.
fn link_to(file: &Path, link: &Path) -> io::Result<()> {
    match symlink(file, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(link)?;
            symlink(file, link)
        }
        done => done,
    }
}
