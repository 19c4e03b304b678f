//! The slices of this machine's containers: one file for each, changed under one lock.
//! Touches: the host's folder of slices.
//! Law: a record is written before any resource of its slice is created, and removed after the last
//! of them. It is replaced as a whole. So no resource is left without a record.

mod bytes;
mod some_bytes;

use crate::base::paths::HostPaths;
use crate::base::{files, read, sys};
use crate::machine::pod::Pod;
use crate::machine::process::InitProcess;
use crate::slices::removal::HostError;
use crate::slices::{run_folder, tenants};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The bytes that are read of a record.
const CAP: usize = 1 << 20;

/// How long a hook waits for the lock. Other hooks hold it for about a millisecond.
const PATIENCE: Duration = Duration::from_secs(30);
const SHORT_PATIENCE: Duration = Duration::from_secs(5);

/// A slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRecord {
    /// The version of this file's format.
    pub version: u32,
    /// Its id: the container's, its pod's, or that of a named slice.
    pub slice: String,
    /// Its display name.
    pub name: String,
    /// The namespace whose share it counts against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether several containers may share it: those of a pod, or those that name it.
    #[serde(default)]
    pub shared: bool,
    /// The whole id of the sandbox of that pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The names by which containers share it, those of their claims: in order, with commas between
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The admitted budgets.
    pub devices: Vec<DeviceBudget>,
    /// The host memory that it was promised, where that is less than its budget: it is
    /// over-committed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "some_bytes")]
    pub promised: Option<Bytes>,
    /// The budgets that its containers ask for, once it has been resized. A container that joins or
    /// is started again asks for these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_resize: Option<Vec<DeviceBudget>>,
    /// The containers that use it.
    pub containers: Vec<Member>,
}

/// A slice's budget of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBudget {
    /// The GPU.
    #[serde(with = "crate::base::uuid_text")]
    pub uuid: DeviceUuid,
    /// The size.
    #[serde(with = "bytes")]
    pub memory: Bytes,
    /// Whether it is the host's memory.
    pub integrated: bool,
}

/// A container with a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// Its first process.
    #[serde(flatten)]
    pub owner: InitProcess,
    /// Its bundle, which distinguishes containers of different runtimes with the same id.
    pub bundle: PathBuf,
    /// The folders whose resident pages are dropped when it has stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<PathBuf>,
    /// Why it runs without its slice, if the library could not be loaded into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_slice: Option<String>,
    /// The reason why the slice does not limit some of its programs; the others load the library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_limited: Option<String>,
    /// The names of the slices that its hooks give, where its record has none: with commas between
    /// them. Other containers do not share this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<String>,
    /// Its place in Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
}

impl SliceRecord {
    /// The version that this code writes and reads.
    pub const VERSION: u32 = 1;

    /// Whether a slice was made. A container that started without one because of a failure is
    /// recorded without budgets, and has no files.
    #[must_use]
    pub fn has_slice(&self, places: &HostPaths) -> bool {
        let is_made =
            |one: &Member| one.no_slice.is_none() || places.container_root(&one.id).exists();
        !self.devices.is_empty() || self.containers.iter().any(is_made)
    }

    /// The budgets that its containers ask for.
    #[must_use]
    pub fn annotated(&self) -> &[DeviceBudget] {
        self.before_resize.as_ref().unwrap_or(&self.devices)
    }

    /// The host memory that it was promised.
    #[must_use]
    pub fn unified(&self) -> Bytes {
        self.promised.unwrap_or_else(|| unified(&self.devices))
    }
}

/// The host memory that the budgets promise.
#[must_use]
pub fn unified(budgets: &[DeviceBudget]) -> Bytes {
    let shared = budgets.iter().filter(|budget| budget.integrated);
    shared.fold(Bytes::ZERO, |sum, budget| sum.plus(budget.memory))
}

/// Why the slices cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file operation failed.
    #[error("cannot {doing} {path}")]
    File {
        /// The operation.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The folders cannot be created.
    #[error(transparent)]
    Folder(#[from] HostError),
    /// A record cannot be read.
    #[error(
        "{damaged}: the memory of its container is unknown, so no slice is admitted (once that \
         container is gone, run gpuslice gc --force)"
    )]
    Damaged {
        /// The record.
        damaged: Damaged,
    },
    /// Another process has held the lock for too long.
    #[error("another gpuslice process has not released the lock {0} in time (try again)")]
    Locked(PathBuf),
}

/// Why other users' runs do not count a slice.
#[derive(Debug, thiserror::Error)]
#[error("the runs of other users do not count its memory: cannot write to {folder}: {error}")]
pub struct Uncounted {
    folder: PathBuf,
    error: io::Error,
}

/// A record that cannot be read, or whose content is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its file.
    pub path: PathBuf,
    /// The slice, by the file's name.
    pub slice: String,
    /// The error.
    pub why: String,
    /// The remaining text.
    pub text: Vec<u8>,
}

impl fmt::Display for Damaged {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damaged { path, why, .. } = self;
        write!(
            out,
            "{} is not a valid slice record ({why})",
            path.display()
        )
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RegistryError {
    let path = path.to_owned();
    move |source| RegistryError::File {
        doing,
        path,
        source,
    }
}

/// The registry while its lock is held, which permits changes.
#[derive(Debug)]
pub struct Registry<'a> {
    paths: &'a HostPaths,
    _lock: Flock<File>,
}

impl<'a> Registry<'a> {
    /// Waits for the lock. Creates missing folders.
    ///
    /// # Errors
    /// When they cannot be created, or the lock is not released in time.
    pub fn lock(paths: &'a HostPaths) -> Result<Registry<'a>, RegistryError> {
        Registry::lock_within(paths, PATIENCE)
    }

    /// Like [`Registry::lock`], but with a shorter time limit: for work that the next caller can do
    /// as well.
    ///
    /// # Errors
    /// As [`Registry::lock`].
    pub fn lock_soon(paths: &'a HostPaths) -> Result<Registry<'a>, RegistryError> {
        Registry::lock_within(paths, SHORT_PATIENCE)
    }

    fn lock_within(
        paths: &'a HostPaths,
        patience: Duration,
    ) -> Result<Registry<'a>, RegistryError> {
        run_folder::make(paths)?;
        let path = paths.lock();
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = sys::make(&path, flags, 0o600).map_err(failed("open", &path))?;
        let lock = wait_for(file, &path, patience)?;
        Ok(Registry { paths, _lock: lock })
    }

    /// The paths on the host.
    #[must_use]
    pub fn paths(&self) -> &'a HostPaths {
        self.paths
    }

    /// All slices, by their files.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn records(&self) -> Result<Vec<SliceRecord>, RegistryError> {
        all_readable(self.survey()?)
    }

    /// Like [`Registry::records`], but returns the damaged records as well. Removes the files of
    /// hooks that were killed while they wrote a record: the lock keeps other writers out.
    ///
    /// # Errors
    /// When the records cannot be listed, or such a file cannot be removed.
    pub fn survey(&self) -> Result<(Vec<SliceRecord>, Vec<Damaged>), RegistryError> {
        let mut unfinished = Vec::new();
        let found = read_all(self.paths, |path| unfinished.push(path))?;
        for path in unfinished {
            files::remove(&path).map_err(failed("remove", &path))?;
        }
        Ok(found)
    }

    /// Writes a record, as a whole. Returns why other users' runs do not count it, if they do not.
    ///
    /// # Errors
    /// When it cannot be written; the old one is then still there.
    pub fn write(&self, record: &SliceRecord) -> Result<Option<Uncounted>, RegistryError> {
        let path = self.paths.slice(&record.slice);
        let text = serde_json::to_vec(record).unwrap_or_default();
        let written = files::replace(&path, &text, 0o600);
        written.map_err(failed("write", &path))?;
        // Runs of other users cannot read the record itself, so it is also published among the
        // tenants. A user who fills the tenants' folder must not be able to stop containers from
        // starting.
        let is_published = record.devices.iter().any(|budget| !budget.integrated);
        let published = is_published.then(|| tenants::publish(self.paths, record));
        let folder = self.paths.run().join(tenants::FOLDER);
        Ok(published
            .and_then(Result::err)
            .map(|error| Uncounted { folder, error }))
    }

    /// Removes a record.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, slice: &str) -> Result<(), RegistryError> {
        let path = self.paths.slice(slice);
        let _ = tenants::withdraw(self.paths, slice);
        files::remove(&path).map_err(failed("remove", &path))
    }
}

/// All slices, by their files, without the lock: a snapshot of one moment.
///
/// # Errors
/// When one cannot be read.
pub fn records(paths: &HostPaths) -> Result<Vec<SliceRecord>, RegistryError> {
    all_readable(survey(paths)?)
}

fn all_readable(
    (records, damaged): (Vec<SliceRecord>, Vec<Damaged>),
) -> Result<Vec<SliceRecord>, RegistryError> {
    match damaged.into_iter().next() {
        Some(damaged) => Err(RegistryError::Damaged { damaged }),
        None => Ok(records),
    }
}

/// Like [`records`], but returns the damaged records as well.
///
/// # Errors
/// When they cannot be listed.
pub fn survey(paths: &HostPaths) -> Result<(Vec<SliceRecord>, Vec<Damaged>), RegistryError> {
    read_all(paths, |_| {})
}

/// Reads all records, and calls `unfinished` for each file that has not become a record.
fn read_all(
    paths: &HostPaths,
    mut unfinished: impl FnMut(PathBuf),
) -> Result<(Vec<SliceRecord>, Vec<Damaged>), RegistryError> {
    let folder = paths.slices();
    let listed = match sys::names(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(failed("read", &folder)),
    };
    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    for name in listed? {
        let path = folder.join(name);
        match path.extension() {
            Some(extension) if extension == "json" => {}
            Some(extension) if extension == files::NEW => {
                unfinished(path);
                continue;
            }
            _ => continue,
        }
        let (text, read) = match read::file(&path, CAP) {
            // Without the lock, it may have been removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => continue,
            Err(error) => (Vec::new(), Err(error.to_string())),
            Ok(text) => {
                let read = serde_json::from_slice(&text);
                (text, read.map_err(|error| error.to_string()))
            }
        };
        match read {
            Ok(record) => records.push(record),
            Err(why) => damaged.push(Damaged {
                slice: path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                path,
                why,
                text,
            }),
        }
    }
    Ok((records, damaged))
}

fn wait_for(mut file: File, path: &Path, patience: Duration) -> Result<Flock<File>, RegistryError> {
    let started = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EWOULDBLOCK | Errno::EINTR)) => file = again,
            Err((_, error)) => return Err(failed("lock", path)(error.into())),
        }
        if started.elapsed() > patience {
            return Err(RegistryError::Locked(path.to_owned()));
        }
        std::thread::sleep(pause);
        pause = pause.saturating_mul(2).min(Duration::from_millis(2));
    }
}
