//! `/run/gpuslice`: the state of the slices of containers and of `gpuslice run` until the next
//! boot.
//! Touches: that folder, and the promises' own file system in it.
//! Law: the first user creates the folder, and the result is the same for the hook and
//! `gpuslice run`.

use crate::base::paths::HostPaths;
use crate::base::selinux;
use crate::base::sys;
use crate::slices::removal::{HostError, failed};
use crate::slices::tenants;
use gpuslice_config::promises;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Room for 1,024 promises of 4 KiB each.
const PROMISES_MOUNT: [(&std::ffi::CStr, &std::ffi::CStr); 3] =
    [(c"size", c"4m"), (c"nr_inodes", c"2k"), (c"mode", c"0755")];

/// Creates the missing folders, and corrects the modes of existing ones.
///
/// # Errors
/// When a file or folder cannot be created.
pub fn make(paths: &HostPaths) -> Result<(), HostError> {
    let _labelled = selinux::label_new_files(paths);
    let folders = [
        (paths.run(), 0o711),
        (paths.slices(), 0o700),
        (paths.containers(), 0o700),
        (paths.ledgers(), 0o700),
        (paths.promises(), 0o755),
    ];
    folders
        .iter()
        .try_for_each(|(path, mode)| folder(path, *mode).map_err(failed("make", path)))?;
    // Without this folder, the runs of other users are not counted. Containers start all the same.
    let _ = tenants::make(paths);
    Ok(())
}

/// Creates the folder of meminfo pages.
///
/// # Errors
/// When it cannot be created.
pub fn make_pages(paths: &HostPaths) -> Result<(), HostError> {
    let place = paths.pages();
    let _labelled = selinux::label_new_files(paths);
    folder(&place, 0o755).map_err(failed("make", &place))
}

/// Creates a folder or corrects its mode. A folder of another user is left unchanged.
fn folder(path: &Path, mode: u32) -> io::Result<()> {
    let facts = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(mode).create(path)?;
            fs::metadata(path)?
        }
        found => found?,
    };
    if !facts.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // The mode is wrong because of a umask, or because its creator kept it private.
    let own = facts.uid() == nix::unistd::geteuid().as_raw();
    match own && facts.mode() & 0o7777 != mode {
        true => fs::set_permissions(path, Permissions::from_mode(mode)),
        false => Ok(()),
    }
}

/// Creates the promises' folder with a file system of its own. A tenant writes to its promise, and
/// must not fill the host's `/run`. Called under the lock.
///
/// # Errors
/// When a file or folder cannot be created.
pub fn make_promises(paths: &HostPaths) -> Result<(), HostError> {
    let place = paths.promises();
    folder(&place, 0o755).map_err(failed("make", &place))?;
    mount_promises(paths).map_err(failed("mount", &place))
}

/// Like [`make_promises`], for `gpuslice run`, which may lack the right to mount, and whose mount
/// namespace may not be the host's. When the first container mounts the file system, it takes over
/// the promises made without it.
///
/// # Errors
/// When a file or folder cannot be created.
pub fn make_promises_if_host(paths: &HostPaths) -> Result<(), HostError> {
    let place = paths.promises();
    folder(&place, 0o755).map_err(failed("make", &place))?;
    let namespace = |of: &str| fs::metadata(format!("/proc/{of}/ns/mnt")).map(|facts| facts.ino());
    if let (Ok(own), Ok(first)) = (namespace("self"), namespace("1"))
        && own == first
    {
        let _ = mount_promises(paths);
    }
    Ok(())
}

/// Whether process 1 sees the folder of promises that this process sees. In a mount namespace of its
/// own, this process may have mounted it for itself alone. `None` if that cannot be checked.
#[must_use]
pub fn shares_promises(paths: &HostPaths) -> Option<bool> {
    let place = paths.promises();
    let mut hosts = OsString::from("/proc/1/root");
    hosts.push(&place);
    let identity = |path: &OsStr| fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
    Some(identity(place.as_os_str()).ok()? == identity(&hosts).ok()?)
}

/// Mounts the promises' file system, unless it is mounted. Promises made without it are copied into
/// it.
fn mount_promises(paths: &HostPaths) -> io::Result<()> {
    let place = &paths.promises();
    let above = place.parent().unwrap_or(place);
    if fs::metadata(place)?.dev() != fs::metadata(above)?.dev() {
        return Ok(());
    }
    let attributes = sys::NOSUID | sys::NODEV | sys::NOEXEC;
    let mount = sys::new_mount(c"tmpfs", &PROMISES_MOUNT, attributes)?;
    // Promises inherit the label of their folder.
    let _ = selinux::label(paths, Path::new(&sys::descriptor_path(&mount)));
    copy_all(place, &mount)?;
    sys::attach_at(mount.as_fd(), AT_FDCWD, place)
}

/// Copies the promises of a folder into a file system that is not attached yet.
fn copy_all(place: &Path, mount: &OwnedFd) -> io::Result<()> {
    for held in promises::read_folder(place)? {
        let Some(name) = promises::file_name(held.budget, &held.slice) else {
            continue;
        };
        let path = place.join(&name);
        let Ok(old) = sys::open(
            &path,
            OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK,
        ) else {
            continue;
        };
        let mode = old.metadata()?.mode() & 0o777;
        let mut text = Vec::new();
        let cap = u64::try_from(promises::SIZE).unwrap_or(u64::MAX);
        old.take(cap).read_to_end(&mut text)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(mode);
        let mut new = File::from(openat(mount, name.as_str(), flags, mode)?);
        new.write_all(&text)?;
    }
    Ok(())
}
