//! Replaces a file atomically, so that a reader sees either the old text or the new one.
//! Touches: the file, and a temporary file beside it.
//! Law: only a regular file is replaced. To a device, a pipe or a socket, the text is written
//! directly.

use crate::base::destination::{self, Destination};
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The mode of a new file that every user may read.
pub(crate) const READABLE: u32 = 0o644;

/// The error when a file cannot be replaced.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub(crate) struct ReplaceError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// Whether the new text must survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The text must survive: a configuration.
    Synced,
    /// The text may be lost: a picture that is redrawn every second.
    Cached,
}

/// Replaces the contents of `path` by `text`. An existing file keeps its mode and owner. If `path`
/// is a symbolic link, its target is replaced and the link stays.
///
/// # Errors
/// When the file cannot be written; a regular file is then unchanged.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<(), ReplaceError> {
    replace_with(path, text, Durability::Synced)
}

/// Like [`replace`], with a choice of durability.
///
/// # Errors
/// As for [`replace`].
pub(crate) fn replace_with(
    path: &Path,
    text: &[u8],
    durability: Durability,
) -> Result<(), ReplaceError> {
    let write = || match destination::find(path)? {
        Destination::Stream(mut stream) => stream.write_all(text),
        Destination::File { folder, name, old } => {
            write_beside(&folder, &name, old, text, durability)
        }
    };
    write().map_err(|source| ReplaceError {
        path: path.to_owned(),
        source,
    })
}

fn write_beside(
    folder: &OwnedFd,
    name: &OsStr,
    old: Option<FileStat>,
    text: &[u8],
    durability: Durability,
) -> io::Result<()> {
    let (mut file, mut new) = Temporary::create(folder)?;
    file.write_all(text)?;
    let mode = match &old {
        Some(old) => {
            fchown(&file, Some(old.st_uid), Some(old.st_gid))?;
            old.st_mode & 0o7777
        }
        None => READABLE,
    };
    // The mode is set here, because the umask restricts the mode given at creation.
    file.set_permissions(Permissions::from_mode(mode))?;
    if durability == Durability::Synced {
        file.sync_all()?;
    }
    renameat(folder, new.name.as_os_str(), folder, name)?;
    new.is_in_place = true;
    if durability == Durability::Synced {
        // The rename survives a power failure only once the folder is synced.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        File::from(openat(folder, ".", flags, Mode::empty())?).sync_all()?;
    }
    Ok(())
}

/// A new file beside the one that it will replace. Dropping it removes it.
struct Temporary<'a> {
    folder: &'a OwnedFd,
    name: OsString,
    is_in_place: bool,
}

impl<'a> Temporary<'a> {
    fn create(folder: &'a OwnedFd) -> io::Result<(File, Temporary<'a>)> {
        let mut random = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let name = OsString::from(format!(".gpuslice-{:016x}", u64::from_ne_bytes(random)));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let owner_only = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(folder, name.as_os_str(), flags, owner_only)?;
        let temporary = Temporary {
            folder,
            name,
            is_in_place: false,
        };
        Ok((file.into(), temporary))
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_in_place {
            let name = self.name.as_os_str();
            let _ = unlinkat(self.folder, name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Creates the folder of a file to be written, and its parents. Returns the folder if it did not
/// exist.
///
/// # Errors
/// When the folder does not exist and cannot be created.
pub(crate) fn make_folder_of(path: &Path, mode: u32) -> Result<Option<PathBuf>, ReplaceError> {
    let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    else {
        return Ok(None);
    };
    let is_new = !folder.exists();
    let made = DirBuilder::new().recursive(true).mode(mode).create(folder);
    made.map_err(|source| ReplaceError {
        path: folder.to_owned(),
        source,
    })?;
    Ok(is_new.then(|| folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::{Mode as FileMode, SFlag, makedev, mknod};
    use nix::unistd::{chown, geteuid, mkfifo};
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

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
    fn a_new_file_is_world_readable_and_a_missing_folder_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("a/b/file");
        let error = replace(&file, b"new").unwrap_err();
        assert_eq!(error.path, file);
        make_folder_of(&file, 0o755).unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, READABLE);
    }

    #[test]
    fn a_device_is_written_and_stays_a_device() {
        let place = tempfile::tempdir().unwrap();
        let device = place.path().join("null");
        let mode = FileMode::from_bits_truncate(0o666);
        // As root, the test makes a device of its own: if the code is wrong, the host's device
        // stays intact.
        let made = mknod(&device, SFlag::S_IFCHR, mode, makedev(1, 3));
        let device = match made {
            Ok(()) => device,
            Err(_) => PathBuf::from("/dev/null"),
        };
        replace(&device, b"text").unwrap();
        let kind = fs::symlink_metadata(&device).unwrap().file_type();
        assert!(kind.is_char_device());
        let link = place.path().join("link");
        symlink(&device, &link).unwrap();
        replace(&link, b"text").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::metadata(&link).unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_pipe_is_written_and_stays_a_pipe() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        mkfifo(&pipe, FileMode::S_IRWXU).unwrap();
        // The pipe is open for both directions, so that neither end waits for the other.
        let mut reader = File::options().read(true).write(true).open(&pipe).unwrap();
        replace(&pipe, b"text").unwrap();
        let mut text = [0; 4];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"text");
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    }

    /// A sticky folder that any user can write to, as /tmp is, and a secret file outside of it.
    fn shared_folder(place: &Path) -> (PathBuf, PathBuf) {
        let (shared, secret) = (place.join("shared"), place.join("secret"));
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        fs::write(&secret, "secret").unwrap();
        (shared, secret)
    }

    #[test]
    fn a_link_that_another_user_planted_is_not_followed() {
        if !geteuid().is_root() {
            eprintln!("not run: only root can make another user's link");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let (shared, secret) = shared_folder(place.path());
        let folder = place.path().join("folder");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "secret").unwrap();
        let planted = |target: &Path, name: &str| {
            let link = shared.join(name);
            symlink(target, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            link
        };
        let last = planted(&secret, "last");
        let dangling = planted(&place.path().join("new"), "dangling");
        let before_the_last = planted(&folder, "folder").join("file");
        let own = place.path().join("own");
        symlink(&last, &own).unwrap();
        for path in [&last, &dangling, &before_the_last, &own] {
            let error = replace(path, b"text").unwrap_err();
            assert_eq!(
                error.source.to_string(),
                "the link belongs to user 65534, who may create files in its folder (use a folder of your own)"
            );
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "secret");
        assert!(!place.path().join("new").exists());
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 3);
    }

    /// The folder of a service's user, to which a timer of root writes.
    #[test]
    fn a_link_in_another_users_folder_is_not_followed_and_a_file_there_is_replaced() {
        if !geteuid().is_root() {
            eprintln!("not run: only root can make another user's folder");
            return;
        }
        for (owner, mode) in [(65534, 0o755), (0, 0o775)] {
            let place = tempfile::tempdir().unwrap();
            let (folder, secret) = (place.path().join("folder"), place.path().join("secret"));
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            chown(&folder, Some(owner.into()), None).unwrap();
            fs::write(&secret, "secret").unwrap();
            for (name, target) in [("link", "../secret"), ("dangling", "../new")] {
                let link = folder.join(name);
                symlink(target, &link).unwrap();
                std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
                let error = replace(&link, b"text").unwrap_err().source.to_string();
                assert!(
                    error.starts_with("the link belongs to user 65534"),
                    "{error}"
                );
            }
            assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
            assert!(!place.path().join("new").exists());
            let file = folder.join("file");
            fs::write(&file, "old").unwrap();
            chown(&file, Some(65534.into()), None).unwrap();
            fs::hard_link(&file, place.path().join("other")).unwrap();
            replace(&file, b"new").unwrap();
            let read = |path: &Path| fs::read_to_string(path).unwrap();
            // The file was replaced: what else led to it has not changed.
            assert_eq!(
                (read(&file), read(&place.path().join("other"))),
                ("new".to_owned(), "old".to_owned())
            );
        }
    }

    #[test]
    fn a_file_that_another_user_planted_is_not_filled() {
        if !geteuid().is_root() {
            eprintln!("not run: only root can make another user's file");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let (shared, _) = shared_folder(place.path());
        let file = shared.join("file");
        fs::write(&file, "old").unwrap();
        chown(&file, Some(65534.into()), None).unwrap();
        let error = replace(&file, b"new").unwrap_err().source.to_string();
        assert!(
            error.starts_with("the file belongs to user 65534"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    }

    #[test]
    fn a_link_of_ones_own_is_followed_in_a_shared_folder_too() {
        let place = tempfile::tempdir().unwrap();
        let (shared, file) = shared_folder(place.path());
        let link = shared.join("link");
        symlink("../secret", &link).unwrap();
        replace_with(&link, b"new", Durability::Cached).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        symlink("loop", shared.join("loop")).unwrap();
        let error = replace(&shared.join("loop"), b"new").unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(libc::ELOOP));
        let error = replace(&shared, b"new").unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(libc::EISDIR));
    }
}
