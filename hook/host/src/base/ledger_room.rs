//! Memory for a copy of a ledger, as long as the ledger is.
//! Touches: the ledger's metadata.

use gpuslice_config::ledger::MAX_SIZE;
use std::fs;
use std::path::Path;

/// Returns memory for a copy of the ledger at this path.
#[must_use]
pub fn room(path: &Path) -> Vec<u8> {
    vec![0; length(path)]
}

/// Returns the length of the ledger at this path in bytes, or that of the longest where it is not known.
/// The longest ledger, of 64 devices, has 4 MiB. That of one device has 164 KiB.
#[must_use]
pub fn length(path: &Path) -> usize {
    let length = fs::metadata(path).map(|facts| facts.len());
    let length = length.ok().and_then(|length| usize::try_from(length).ok());
    length.unwrap_or(MAX_SIZE).min(MAX_SIZE)
}
