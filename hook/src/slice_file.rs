//! Reads a slice file that a person names, and says clearly what is wrong with it.
//! Touches: that file.

use crate::budget::{self, BudgetError};
use crate::inventory::Inventory;
use crate::slice_options::Selector;
use gpuslice_config::slice::{self, MAX_FILE, Slice, SliceError};
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How a run's own slice file is called.
pub const NAME: &str = "slice.json";

/// Why a slice file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SliceFileError {
    /// It cannot be read.
    #[error("cannot read slice file {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is a directory, a pipe or a device.
    #[error("slice file {path} is not a regular file")]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// It is no slice file.
    #[error("slice file {path} is {length} bytes, more than a slice file can be (64 KiB)")]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// Its length.
        length: u64,
    },
    /// Its text is wrong.
    #[error("slice file {path}, {fault}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// The line and what is wrong.
        fault: SliceError,
    },
    /// It names a GPU that is not there.
    #[error("slice file {path}: {fault}")]
    Device {
        /// Which.
        path: PathBuf,
        /// The GPU.
        fault: BudgetError,
    },
}

/// Reads the slice file at `path`.
///
/// # Errors
/// [`SliceFileError`] names the file, and the line where there is one.
pub fn read(path: &Path) -> Result<Slice, SliceFileError> {
    let failed = |source| SliceFileError::Read {
        path: path.to_owned(),
        source,
    };
    // A pipe that nobody writes to must not stop us; O_NONBLOCK is without effect on files.
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
    let text = read_bounded(file).map_err(failed)?;
    slice::parse(&text).map_err(|fault| SliceFileError::Parse {
        path: path.to_owned(),
        fault,
    })
}

/// The file may grow while it is read: one byte more than a slice file can have is enough.
fn read_bounded(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take((MAX_FILE as u64).saturating_add(1))
        .read_to_end(&mut text)?;
    Ok(text)
}

/// Compares the slice with the GPUs that are there, and returns what a person should be told.
///
/// # Errors
/// When it lists a GPU that is not there: its limit would silently hold for nothing.
pub fn compare(
    path: &Path,
    slice: &Slice,
    inventory: &Inventory,
) -> Result<Vec<String>, SliceFileError> {
    let known = |uuid| inventory.devices.iter().any(|device| device.uuid == uuid);
    for listed in slice.devices().filter(|listed| !known(listed.uuid)) {
        budget::find(Selector::Uuid(listed.uuid), inventory).map_err(|fault| {
            SliceFileError::Device {
                path: path.to_owned(),
                fault,
            }
        })?;
    }
    Ok(inventory
        .targets()
        .filter_map(|target| {
            let memory = slice.device(target.uuid)?.memory;
            (memory > target.total && target.total.get() > 0).then(|| {
                format!(
                    "slice file {}: {memory} is more than {target} has, which is therefore not limited",
                    path.display()
                )
            })
        })
        .collect())
}
