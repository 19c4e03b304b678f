//! Tenants: slices on GPUs with memory of their own. They belong to containers, and to the runs of
//! every user.
//! Touches: one folder of small files, and /proc.
//! Law: a record counts only while its owner is alive, and its owner must be a process of the user
//! who owns the file. So a forged record claims no more than a run of that user could.
//!
//! The folder is `/run/gpuslice/tenants`. All users may write to it, so it is a file system of its
//! own that cannot fill the host's. A run's record is the file `run.<pid>.<start time>`, owned by
//! its user. A container's record is `container.<slice>`, owned by root; it exists as long as the
//! hook's own record. A run's watcher holds a write lock on the run's record, which only that user
//! or root can take. The run lives as long as its first process or the lock; the command also keeps
//! the record of a run of which other processes are left.

use crate::base::paths::HostPaths;
use crate::base::read;
use crate::base::sys;
use crate::base::text::shown;
use crate::machine::process::ProcessId;
use crate::slices::record_lock::is_locked;
use crate::slices::records::{DeviceBudget, SliceRecord};
use gpuslice_config::promises::{self, ReadPromise};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use nix::fcntl::{AT_FDCWD, OFlag};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folder's name, below any parent.
pub const FOLDER: &str = "tenants";

/// The bytes that are read of a record.
const CAP: usize = 16 << 10;

/// The file system's size, and its number of files: 1,000 tenants.
const MOUNT: [(&std::ffi::CStr, &std::ffi::CStr); 3] =
    [(c"size", c"4m"), (c"nr_inodes", c"1k"), (c"mode", c"1777")];

/// A tenant of GPUs with memory of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its record.
    pub file: PathBuf,
    /// The user who wrote the record.
    pub uid: u32,
    /// The run's first process; None for containers.
    pub owner: Option<ProcessId>,
    /// The name shown to users.
    pub name: String,
    /// The memory that it was admitted for.
    pub devices: Vec<DeviceBudget>,
}

impl Tenant {
    /// The memory of one card that it was admitted for, at most the card's total.
    #[must_use]
    pub fn of_card(&self, card: DeviceUuid, total: Bytes) -> Bytes {
        let same = self.devices.iter().filter(|budget| budget.uuid == card);
        let sum = same.fold(Bytes::ZERO, |sum, budget| sum.plus(budget.memory));
        sum.at_most(total)
    }

    /// A tenant as messages name it.
    #[must_use]
    pub fn shown(&self, reader: u32) -> String {
        let name = shown(&self.name);
        match self.owner {
            None => name,
            Some(owner) if self.uid == reader => format!("{name} (pid {})", owner.pid),
            Some(owner) => format!("{name} (pid {}, uid {})", owner.pid, self.uid),
        }
    }
}

/// The text of a record.
#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    name: String,
    devices: Vec<DeviceBudget>,
}

const VERSION: u32 = 1;

const RUN: &str = "run.";
const CONTAINER: &str = "container.";
const NEW: &str = "new.";

/// Creates the folder for every user of this machine if it is missing. Under another root it is a
/// plain folder of the caller's.
///
/// # Errors
/// The kernel's.
pub fn make(paths: &HostPaths) -> io::Result<()> {
    let folder = paths.run().join(FOLDER);
    match DirBuilder::new().mode(0o755).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if paths.root() != Path::new("/") || !may_mount(&folder)? {
        return Ok(());
    }
    let attributes = sys::NOSUID | sys::NODEV | sys::NOEXEC;
    let mount = sys::new_mount(c"tmpfs", &MOUNT, attributes)?;
    sys::attach_at(mount.as_fd(), AT_FDCWD, &folder)
}

/// Whether to mount a file system at the folder: none is mounted there yet, the folder is empty,
/// and every process of the host would see the mount. The last check is needed because a service
/// may have a mount namespace of its own.
fn may_mount(folder: &Path) -> io::Result<bool> {
    let above = folder.parent().unwrap_or(folder);
    let is_mount = fs::symlink_metadata(folder)?.dev() != fs::metadata(above)?.dev();
    let mounts = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let shared = mounts("self").is_some_and(|own| Some(own) == mounts("1"));
    Ok(!is_mount && shared && sys::names(folder)?.is_empty())
}

/// The live tenants of a folder, by name. A missing folder has none. `is_used` says whether a run uses
/// a record whose owner and watcher are gone.
#[must_use]
pub fn living(folder: &Path, is_used: impl Fn(&Path) -> bool) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for name in sys::names(folder).unwrap_or_default() {
        let Some(name) = name.to_str() else { continue };
        if let TenantFile::Living(tenant) = look_at(folder, name, &is_used) {
            tenants.push(tenant);
        }
    }
    tenants
}

/// Removes the records of dead tenants that this user may remove. Root also removes files that are
/// not records. `is_used` is that of [`living`].
pub fn remove_dead(folder: &Path, is_used: impl Fn(&Path) -> bool) {
    let root = nix::unistd::geteuid().is_root();
    for name in sys::names(folder).unwrap_or_default() {
        let name = name.to_string_lossy().into_owned();
        let removes = match look_at(folder, &name, &is_used) {
            TenantFile::Dead => true,
            TenantFile::Nothing => root,
            TenantFile::Living(_) | TenantFile::New => false,
        };
        if removes {
            let _ = fs::remove_file(folder.join(&name));
        }
    }
}

/// Removes records of containers' slices for which the hook has no record any more.
pub fn keep_containers(paths: &HostPaths, is_known: impl Fn(&str) -> bool) {
    let folder = paths.run().join(FOLDER);
    for name in sys::names(&folder).unwrap_or_default() {
        let slice = name.to_str().and_then(|name| name.strip_prefix(CONTAINER));
        if slice.is_some_and(|slice| !is_known(slice)) {
            let _ = fs::remove_file(folder.join(&name));
        }
    }
}

/// The kind of a file in the folder.
enum TenantFile {
    Living(Tenant),
    /// A record whose owner is gone, or whose writer had no right to it.
    Dead,
    /// A record that is being written.
    New,
    /// Not a record.
    Nothing,
}

fn look_at(folder: &Path, name: &str, is_used: &impl Fn(&Path) -> bool) -> TenantFile {
    let path = folder.join(name);
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = sys::open(&path, flags).and_then(|file| Ok((file.metadata()?, file)));
    let (facts, file) = match opened {
        Ok((facts, file)) if facts.is_file() => (facts, file),
        // It may be a record: this process has no descriptor or no memory to see.
        Err(error) if sys::is_passing(&error) => return TenantFile::New,
        _ => return TenantFile::Nothing,
    };
    let uid = facts.uid();
    if let Some(rest) = name.strip_prefix(NEW) {
        let writes = owner_named(rest).is_some_and(|owner| belongs(owner, uid));
        let root = uid == 0 && rest.starts_with(CONTAINER);
        return if writes || root {
            TenantFile::New
        } else {
            TenantFile::Dead
        };
    }
    let owner = match name.strip_prefix(CONTAINER) {
        // A record without a process is accepted only from root.
        Some(_) if uid == 0 => None,
        Some(_) => return TenantFile::Dead,
        None => match name.strip_prefix(RUN).and_then(owner_named) {
            Some(owner) => Some(owner),
            None => return TenantFile::Nothing,
        },
    };
    let is_held = |owner| belongs(owner, uid) || is_locked(&file) || is_used(&path);
    if owner.is_some_and(|owner| !is_held(owner)) {
        return TenantFile::Dead;
    }
    let text = read::capped(&file, CAP).ok();
    let text = text.and_then(|text| serde_json::from_slice::<Text>(&text).ok());
    match text.filter(|text| text.version == VERSION) {
        Some(text) => TenantFile::Living(Tenant {
            file: path,
            uid,
            owner,
            name: text.name,
            devices: text.devices,
        }),
        None => TenantFile::Nothing,
    }
}

/// The process that a file name denotes. Only the canonical spelling is accepted, so a record has
/// one name.
fn owner_named(name: &str) -> Option<ProcessId> {
    let (pid, start_time) = name.split_once('.')?;
    let owner = ProcessId {
        pid: pid.parse().ok()?,
        start_time: start_time.parse().ok()?,
    };
    (run_name(&owner) == name && owner.pid > 0).then_some(owner)
}

fn run_name(owner: &ProcessId) -> String {
    format!("{}.{}", owner.pid, owner.start_time)
}

/// Whether the process is alive and belongs to that user. A process that root has started may
/// continue as another user.
fn belongs(owner: ProcessId, uid: u32) -> bool {
    owner.lives() && (uid == 0 || uids(owner.pid).contains(&uid))
}

/// A process's user ids.
fn uids(pid: i32) -> Vec<u32> {
    let text = read::file(&PathBuf::from(format!("/proc/{pid}/status")), CAP);
    let text = text.unwrap_or_default();
    // The kernel cuts a process's name after 15 bytes, even inside a character.
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"));
    let numbers = line.into_iter().flat_map(str::split_ascii_whitespace);
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The prefix of a run's id among the ids that were promised unified memory. No engine gives a
/// container an id with this letter.
const PROMISED: &str = "run@";

/// The id under which a run is promised unified memory.
#[must_use]
pub fn promise_id(owner: &ProcessId, name: &str) -> String {
    format!("{PROMISED}{}.{name}", run_name(owner))
}

/// The run that an id denotes, and its display name; `None` if it is not the id of a run.
#[must_use]
pub fn promise_owner(id: &str) -> Option<(ProcessId, &str)> {
    let rest = id.strip_prefix(PROMISED)?;
    let mut dots = rest.match_indices('.').map(|(at, _)| at);
    let (owner, name) = rest.split_at_checked(dots.nth(1)?)?;
    Some((owner_named(owner)?, name.get(1..)?))
}

/// The valid promises of a folder.
///
/// # Errors
/// When the folder cannot be read.
pub fn promised(folder: &Path) -> io::Result<Vec<ReadPromise>> {
    let mut held = promises::read_folder(folder)?;
    held.retain(|held| stands(folder, held));
    Ok(held)
}

/// Whether a promise is valid. A container's promise is valid while it exists. A run's is valid
/// while its first process lives or its watcher holds the lock on it.
#[must_use]
pub fn stands(folder: &Path, held: &ReadPromise) -> bool {
    let Some((owner, _)) = promise_owner(&held.slice) else {
        return true;
    };
    let name = promises::file_name(held.budget, &held.slice).unwrap_or_default();
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let locked = || sys::open(&folder.join(name), flags).is_ok_and(|file| is_locked(&file));
    owner.lives() || locked()
}

/// Writes a run's record, as a whole, and returns its path.
///
/// # Errors
/// The kernel's.
pub fn write(
    folder: &Path,
    owner: &ProcessId,
    name: &str,
    devices: &[DeviceBudget],
) -> io::Result<PathBuf> {
    let path = folder.join(format!("{RUN}{}", run_name(owner)));
    let new = folder.join(format!("{NEW}{}", run_name(owner)));
    replace(&new, &path, name, devices)?;
    Ok(path)
}

/// Writes the record of a container's slice where other users' runs can read it.
///
/// # Errors
/// The kernel's.
pub fn publish(paths: &HostPaths, record: &SliceRecord) -> io::Result<()> {
    let folder = paths.run().join(FOLDER);
    if !folder.exists() {
        make(paths)?;
    }
    let path = container_file(paths, &record.slice);
    let new = folder.join(format!("{NEW}{CONTAINER}{}", record.slice));
    replace(&new, &path, &record.name, &record.devices)
}

/// Removes the record of a container's slice.
///
/// # Errors
/// The kernel's; none where there is no record.
pub fn withdraw(paths: &HostPaths, slice: &str) -> io::Result<()> {
    match fs::remove_file(container_file(paths, slice)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn container_file(paths: &HostPaths, slice: &str) -> PathBuf {
    paths.run().join(FOLDER).join(format!("{CONTAINER}{slice}"))
}

/// The runs of this host, which the hook counts together with its own records.
#[must_use]
pub fn runs(paths: &HostPaths) -> Vec<Tenant> {
    let mut tenants = living(&paths.run().join(FOLDER), |_| false);
    tenants.retain(|tenant| tenant.owner.is_some());
    tenants
}

/// The contents of a record.
pub(super) fn text(name: &str, devices: &[DeviceBudget]) -> Vec<u8> {
    let text = Text {
        version: VERSION,
        name: name.to_owned(),
        devices: devices.to_vec(),
    };
    serde_json::to_vec(&text).unwrap_or_default()
}

fn replace(new: &Path, path: &Path, name: &str, devices: &[DeviceBudget]) -> io::Result<()> {
    let _ = fs::remove_file(new);
    let mut file = sys::make(
        new,
        OFlag::O_WRONLY | OFlag::O_EXCL | OFlag::O_NOFOLLOW,
        0o644,
    )?;
    // Independent of the umask, because other users must be able to read it.
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(&text(name, devices))?;
    fs::rename(new, path)
}

#[cfg(test)]
#[path = "tenants_tests.rs"]
mod tests;
