//! A folder that only this user can read, and that is gone when the last process that was given it
//! is gone, however that process ends. What root makes can be entered by who knows what is in it:
//! a program that goes on as another user still has to come to its ledger.
//! Touches: $XDG_RUNTIME_DIR, $TMPDIR or /dev/shm, one child process.

use crate::tidy_up::{self, Watcher};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::geteuid;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folder. Dropping it removes it; should this process become another program or be
/// killed, a watcher removes it when that program, and all that it started, has ended.
///
/// The watcher makes it: so there is no moment in which nobody would remove it.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    watcher: Watcher,
}

impl PrivateDir {
    /// Starts a watcher, which makes the folder.
    ///
    /// # Errors
    /// When neither place can be written to, or the watcher cannot be started.
    pub fn create() -> io::Result<PrivateDir> {
        // A watcher inherits that nothing but SIGKILL ends it.
        let mut before = SigSet::empty();
        let set = Some(&SigSet::all());
        pthread_sigmask(SigmaskHow::SIG_SETMASK, set, Some(&mut before))?;
        let made = make();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        made.map(|(path, watcher)| PrivateDir { path, watcher })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The watcher's process, where it is known.
    #[must_use]
    pub fn watcher(&self) -> Option<i32> {
        self.watcher.pid()
    }

    /// Has the watcher keep one file of it open, and says where: `/proc/PID/fd/N`.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn keep(&mut self, file: &Path) -> io::Result<PathBuf> {
        self.watcher.keep(file)
    }

    /// Has the watcher lock a file that stands for the run elsewhere, as long as it watches.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn hold(&mut self, file: &Path) -> io::Result<()> {
        self.watcher.hold(file)
    }

    /// Whether it can hold a ledger.
    #[must_use]
    pub fn is_on_tmpfs(&self) -> bool {
        is_on_tmpfs(self.path())
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // What is left is the watcher's.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Where the memory of the machine is mounted on nearly every Linux, and in every container.
const SHARED_MEMORY: &str = "/dev/shm";

fn make() -> io::Result<(PathBuf, Watcher)> {
    let runtime = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let usual: Vec<PathBuf> = runtime.into_iter().chain([env::temp_dir()]).collect();
    // A ledger lives on tmpfs: on other file systems a lock may not stay with a mapping, and
    // every page that is written goes to a disk. A place without it is better than none: the
    // runtime folder may be another user's, left by `su`, and /dev/shm may not be there.
    let first = usual.iter().cloned().chain([SHARED_MEMORY.into()]);
    let mut first: Vec<PathBuf> = first.filter(|place| is_on_tmpfs(place)).collect();
    // Root's programs may go on as somebody else, who must be able to come there.
    let root = geteuid().is_root();
    first.sort_by_key(|place| root && !everybody_comes_to(place));
    let mut random = [0; 6];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let letters = random.map(|byte| char::from(b'a'.saturating_add(byte % 26)));
    let name = format!("{}{}", tidy_up::PREFIX, String::from_iter(letters));
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for place in first.into_iter().chain(usual) {
        let folder = place.join(&name);
        match tidy_up::start(&folder) {
            Ok(watcher) => return Ok((folder, watcher)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Whether any user can pass through the folder and all that it is in.
fn everybody_comes_to(place: &Path) -> bool {
    let passable = |folder: &Path| {
        let facts = folder.metadata();
        facts.is_ok_and(|facts| facts.permissions().mode() & 0o001 != 0)
    };
    let place = place.canonicalize();
    place.is_ok_and(|place| place.ancestors().all(passable))
}

fn is_on_tmpfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}
