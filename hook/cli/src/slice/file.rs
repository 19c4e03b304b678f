//! Reads a slice file that a user names, and reports faults in it precisely.
//! Touches: that file.

use crate::driver::inventory::{Inventory, Target};
use crate::slice::budget::{self, BudgetError, TooSmall};
use gpuslice_config::slice::{self, MAX_FILE, Slice, SliceError};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::device::Selector;
use gpuslice_config::words::paths;
use nix::fcntl::OFlag;
use std::ffi::{CStr, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a slice file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SliceFileError {
    /// The file cannot be read.
    #[error("cannot read slice file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is a directory, a pipe or a device.
    #[error("slice file {path} is not a regular file")]
    NotAFile { path: PathBuf },
    /// The file is longer than a slice file can be.
    #[error("slice file {path} is {length} bytes, more than a slice file can be (64 KiB)")]
    TooLarge {
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
    },
    /// The text has a fault.
    #[error("slice file {path}, {fault}")]
    Parse {
        path: PathBuf,
        /// The line and the fault.
        fault: SliceError,
    },
    /// The file names a GPU that does not exist here.
    #[error("slice file {path}: {fault}")]
    Device { path: PathBuf, fault: BudgetError },
}

/// Reads the slice file at `path`. A run's own file may be missing or belong to another user. The
/// slice in the environment then replaces it, as in the library.
///
/// # Errors
/// [`SliceFileError`] names the file, and the line if there is one.
pub(crate) fn read(path: &Path) -> Result<Slice, SliceFileError> {
    read_file(path).or_else(|error| carried(path).ok_or(error))
}

/// Returns the slice from the environment, if `path` is the file that the environment names.
fn carried(path: &Path) -> Option<Slice> {
    let variable = |name: &CStr| std::env::var_os(OsStr::from_bytes(name.to_bytes()));
    let text = variable(paths::SLICE)?;
    let is_named = variable(paths::CONFIG)? == path.as_os_str();
    is_named.then(|| slice::parse(text.as_bytes()).ok())?
}

fn read_file(path: &Path) -> Result<Slice, SliceFileError> {
    let failed = |source| SliceFileError::Read {
        path: path.to_owned(),
        source,
    };
    // O_NONBLOCK keeps a pipe without a writer from blocking; it has no effect on files.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
        .map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(SliceFileError::NotAFile {
            path: path.to_owned(),
        });
    }
    if facts.len() > MAX_FILE as u64 {
        return Err(SliceFileError::TooLarge {
            path: path.to_owned(),
            length: facts.len(),
        });
    }
    let text = read_bounded(file, facts.len()).map_err(failed)?;
    slice::parse(&text).map_err(|fault| SliceFileError::Parse {
        path: path.to_owned(),
        fault,
    })
}

/// Reads at most one byte more than a slice file can have, because the file may grow while it is
/// read.
fn read_bounded(file: File, length: u64) -> io::Result<Vec<u8>> {
    // With a spare byte, the end is found without a larger buffer.
    let mut text = Vec::with_capacity(usize::try_from(length).unwrap_or(0).saturating_add(1));
    file.take((MAX_FILE as u64).saturating_add(1))
        .read_to_end(&mut text)?;
    Ok(text)
}

/// Compares the slice with the existing GPUs. Returns the GPUs on which its limit for all GPUs has
/// no effect.
///
/// # Errors
/// When the file lists a GPU that does not exist, or a limit that exceeds a GPU's memory and so
/// would have no effect.
pub(crate) fn compare(
    path: &Path,
    slice: &Slice,
    inventory: &Inventory,
) -> Result<Vec<TooSmall>, SliceFileError> {
    let device = |fault| SliceFileError::Device {
        path: path.to_owned(),
        fault,
    };
    let known = |uuid| inventory.devices.iter().any(|device| device.uuid == uuid);
    for listed in slice.devices().filter(|listed| !known(listed.uuid)) {
        budget::find(Selector::Uuid(listed.uuid), inventory).map_err(device)?;
    }
    let own = own_limits(slice);
    let is_own = |target: &Target<'_>| own.contains(&target.uuid);
    let (own, rest): (Vec<_>, Vec<_>) = inventory.targets().partition(is_own);
    for target in &own {
        let limit = slice.device(target.uuid).map(|device| device.memory);
        if let Some(limit) = limit.filter(|limit| budget::over(*limit, target)) {
            return Err(device(budget::over_the_card(MEMORY, limit, target)));
        }
    }
    let Some(memory) = slice.memory else {
        return Ok(Vec::new());
    };
    let too_small = budget::check(MEMORY, memory, &rest, inventory).map_err(device)?;
    Ok(too_small
        .into_iter()
        .map(|TooSmall { uuid, message }| TooSmall {
            uuid,
            message: format!("slice file {}: {message}", path.display()),
        })
        .collect())
}

/// The key of a limit in messages.
const MEMORY: &str = "\"memory\"";

/// Returns the devices with a limit of their own. A run's slice file also lists devices that only
/// have the limit for all GPUs.
#[must_use]
pub(crate) fn own_limits(slice: &Slice) -> Vec<DeviceUuid> {
    let listed = slice.devices();
    let own = listed.filter(|listed| listed.memory.is_some() && listed.memory != slice.memory);
    own.map(|listed| listed.uuid).collect()
}
