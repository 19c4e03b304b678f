//! Writes slice files for tests, as the format is documented and not as the product writes it.
//! Touches: the file it is told to write.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// A slice file that gives every device `memory` bytes; a unified-memory host's own numbers are
/// read from the simulator's live `meminfo` in `state`.
///
/// # Panics
/// When it cannot be written.
#[must_use]
pub fn of_all_devices(folder: &Path, memory: u64, state: &Path) -> PathBuf {
    let mut slice = Map::new();
    slice.insert("version".into(), 1.into());
    slice.insert("name".into(), "suite".into());
    slice.insert("memory".into(), memory.into());
    slice.insert(
        "meminfo".into(),
        state.join("meminfo").display().to_string().into(),
    );
    let file = folder.join("slice.json");
    write(&file, Value::Object(slice).to_string().as_bytes());
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
