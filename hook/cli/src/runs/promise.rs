//! The promise of a run on unified memory: a file with the memory that the slice was admitted for.
//! The slice adds the memory that it has used.
//! Touches: the promises' folder and the lock beside it; /proc; the registry.
//!
//! All slices of a machine share the folder. A promise lasts as long as its run. The run's watcher
//! removes it. If the watcher was killed too, the next run that makes a promise removes it.

use crate::runs::admission::{self, Full, Neighbour, Promised, Room};
use crate::runs::former::{self, Owners};
use crate::runs::host_memory::HostMemoryError;
use crate::runs::promise_maker::{self, is_same, maker};
use crate::runs::registry::{self, Remains};
use crate::runs::run_dir;
use gpuslice_config::host::meminfo::HostMemory;
use gpuslice_config::promises::{self, ReadPromise};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::run_folder;
use gpuslice_host::slices::tenants;
use nix::fcntl::OFlag;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the promises' folder, in whichever folder it lies.
pub(crate) const FOLDER: &str = "promises";

/// The OCI hook's folder for the promises of containers.
pub(super) const CONTAINERS: &str = "/run/gpuslice/promises";

/// The longest time a run waits for memory that another run is about to free. A restarted service
/// depends on this wait.
const PATIENCE: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(20);

/// Reasons why no promise can be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PromiseError {
    /// The promise's file cannot be created.
    #[error("cannot create a promise in {folder}, the folder shared by all slices of this machine")]
    Make {
        /// The promises' folder.
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The slice does not fit on the host.
    #[error(
        "{0}\nUse --overcommit to start anyway; FREE is then the memory that is actually free on the \
         host"
    )]
    Full(Full),
    /// The host's memory cannot be read.
    #[error(transparent)]
    Host(#[from] HostMemoryError),
}

/// The promises of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Promises {
    folder: PathBuf,
    /// The folder of the containers' promises, which count too.
    containers: Option<PathBuf>,
    simulated: bool,
    /// The owners of a new promise. None if this process's former slices count like any other.
    owners: Option<Owners>,
}

/// A run's own promise. Dropping it withdraws the promise. If the run executes its command, the
/// watcher withdraws the promise instead.
#[derive(Debug)]
pub(crate) struct OwnPromise {
    /// The promise's file; None for a slice that was promised no memory.
    pub file: Option<PathBuf>,
    /// The folder that holds the promises of all slices.
    pub folder: PathBuf,
    /// The cause, if the promise is smaller than the slice's budget.
    pub overcommitted: Option<Full>,
}

impl Drop for OwnPromise {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

impl Promises {
    /// Returns the promises that this user's runs consider. A simulated machine has its own.
    #[must_use]
    pub(crate) fn of(simulated: Option<&Path>) -> Promises {
        match simulated {
            Some(state) => Promises {
                owners: Some(Owners::of(None, None)),
                ..Promises::in_folder(&state.join(FOLDER))
            },
            None => {
                let folder = registry::shared_folder().join(FOLDER);
                let containers = Some(PathBuf::from(CONTAINERS));
                Promises {
                    containers: containers.filter(|containers| *containers != folder),
                    folder,
                    simulated: false,
                    owners: Some(Owners::of(None, None)),
                }
            }
        }
    }

    /// Returns the promises in one folder, without those of containers.
    #[must_use]
    pub(crate) fn in_folder(folder: &Path) -> Promises {
        Promises {
            folder: folder.to_owned(),
            containers: None,
            simulated: true,
            owners: None,
        }
    }

    /// Returns the promises beside that of a run of any user. A run on a simulated machine counts no
    /// containers.
    #[must_use]
    pub(crate) fn beside(file: &Path, simulated: bool) -> Promises {
        let folder = file.parent().unwrap_or(file);
        let containers = Some(PathBuf::from(CONTAINERS));
        Promises {
            containers: containers.filter(|containers| !simulated && containers != folder),
            simulated,
            ..Promises::in_folder(folder)
        }
    }

    /// Names the owners of a new promise: the run's watcher, if a former slice of its process still
    /// has one.
    #[must_use]
    pub(crate) fn owned_by(self, owners: Owners) -> Promises {
        Promises {
            owners: self.owners.map(|_| owners),
            ..self
        }
    }

    /// Checks whether a promise belongs to a former slice of this process that has ended.
    fn has_ended(&self, held: &ReadPromise) -> bool {
        let own = self.owners.and_then(|owners| owners.this());
        let is_own = own.is_some() && maker(&held.slice).map(|maker| maker.process) == own;
        is_own
            && self
                .file(held)
                .is_some_and(|file| !former::is_used(run_dir::PROMISE, |used| is_same(used, &file)))
    }

    fn file(&self, held: &ReadPromise) -> Option<PathBuf> {
        let name = promises::file_name(held.budget, &held.slice)?;
        Some(self.folder.join(name))
    }

    /// Returns the promises in force. Removes the promises of runs that have ended.
    #[must_use]
    pub(crate) fn standing(&self) -> Vec<Neighbour> {
        self.standing_and(Remains::Remove)
    }

    /// Returns the promises in force, and removes nothing.
    #[must_use]
    pub(crate) fn standing_now(&self) -> Vec<Neighbour> {
        self.standing_and(Remains::Keep)
    }

    /// Returns the promises in force.
    pub(crate) fn standing_and(&self, remains: Remains) -> Vec<Neighbour> {
        self.standing_beside(None, remains)
    }

    /// Returns the promises in force, without that of the slice with this id.
    pub(super) fn standing_beside(&self, id: Option<&str>, remains: Remains) -> Vec<Neighbour> {
        let own = promises::read_folder(&self.folder).unwrap_or_default();
        let containers = self.containers.as_deref().map(promises::read_folder);
        let living = own.into_iter().filter(|held| {
            let lives = tenants::stands(&self.folder, held)
                || maker(&held.slice)
                    .is_some_and(|owner| owner.has_left_something(&self.folder, remains));
            let removes = !lives && remains == Remains::Remove;
            if removes && let Some(file) = self.file(held) {
                let _ = fs::remove_file(file);
            }
            lives && !self.has_ended(held) && Some(held.slice.as_str()) != id
        });
        let all = living.chain(containers.into_iter().flatten().flatten());
        all.map(|held| Neighbour {
            name: maker(&held.slice).map_or_else(|| held.slice.clone(), |maker| maker.shown()),
            budget: held.budget,
            unused: held.unused,
        })
        .collect()
    }

    /// Returns the first process of a run with that name, if any.
    #[must_use]
    pub(crate) fn run_called(&self, name: &str) -> Option<i32> {
        let held = tenants::promised(&self.folder).unwrap_or_default();
        let others = held.iter().filter(|held| !self.has_ended(held));
        let mut makers = others.filter_map(|held| maker(&held.slice));
        let same = makers.find(|maker| maker.name == name.replace('/', "_"));
        same.map(|maker| maker.process.pid)
    }

    /// Admits a slice and records its promise. A lock ensures that only one slice is admitted at a
    /// time.
    ///
    /// # Errors
    /// When the slice does not fit and `overcommit` is false; when the host's memory cannot be read
    /// or the folder cannot be used.
    pub(crate) fn make(
        &self,
        name: &str,
        budget: Bytes,
        host: impl Fn() -> Result<HostMemory, HostMemoryError>,
        reserve: Bytes,
        overcommit: bool,
    ) -> Result<OwnPromise, PromiseError> {
        let failed = |source| PromiseError::Make {
            folder: self.folder.clone(),
            source,
        };
        // Only a decision under the lock counts: a plan made before may be outdated.
        let (_lock, promised) =
            self.decide(budget, host, reserve, overcommit, Remains::Remove, || {
                self.lock().map_err(failed)
            })?;
        self.withdraw_ended();
        let file = promises::file_name(promised.memory, &self.own_id(name));
        let file = file.map(|file| self.folder.join(file));
        if let Some(path) = &file {
            promise_maker::write(path).map_err(failed)?;
        }
        Ok(OwnPromise {
            file,
            folder: self.folder.clone(),
            overcommitted: promised.overcommitted,
        })
    }

    /// Returns the promise that [`Promises::make`] would record at this moment. Takes no lock and
    /// changes no file, so another run may be admitted before this one.
    ///
    /// # Errors
    /// When the slice does not fit and `overcommit` is false.
    pub(crate) fn preview(
        &self,
        budget: Bytes,
        host: impl Fn() -> Result<HostMemory, HostMemoryError>,
        reserve: Bytes,
        overcommit: bool,
    ) -> Result<Promised, PromiseError> {
        let decided = self.decide(budget, host, reserve, overcommit, Remains::Keep, || Ok(()));
        decided.map(|((), promised)| promised)
    }

    /// Returns the folder that holds the promises.
    #[must_use]
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Decides how much a slice is promised, under a lock. Waits for memory that a run is about to
    /// free.
    fn decide<L>(
        &self,
        budget: Bytes,
        host: impl Fn() -> Result<HostMemory, HostMemoryError>,
        reserve: Bytes,
        overcommit: bool,
        remains: Remains,
        lock: impl Fn() -> Result<L, PromiseError>,
    ) -> Result<(L, Promised), PromiseError> {
        let start = Instant::now();
        loop {
            // The lock is dropped before sleeping, because the OCI hook takes it too and waits only
            // briefly.
            let lock = lock()?;
            let lingering = self.lingering() && start.elapsed() < PATIENCE;
            let standing = || self.standing_and(remains);
            let room = Room::beside(standing, &host, reserve)?;
            if !lingering || room.admit(budget).is_ok() {
                let promised = admission::promise(&room, budget, overcommit);
                return Ok((lock, promised.map_err(PromiseError::Full)?));
            }
            drop(lock);
            std::thread::sleep(INTERVAL);
        }
    }

    /// Checks whether any promise belongs to a run whose command has ended. Its watcher is about to
    /// withdraw that promise, unless the command has left processes in the background.
    fn lingering(&self) -> bool {
        let own = promises::read_folder(&self.folder).unwrap_or_default();
        let mut owners = own.iter().filter_map(|held| maker(&held.slice));
        owners.any(|maker| !maker.process.lives())
    }

    /// Withdraws the promises of former slices of this process that have ended.
    fn withdraw_ended(&self) {
        let own = promises::read_folder(&self.folder).unwrap_or_default();
        let ended = own.iter().filter(|held| self.has_ended(held));
        for file in ended.filter_map(|held| self.file(held)) {
            let _ = fs::remove_file(file);
        }
    }

    /// Returns the id of a new promise, which names its owner.
    fn own_id(&self, name: &str) -> String {
        let owners = self.owners.unwrap_or_else(|| Owners::of(None, None));
        let own = promises::read_folder(&self.folder).unwrap_or_default();
        let is_taken = self.owners.is_some()
            && own
                .iter()
                .any(|held| maker(&held.slice).is_some_and(|maker| maker.process == owners.own));
        tenants::promise_id(&owners.of_record(is_taken), &name.replace('/', "_"))
    }

    /// Takes the lock under which promises are made and changed.
    pub(super) fn lock(&self) -> io::Result<File> {
        let beside = self.folder.parent().unwrap_or(&self.folder);
        if self.folder == Path::new(CONTAINERS) {
            return lock_beside_containers(beside);
        }
        // The folder of another user's run exists, and its user has checked it.
        if !self.simulated && self.owners.is_some() {
            registry::make(beside)?;
        }
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        lock_in(beside)
    }
}

/// Locks the folder that root's runs share with containers. Creates it with the OCI hook's modes.
fn lock_beside_containers(folder: &Path) -> io::Result<File> {
    let places = HostPaths::default();
    run_folder::make(&places).map_err(io::Error::other)?;
    let lock = lock_in(folder)?;
    run_folder::make_promises_if_host(&places).map_err(io::Error::other)?;
    Ok(lock)
}

/// Locks a folder. Waits 30 s, as the OCI hook does, because a process that holds the lock may be stopped.
fn lock_in(folder: &Path) -> io::Result<File> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(folder.join("lock"))?;
    for _ in 0..15_000 {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(2)),
            tried => return tried.map(|()| lock).map_err(io::Error::from),
        }
    }
    let place = folder.join("lock").display().to_string();
    Err(io::Error::other(format!(
        "another process has held {place} locked for 30 s (see fuser)"
    )))
}

/// Links a run's promise into its private folder, for the watcher.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn remember(private: &Path, promise: &OwnPromise) -> io::Result<()> {
    match &promise.file {
        Some(file) => symlink(file, private.join(run_dir::PROMISE)),
        None => Ok(()),
    }
}

/// Withdraws the promise of a run that has ended, as its private folder names it.
pub(crate) fn forget(private: &Path) {
    if let Ok(file) = fs::read_link(private.join(run_dir::PROMISE)) {
        promise_maker::withdraw(&file);
    }
}

#[cfg(test)]
#[path = "promise_tests.rs"]
mod tests;
