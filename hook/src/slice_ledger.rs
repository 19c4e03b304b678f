//! The ledger of a slice: where it is, and that it is there before the slice's first program.
//! Touches: the ledger's file.

use gpuslice_config::device::DeviceUuid;
use gpuslice_config::ledger::{Ledger, LedgerError, Open, Refusals, SIZE, Snapshot};
use gpuslice_config::slice::Slice;
use gpuslice_config::source;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How a run's own ledger is called, beside its slice file.
pub const NAME: &str = "ledger";

/// Only the processes of the user whose slice it is write to it.
const MODE: u32 = 0o600;

/// Why there is no ledger.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path} as the ledger of the slice")]
pub struct SliceLedgerError {
    /// Where.
    path: PathBuf,
    /// Why.
    #[source]
    source: LedgerError,
}

/// Makes the ledger if there is none, and looks whether it is one.
///
/// # Errors
/// When it cannot be made, or is something else.
pub fn make(path: &Path) -> Result<(), SliceLedgerError> {
    Ledger::open(&c_path(path), Open::Create { mode: MODE })
        .map(drop)
        .map_err(|source| SliceLedgerError {
            path: path.to_owned(),
            source,
        })
}

/// What was refused to the processes of a slice; nothing where the ledger cannot be read.
#[must_use]
pub fn refusals(path: &Path) -> Vec<(DeviceUuid, Refusals)> {
    let mut bytes = [0; SIZE];
    let snapshot = Snapshot::read(&c_path(path), &mut bytes);
    snapshot.map_or_else(|_| Vec::new(), |snapshot| snapshot.refusals().collect())
}

/// Where the ledger of a slice is; None where nothing is counted.
#[must_use]
pub fn path(file: &Path, slice: &Slice) -> Option<PathBuf> {
    let named = slice.ledger.map(|path| PathBuf::from(path.as_str()));
    named.or_else(|| {
        (file == path_of(source::MOUNTED_SLICE)).then(|| path_of(source::MOUNTED_LEDGER))
    })
}

/// A path for the ledger's own calls. One with a NUL in it leads nowhere.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn path_of(name: &CStr) -> PathBuf {
    OsStr::from_bytes(name.to_bytes()).into()
}
