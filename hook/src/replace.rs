//! Files that others read while they are written: old or new, never half.
//! Touches: the file, and a temporary one beside it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// What a new file's mode is: everybody may read it.
pub const READABLE: u32 = 0o644;

/// Why a file stayed as it was.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct ReplaceError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Puts `text` in place of what `path` holds. A file that is there keeps its mode and its owner;
/// one that is reached by a link is replaced where it is.
///
/// # Errors
/// When it cannot be written; it is then as it was.
pub fn replace(path: &Path, text: &[u8]) -> Result<(), ReplaceError> {
    let failed = |source| ReplaceError {
        path: path.to_owned(),
        source,
    };
    write_beside(path, text).map_err(failed)
}

fn write_beside(path: &Path, text: &[u8]) -> io::Result<()> {
    let path = match fs::canonicalize(path) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut new = tempfile::Builder::new()
        .prefix(".gpuslice-")
        .tempfile_in(folder)?;
    new.write_all(text)?;
    let mode = match fs::metadata(&path) {
        Ok(old) => {
            fchown(new.as_file(), Some(old.uid()), Some(old.gid()))?;
            old.mode() & 0o7777
        }
        Err(_) => READABLE,
    };
    // Not by the builder: the umask would have its say.
    new.as_file()
        .set_permissions(Permissions::from_mode(mode))?;
    new.as_file().sync_all()?;
    new.persist(&path).map_err(|error| error.error)?;
    // The name is on the disk when its folder is.
    File::open(folder)?.sync_all()
}

/// Makes the folder of a file that is to be written, and those above it.
///
/// # Errors
/// When it is not there and cannot be made.
pub fn make_folder_of(path: &Path, mode: u32) -> Result<(), ReplaceError> {
    let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    else {
        return Ok(());
    };
    let made = DirBuilder::new().recursive(true).mode(mode).create(folder);
    made.map_err(|source| ReplaceError {
        path: folder.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_keeps_its_mode_and_its_place_behind_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_new_file_can_be_read_by_everybody_and_a_folder_is_named_that_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("a/b/file");
        let error = replace(&file, b"new").unwrap_err();
        assert_eq!(error.path, file);
        make_folder_of(&file, 0o755).unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, READABLE);
    }
}
