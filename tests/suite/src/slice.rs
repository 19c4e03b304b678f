//! Writes slice files for tests, by the documentation of the format and not by the product's code.
//! Touches: the file it is told to write.

use serde_json::json;
use std::path::{Path, PathBuf};

/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// A slice file that gives every device `memory` bytes. The numbers of a unified-memory host are
/// read from the simulator's live `meminfo` in `state`.
///
/// # Panics
/// When it cannot be written.
#[must_use]
pub fn of_all_devices(folder: &Path, memory: u64, state: &Path) -> PathBuf {
    of_machine(folder, memory, None, state)
}

/// Like [`of_all_devices`], for a writer of the slice that has asked CUDA, and so knows a device
/// that shares the host's memory. NVML alone cannot tell.
///
/// # Panics
/// When it cannot be written.
#[must_use]
pub fn of_machine(folder: &Path, memory: u64, integrated: Option<&str>, state: &Path) -> PathBuf {
    let meminfo = state.join("meminfo").display().to_string();
    let mut slice = json!({"version": 1, "name": "suite", "memory": memory, "meminfo": meminfo});
    if let Some(uuid) = integrated {
        slice["devices"] = json!([{"uuid": uuid, "memory": memory, "integrated": true}]);
    }
    let file = folder.join("slice.json");
    write(&file, slice.to_string().as_bytes());
    file
}

/// Writes a file of a test.
///
/// # Panics
/// When it cannot be written.
pub fn write(file: &Path, bytes: &[u8]) {
    std::fs::write(file, bytes)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
}
