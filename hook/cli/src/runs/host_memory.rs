//! The memory of the host, as a meminfo file has it.
//! Touches: the file.

use crate::base::host_files;
use gpuslice_config::host::meminfo::{self, HostMemory};
use std::io;
use std::path::{Path, PathBuf};

/// The meminfo file of this host.
pub(crate) const MEMINFO: &str = "/proc/meminfo";

/// A meminfo file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the host's memory from {path}")]
pub(crate) struct HostMemoryError {
    path: PathBuf,
    source: io::Error,
}

/// Reads the host's memory from a meminfo file.
///
/// # Errors
/// When the file does not exist or cannot be parsed.
pub(crate) fn read(path: &Path) -> Result<HostMemory, HostMemoryError> {
    let garbled = || io::Error::new(io::ErrorKind::InvalidData, "it is garbled");
    let read =
        host_files::read_unhooked(path).and_then(|text| meminfo::parse(&text).ok_or_else(garbled));
    read.map_err(|source| HostMemoryError {
        path: path.to_owned(),
        source,
    })
}
