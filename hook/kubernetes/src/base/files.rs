//! Replaces a file atomically, so that a reader sees the old text or the new one.
//! Touches: the file, and a temporary file beside it.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The extension of a file until it is complete. A CDI reader takes only `.json` and `.yaml`.
pub const NEW: &str = "new";

/// Writes a file that every user may read. A link in its place is replaced, not followed.
///
/// # Errors
/// When it cannot be written; an old file is then unchanged.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension(NEW);
    let written = write(&new, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write(new: &Path, text: &[u8]) -> io::Result<()> {
    // A file of that name is left by a process that was killed.
    remove(new)?;
    let mut file: File = File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(new)?;
    file.write_all(text)?;
    // The umask restricts the mode given at creation.
    file.set_permissions(Permissions::from_mode(0o644))
}

/// Removes a file that may be absent.
///
/// # Errors
/// When it exists and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a folder that may exist, and its parents.
///
/// # Errors
/// When it cannot be created.
pub fn folder(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
}
