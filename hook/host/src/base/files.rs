//! Replaces a file atomically, so that a reader sees the old text or the new one.
//! Touches: the file, and a temporary file beside it.

use crate::base::sys;
use nix::fcntl::OFlag;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The extension of a file until it is complete. A CDI reader takes only `.json` and `.yaml`, and a
/// reader of records only `.json`.
pub const NEW: &str = "new";

/// Writes a file with this mode. A link in its place, or in that of the temporary file, is replaced
/// and not followed.
///
/// # Errors
/// When it cannot be written; an old file is then unchanged.
pub fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let new = path.with_extension(NEW);
    let written = write(&new, text, mode).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write(new: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    // A file of that name is left by a process that was killed.
    remove(new)?;
    let mut file = sys::make(new, OFlag::O_WRONLY | OFlag::O_EXCL, mode)?;
    file.write_all(text)?;
    // The umask restricts the mode given at creation.
    file.set_permissions(Permissions::from_mode(mode))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_is_replaced_and_its_target_stays() {
        let place = tempfile::tempdir().unwrap();
        let [victim, path] = ["victim", "a.json"].map(|name| place.path().join(name));
        fs::write(&victim, "kept").unwrap();
        for link in [path.clone(), path.with_extension(NEW)] {
            symlink(&victim, link).unwrap();
        }
        replace(&path, b"text", 0o640).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        let facts = fs::symlink_metadata(&path).unwrap();
        assert_eq!(facts.permissions().mode(), 0o100_640);
        assert!(!path.with_extension(NEW).is_symlink());
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_old_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.json");
        replace(&path, b"old", 0o600).unwrap();
        fs::create_dir(path.with_extension(NEW)).unwrap();
        assert!(replace(&path, b"new", 0o600).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    }
}
