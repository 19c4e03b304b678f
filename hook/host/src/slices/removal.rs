//! Removes the host's part of a slice and of a container: folders, the ledger's mounts, promises.
//! Touches: /run/gpuslice. Law: removing can be repeated, whichever parts still exist.

use crate::base::paths::{HostPaths, PRELOAD};
use crate::base::sys;
use crate::slices::records::SliceRecord;
use gpuslice_config::promises;
use gpuslice_config::words::units::Bytes;
use nix::fcntl::OFlag;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Something on the host could not be made or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}")]
pub struct HostError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Attaches the operation and the path to an error of the kernel.
pub fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HostError {
    let path = path.to_owned();
    move |source| HostError {
        doing,
        path,
        source,
    }
}

fn open_folder(path: &Path) -> io::Result<File> {
    sys::open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW)
}

/// Removes the files of a container, whichever of them exist.
///
/// # Errors
/// When something cannot be removed.
pub fn remove_container(paths: &HostPaths, id: &str) -> Result<(), HostError> {
    let path = paths.containers().join(id);
    if remove_root(&path).is_none() {
        gone(fs::remove_dir_all(&path)).map_err(failed("remove", &path))?;
    }
    Ok(())
}

/// Removes the files that the hook creates for a container, by name, so that the folder need not be
/// listed. Returns `None` if a file is missing, or an unexpected one is present.
fn remove_root(own: &Path) -> Option<()> {
    let root = open_folder(&own.join("root")).ok()?;
    let remove = |name: &str, flags| unlinkat(&root, name, flags).ok();
    for file in [
        "slice.json",
        PRELOAD,
        "ledger/ledger",
        "ledger/locks",
        "libgpuslice.so",
        "meminfo",
    ] {
        remove(file, UnlinkatFlags::NoRemoveDir)?;
    }
    if remove("promise", UnlinkatFlags::NoRemoveDir).is_some() {
        remove("promises", UnlinkatFlags::RemoveDir)?;
    }
    remove("etc", UnlinkatFlags::RemoveDir)?;
    remove("ledger", UnlinkatFlags::RemoveDir)?;
    fs::remove_dir(own.join("root")).ok()?;
    fs::remove_dir(own).ok()
}

/// Removes the ledger and the promise of a slice, whichever of them exist.
///
/// # Errors
/// When something cannot be removed.
pub fn remove_slice(paths: &HostPaths, record: &SliceRecord) -> Result<(), HostError> {
    remove_ledger(&paths.ledger(&record.slice))?;
    remove_file(&paths.page(&record.slice))?;
    // Its size may have changed since the record was read.
    match record.unified() {
        Bytes::ZERO => Ok(()),
        _ => remove_promises(paths, &record.slice),
    }
}

/// Removes the promises of a slice, of any size.
///
/// # Errors
/// When something cannot be read or removed.
pub fn remove_promises(paths: &HostPaths, slice: &str) -> Result<(), HostError> {
    let folder = paths.promises();
    let held = match folder.exists() {
        true => promises::read_folder(&folder).map_err(failed("read", &folder))?,
        false => Vec::new(),
    };
    for promise in held.iter().filter(|promise| promise.slice == slice) {
        if let Some(name) = promises::file_name(promise.budget, slice) {
            remove_file(&folder.join(name))?;
        }
    }
    Ok(())
}

/// Removes a file if it exists.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_file(path: &Path) -> Result<(), HostError> {
    gone(fs::remove_file(path)).map_err(failed("remove", path))
}

/// Unmounts and removes a ledger's folder.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_ledger(place: &Path) -> Result<(), HostError> {
    // Hooks that were killed may have left more than one mount.
    sys::unmount(place).map_err(failed("unmount", place))?;
    gone(fs::remove_dir(place)).map_err(failed("remove", place))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
