//! The registry of this user's running slices: one symbolic link per slice, to its slice file.
//! Touches: the registry's folder; the private folders that its links lead to; /proc.
//!
//! A link outlives a run that was killed together with its watcher, so a link alone proves nothing.
//! A run counts as running while its watcher holds the lock on its private folder. It also counts
//! as running while a process is alive that its ledger lists or whose environment names its folder.

use crate::runs::run_dir::{self, private_folder};
use crate::runs::{folder_users, former, watcher};
use crate::slice::{file as slice_file, ledger as slice_ledger};
use gpuslice_config::ledger::Snapshot;
use gpuslice_host::base::ledger_room::room;
use nix::unistd::{Pid, geteuid};
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, io};

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
/// slice of the process has the usual name and still has processes.
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
        match watcher.filter(|_| former.is_some_and(former::is_used_by_others)) {
            Some(watcher) => folder.join(format!("{name}-{watcher}")),
            None => link,
        }
    };
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders() {
        let link = link_in(&folder);
        match make(&folder).and_then(|()| link_to(file, &link)) {
            Ok(()) => {
                if let Some(private) = private_folder(file).filter(|_| own) {
                    symlink(&link, private.join(run_dir::ENTRY))?;
                }
                return Ok(Registration { link });
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
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

    fn clean(&self) {
        if let Some(private) = private_folder(&self.file).filter(|private| is_ours(private)) {
            watcher::finish(private, link_of(private).as_deref());
        }
        let _ = fs::remove_file(&self.link);
    }
}

fn is_watched(private: &Path) -> bool {
    let locked = |folder: File| matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(private).is_ok_and(locked)
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

/// The folders that are searched for links. New links go into the first one that can be created.
fn folders() -> Vec<PathBuf> {
    let uid = geteuid();
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let given = given.filter(|path| path.is_absolute() && is_ours(path));
    folders_of(given.as_deref(), uid.as_raw())
}

/// Returns the folders of all registries that this user can read.
pub(crate) fn all_folders() -> Vec<PathBuf> {
    let mut all = folders();
    if all.len() > 1 && geteuid().is_root() {
        all.extend(folders_of_others().into_iter().map(|(_, folder)| folder));
    }
    all
}

/// Root's folder, which the OCI hook uses too.
const ROOTS: &str = "/run/gpuslice";

/// The most names that are tried for a user's folder in /tmp.
const NAMES: u32 = 64;

/// Returns a user's folder in /tmp, for sessions without a runtime folder. Any user may have
/// created some of these names, so every session takes the first name that does not belong to
/// another user.
fn temporary(place: &Path, uid: u32) -> PathBuf {
    let first = place.join(format!("gpuslice-{uid}"));
    let more = (1..NAMES).map(|count| place.join(format!("gpuslice-{uid}-{count}")));
    let usable = |folder: &PathBuf| match fs::symlink_metadata(folder) {
        Ok(facts) => facts.is_dir() && facts.uid() == uid,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let mut names = std::iter::once(first.clone()).chain(more);
    names.find(usable).unwrap_or(first)
}

/// Returns the folders of one user's registry. If the runtime folder is at an unusual place, the
/// registry is in that folder only. Otherwise all sessions and services of the user see each
/// other's slices, even those without a runtime folder.
fn folders_of(given: Option<&Path>, uid: u32) -> Vec<PathBuf> {
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let without = match uid {
        0 => PathBuf::from(ROOTS),
        _ => temporary(Path::new("/tmp"), uid),
    };
    match given {
        Some(chosen) if chosen != usual => vec![chosen.join("gpuslice")],
        _ => vec![usual.join("gpuslice"), without],
    }
}

/// Checks whether the user's runtime folder is at an unusual place, so that no other folder is
/// searched.
pub(crate) fn stands_alone() -> bool {
    folders().len() == 1
}

/// Returns the registries of other users, with their user ids. Only root can read them.
pub(crate) fn folders_of_others() -> Vec<(u32, PathBuf)> {
    let listed = |folder| fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.parse::<u32>().ok();
    let of_sessions = listed("/run/user").filter_map(|entry| {
        let user = number(entry.file_name().to_str()?)?;
        Some((user, entry.path().join("gpuslice")))
    });
    let without = listed("/tmp").filter_map(|entry| {
        // If the first name was taken, a counter follows the user id.
        let name = entry.file_name();
        let numbers = name.to_str()?.strip_prefix("gpuslice-")?;
        let user = number(numbers.split('-').next()?)?;
        Some((user, entry.path()))
    });
    let is_the_users = |(user, folder): &(u32, PathBuf)| {
        let facts = fs::symlink_metadata(folder);
        facts.is_ok_and(|facts| facts.is_dir() && facts.uid() == *user)
    };
    let own = geteuid().as_raw();
    let all = of_sessions.chain(without);
    all.filter(|found| found.0 != own && is_the_users(found))
        .collect()
}

/// Returns the one folder that every session of this user shares. It stays the same as long as the
/// machine runs.
#[must_use]
pub(crate) fn shared_folder() -> PathBuf {
    let root = Path::new(ROOTS);
    let folders = folders();
    let always = folders.iter().find(|folder| folder.as_path() == root);
    let there = |folder: &&PathBuf| folder.parent().is_some_and(is_ours);
    always
        .or_else(|| folders.iter().find(there))
        .or(folders.last())
        .cloned()
        .unwrap_or_else(|| root.to_owned())
}

/// Returns the folder in which a run of this user is registered, unless it cannot be created.
#[must_use]
pub(crate) fn folder() -> PathBuf {
    let folders = folders();
    let usable = |folder: &&PathBuf| is_ours(folder) || folder.parent().is_some_and(Path::is_dir);
    let first = folders.iter().find(usable).or(folders.first());
    first.cloned().unwrap_or_else(|| ROOTS.into())
}

/// Creates a folder that only this user can enter. Refuses a folder in /tmp that another user has
/// created.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // The OCI hook's folder: users of containers must be able to pass through it.
        Ok(()) if folder == Path::new(ROOTS) => {
            fs::set_permissions(folder, Permissions::from_mode(0o711))
        }
        _ if is_ours(folder) => Ok(()),
        _ => Err(io::Error::other(format!(
            "{} is another user's",
            folder.display()
        ))),
    }
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

/// Checks that this is a folder of this user, and not a symbolic link.
fn is_ours(folder: &Path) -> bool {
    let facts = fs::symlink_metadata(folder);
    facts.is_ok_and(|facts| facts.is_dir() && facts.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_with_and_without_a_runtime_folder_see_each_other() {
        let names = |given: Option<&str>, uid| folders_of(given.map(Path::new), uid);
        let root = ["/run/user/0/gpuslice", "/run/gpuslice"].map(PathBuf::from);
        let user = ["/run/user/7/gpuslice", "/tmp/gpuslice-7"].map(PathBuf::from);
        assert_eq!(names(None, 0), root);
        assert_eq!(names(Some("/run/user/0"), 0), root);
        assert_eq!(names(None, 7), user);
        assert_eq!(names(Some("/run/user/7"), 7), user);
        assert_eq!(
            names(Some("/chosen"), 7),
            [PathBuf::from("/chosen/gpuslice")]
        );
    }

    #[test]
    fn a_folder_that_another_user_has_made_in_tmp_does_not_stop_a_user() {
        let place = tempfile::tempdir().unwrap();
        let uid = geteuid().as_raw();
        let name = |end: &str| place.path().join(format!("gpuslice-{uid}{end}"));
        assert_eq!(temporary(place.path(), uid), name(""));
        // Neither a file nor a link counts as this user's folder.
        fs::write(name(""), "").unwrap();
        symlink(place.path(), name("-1")).unwrap();
        assert_eq!(temporary(place.path(), uid), name("-2"));
        make(&name("-2")).unwrap();
        assert_eq!(temporary(place.path(), uid), name("-2"));
    }
}
