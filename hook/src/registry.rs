//! The slices of this user that are running: one symbolic link for each, to its slice file.
//! Touches: the registry's folder; the private folders that it leads to; /proc.
//!
//! A link outlives a run that was killed together with its watcher. So a link is never believed:
//! a run is there as long as its watcher holds the lock on its private folder, or a process
//! that the ledger or the environments name lives.

use crate::slice_ledger;
use crate::{folder_users, former, slice_file, tidy_up};
use gpuslice_config::ledger::{MAX_SIZE, Snapshot};
use nix::unistd::{Pid, geteuid};
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, io};

/// A run, as the registry names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The link.
    pub link: PathBuf,
    /// The slice file.
    pub file: PathBuf,
    /// The command's process, which was gpuslice.
    pub pid: Option<Pid>,
}

/// A link that is taken back when the command could not be started after all.
#[derive(Debug)]
pub struct Registration {
    link: PathBuf,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.link);
    }
}

/// Adds this process's slice. `own` says that its file is in this process's private folder, which
/// `watcher` watches. The link carries the watcher's number where a former slice of this process has
/// the name and still has processes.
///
/// # Errors
/// When no folder serves.
pub fn register(
    name: &str,
    file: &Path,
    own: bool,
    watcher: Option<i32>,
) -> io::Result<Registration> {
    let name = match name {
        "" => "slice".to_owned(),
        name => name.replace('/', "_"),
    };
    let link_in = |folder: &Path| {
        let link = folder.join(format!("{name}-{}", std::process::id()));
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
                    symlink(&link, private.join(ENTRY))?;
                }
                return Ok(Registration { link });
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// In a private folder: the link that leads to it from the registry.
const ENTRY: &str = "entry";

/// The link that leads to a private folder, as the folder names it.
pub(crate) fn link_of(private: &Path) -> Option<PathBuf> {
    fs::read_link(private.join(ENTRY)).ok()
}

/// Removes the link to a private folder from the registry.
pub(crate) fn forget(link: &Path, private: &Path) {
    if fs::read_link(link).is_ok_and(|file| file.parent() == Some(private)) {
        let _ = fs::remove_file(link);
    }
}

/// The runs that are there, by name. What is left of others is cleaned away.
#[must_use]
pub fn running() -> Vec<Entry> {
    let found = folders().into_iter().filter(|folder| is_ours(folder));
    let mut entries: Vec<Entry> = found
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|links| links.filter_map(|link| Entry::read(link.ok()?.path())))
        .collect();
    entries.sort_by(|one, other| one.link.file_name().cmp(&other.link.file_name()));
    let (running, left): (Vec<Entry>, Vec<Entry>) =
        entries.into_iter().partition(Entry::is_running);
    left.iter().for_each(Entry::clean);
    running
}

impl Entry {
    pub(crate) fn read(link: PathBuf) -> Option<Entry> {
        let file = fs::read_link(&link).ok()?;
        let name = link.file_name()?.to_str()?;
        let (_, pid) = name.rsplit_once('-')?;
        let pid = pid.parse().ok().map(Pid::from_raw);
        Some(Entry { link, file, pid })
    }

    pub(crate) fn is_running(&self) -> bool {
        // Its file may be gone, when a program has removed it: the folder is its watcher's.
        if private_folder(&self.file).is_some_and(is_watched) {
            return true;
        }
        if !self.file.exists() {
            return false;
        }
        holds_something(&self.file) || folder_users::another_user(&self.file).is_some()
            // The moment between the link and the command.
            || self.pid.is_some_and(is_gpuslice)
    }

    fn clean(&self) {
        if let Some(private) = private_folder(&self.file).filter(|private| is_ours(private)) {
            tidy_up::finish(private, link_of(private).as_deref());
        }
        let _ = fs::remove_file(&self.link);
    }
}

/// The folder that a slice file is in, if it is one that gpuslice has made for a run.
#[must_use]
pub fn private_folder(file: &Path) -> Option<&Path> {
    let folder = file.parent()?;
    let ours = folder.file_name()?.to_str()?.starts_with(tidy_up::PREFIX);
    (ours && file.file_name()? == slice_file::NAME).then_some(folder)
}

fn is_watched(private: &Path) -> bool {
    let locked = |folder: File| matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(private).is_ok_and(locked)
}

/// Whether a process that the ledger knows lives.
fn holds_something(file: &Path) -> bool {
    let ledger = slice_file::read(file)
        .ok()
        .and_then(|slice| slice_ledger::path(file, &slice));
    let mut bytes = vec![0; MAX_SIZE];
    ledger.is_some_and(|ledger| {
        Snapshot::read(&slice_ledger::c_path(&ledger), &mut bytes)
            .is_ok_and(|snapshot| snapshot.slots().any(|record| record.alive))
    })
}

fn is_gpuslice(pid: Pid) -> bool {
    let executable = fs::read_link(format!("/proc/{pid}/exe"));
    executable.is_ok_and(|path| Some(path) == fs::read_link("/proc/self/exe").ok())
}

/// Where links are looked for; where the first that can be made is used.
fn folders() -> Vec<PathBuf> {
    let uid = geteuid();
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let given = given.filter(|path| path.is_absolute() && is_ours(path));
    folders_of(given.as_deref(), uid.as_raw())
}

/// Root's folder, which is the hook's, too.
const ROOTS: &str = "/run/gpuslice";

/// How many names a user's folder in /tmp may have.
const NAMES: u32 = 64;

/// A user's folder where there is no runtime folder. Every session takes the first name that is not
/// another user's: anybody may have made some of them.
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

/// A runtime folder that somebody has chosen stands alone. One user's sessions and services,
/// of which only some are given a runtime folder, see each other's slices.
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

/// Whether a runtime folder was chosen, which stands alone.
pub(crate) fn stands_alone() -> bool {
    folders().len() == 1
}

/// The registries of other users, with the user's number. Only root can look into them.
pub(crate) fn folders_of_others() -> Vec<(u32, PathBuf)> {
    let listed = |folder| fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.parse::<u32>().ok();
    let of_sessions = listed("/run/user").filter_map(|entry| {
        let user = number(entry.file_name().to_str()?)?;
        Some((user, entry.path().join("gpuslice")))
    });
    let without = listed("/tmp").filter_map(|entry| {
        // Behind the number another one may stand, where the first name was not free.
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

/// The one folder that every session of this user takes, as long as the machine runs.
#[must_use]
pub fn shared_folder() -> PathBuf {
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

/// Makes a folder that only this user can enter. One in /tmp may have been made by another.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // The hook's, through which containers' users pass.
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

/// A link of an earlier process of this number is replaced.
fn link_to(file: &Path, link: &Path) -> io::Result<()> {
    match symlink(file, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(link)?;
            symlink(file, link)
        }
        done => done,
    }
}

/// A folder of this user, and not a link to one.
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
        // A file and a link are as little this user's folder as another user's folder is.
        fs::write(name(""), "").unwrap();
        symlink(place.path(), name("-1")).unwrap();
        assert_eq!(temporary(place.path(), uid), name("-2"));
        make(&name("-2")).unwrap();
        assert_eq!(temporary(place.path(), uid), name("-2"));
    }

    #[test]
    fn only_what_gpuslice_has_made_is_a_private_folder() {
        let folder = |file| private_folder(Path::new(file));
        let own = "/dev/shm/gpuslice-abc";
        assert_eq!(
            folder("/dev/shm/gpuslice-abc/slice.json"),
            Some(Path::new(own))
        );
        assert_eq!(folder("/dev/shm/gpuslice-abc/other.json"), None);
        assert_eq!(folder("/home/me/slice.json"), None);
        assert_eq!(folder("/slice.json"), None);
    }
}
