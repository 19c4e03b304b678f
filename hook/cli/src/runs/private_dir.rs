//! A private folder of a run. Only its user can read it. It is removed after the last process that
//! uses it has ended, in whatever way. If root creates the folder, any process that knows the names
//! in it can open its files, because a program that changes to another user must still reach its
//! ledger.
//! Touches: $XDG_RUNTIME_DIR, $TMPDIR or /dev/shm, one child process.

use crate::runs::run_dir;
use crate::runs::watcher::{self, StartError, Watcher};
use anyhow::Context;
use gpuslice_host::machine::process::ProcessId;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::{AccessFlags, access, geteuid};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folder. Dropping it removes the folder. If this process executes another program in its
/// place or is killed, a watcher removes the folder once that program and all processes it started
/// have ended.
///
/// The watcher creates the folder. It therefore never exists without a process that will remove it.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    path: PathBuf,
    watcher: Watcher,
}

impl PrivateDir {
    /// Starts a watcher, which creates the folder. With an `owner`, the watcher waits for the end of
    /// that process instead of this one's.
    ///
    /// # Errors
    /// When no place can be written to, or the watcher cannot be started.
    pub(crate) fn create(owner: Option<ProcessId>) -> io::Result<PrivateDir> {
        // The watcher inherits the mask, so that only SIGKILL can end it from the start.
        let mut before = SigSet::empty();
        let set = Some(&SigSet::all());
        pthread_sigmask(SigmaskHow::SIG_SETMASK, set, Some(&mut before))?;
        let made = make(owner);
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        made.map(|(path, watcher)| PrivateDir { path, watcher })
    }

    /// Returns the folder's path.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the watcher's process id, if known.
    #[must_use]
    pub(crate) fn watcher(&self) -> Option<i32> {
        self.watcher.pid()
    }

    /// Makes the watcher keep a file of this folder open, and returns its path: `/proc/PID/fd/N`.
    ///
    /// # Errors
    /// When the watcher cannot be reached.
    pub(crate) fn keep(&mut self, file: &Path) -> io::Result<PathBuf> {
        self.watcher.keep(file)
    }

    /// Makes the watcher lock a file outside this folder that represents the run. The lock lasts as
    /// long as the watcher.
    ///
    /// # Errors
    /// When the watcher cannot be reached.
    pub(crate) fn hold(&mut self, file: &Path) -> io::Result<()> {
        self.watcher.hold(file)
    }

    /// Waits until the watcher has opened and locked these files.
    ///
    /// # Errors
    /// When the watcher has ended.
    pub(crate) fn wait_for_watcher(&mut self) -> io::Result<()> {
        self.watcher.wait()
    }

    /// Names the run's link in the registry, and its cgroup if it has one, to the watcher. The folder
    /// names them too, but the command may remove the folder before the watcher has read it.
    ///
    /// # Errors
    /// When the watcher cannot be reached.
    pub(crate) fn tell_watcher(
        &mut self,
        link: Option<&Path>,
        cgroup: Option<&Path>,
    ) -> io::Result<()> {
        link.map_or(Ok(()), |link| self.watcher.name_entry(link))?;
        cgroup.map_or(Ok(()), |folder| self.watcher.name_cgroup(folder))
    }

    /// Checks that the folder is on tmpfs, so that it can hold a ledger.
    ///
    /// # Errors
    /// When its file system cannot be examined.
    pub(crate) fn is_on_tmpfs(&self) -> anyhow::Result<bool> {
        let found = statfs(self.path());
        let found = found.with_context(|| format!("cannot examine {}", self.path().display()))?;
        Ok(found.filesystem_type() == TMPFS_MAGIC)
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // What cannot be removed here is left to the watcher.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The tmpfs that nearly every Linux host and every container mounts.
const SHARED_MEMORY: &str = "/dev/shm";

/// Returns the place in which a run's folder will be created, or None if no place can be written
/// to.
#[must_use]
pub(crate) fn place() -> Option<PathBuf> {
    let writable = |place: &PathBuf| access(place, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
    places().into_iter().find(writable)
}

/// Returns the places for a run's folder, the preferred ones first.
fn places() -> Vec<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let temporary = env::temp_dir();
    // The watcher's working directory is another one.
    let usual = runtime.into_iter().chain([temporary.clone()]);
    let usual: Vec<PathBuf> = usual.filter(|path| path.is_absolute()).collect();
    // A ledger requires tmpfs. On other file systems a lock may not stay with a mapping, and every
    // written page goes to a disk. A folder on another file system is still better than none: after
    // `su`, the runtime folder may be another user's, and /dev/shm may not exist.
    let first = usual.iter().cloned().chain([SHARED_MEMORY.into()]);
    let mut first: Vec<PathBuf> = first.filter(|place| is_on_tmpfs(place)).collect();
    // The other commands of root would take a run whose folder they do not see for one that has ended.
    first.sort_by_key(|place| *place == temporary && is_elsewhere());
    // Programs started by root may change to another user, who must be able to enter the place.
    let root = geteuid().is_root();
    first.sort_by_key(|place| root && !everybody_comes_to(place));
    first.extend(usual);
    first
}

/// Checks whether this process has mounts of its own, as a service with `PrivateTmp=` has. Only root can
/// know.
fn is_elsewhere() -> bool {
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    let (own, first) = (namespace("self"), namespace("1"));
    first.is_some() && own != first
}

fn make(owner: Option<ProcessId>) -> io::Result<(PathBuf, Watcher)> {
    let mut random = [0; 6];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let letters = random.map(|byte| char::from(b'a'.saturating_add(byte % 26)));
    let name = format!("{}{}", run_dir::PREFIX, String::from_iter(letters));
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for place in places() {
        let folder = place.join(&name);
        match watcher::start(&folder, owner) {
            Ok(watcher) => return Ok((folder, watcher)),
            Err(StartError::Folder(error)) => failed = error,
            Err(error @ StartError::Watcher(_)) => return Err(io::Error::other(error)),
        }
    }
    Err(failed)
}

/// Checks that any user can pass through the folder and all its ancestors.
fn everybody_comes_to(place: &Path) -> bool {
    let passable = |folder: &Path| {
        let facts = folder.metadata();
        facts.is_ok_and(|facts| facts.permissions().mode() & 0o001 != 0)
    };
    let place = place.canonicalize();
    place.is_ok_and(|place| place.ancestors().all(passable))
}

/// Checks that a folder is on tmpfs.
#[must_use]
pub(crate) fn is_on_tmpfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}
