//! Opens files as another process sees them: below its root, and with its user's rights.
//! Touches: the file system, by reading it; for root, this thread's file system user, for the
//! length of one call.
//! Law: a link of the process leads nowhere outside its own root, and only regular files are read.

use gpuslice_host::base::sys::open_resolved;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, ResolveFlag};
use nix::unistd::{AccessFlags, Gid, Uid, faccessat, geteuid, setfsgid, setfsuid};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The user and group with which a process opens files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Creds {
    /// The user who started it.
    real: u32,
    user: u32,
    group: u32,
}

impl Creds {
    /// Reads the rows `Uid` and `Gid` of /proc/PID/status: real, effective, saved, file system.
    pub(super) fn of(users: &[u32], groups: &[u32]) -> Creds {
        let at = |all: &[u32], place: usize| all.get(place).copied().unwrap_or(u32::MAX);
        Creds {
            real: at(users, 0),
            user: at(users, 3),
            group: at(groups, 3),
        }
    }

    /// Returns the remedy of asking as the process's user, if that is one.
    pub(super) fn whose(&self) -> String {
        match self.user {
            0 => String::new(),
            user if self.real != user || user == geteuid().as_raw() => String::new(),
            _ => format!(" or as user {}", self.shown()),
        }
    }

    /// Returns the user's name, or the user id if there is no name.
    pub(in super::super) fn shown(&self) -> String {
        crate::commands::status::users::User(self.user).name()
    }

    /// Checks whether these are the rights of a user.
    pub(in super::super) fn is(&self, user: u32) -> bool {
        self.user == user
    }

    /// Checks whether this is the user who runs the command.
    pub(in super::super) fn is_own(&self) -> bool {
        self.user == geteuid().as_raw()
    }

    /// Calls with these rights, if this process is root and can give its own up.
    fn lend<T>(&self, doing: impl FnOnce() -> T) -> T {
        if !geteuid().is_root() || self.user == 0 {
            return doing();
        }
        // These calls affect this thread, which is the only one, and remove root's capabilities
        // over files.
        let groups = setfsgid(Gid::from_raw(self.group));
        let users = setfsuid(Uid::from_raw(self.user));
        let done = doing();
        setfsuid(users);
        setfsgid(groups);
        done
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum For {
    /// Reading.
    Reading,
    /// Reading and writing, as a program of the slice opens the ledger. Nothing is written.
    Writing,
}

/// The root folder of a process.
#[derive(Debug)]
pub(in super::super) struct Root(OwnedFd);

impl Root {
    /// Opens `/proc/PID/root`.
    pub(super) fn of(path: &Path) -> io::Result<Root> {
        let root = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(path)?;
        Ok(Root(root.into()))
    }

    /// Checks whether the process has the same root folder as this one.
    pub(super) fn is_ours(&self) -> bool {
        let of = |path: &Path| {
            let facts = std::fs::metadata(path).ok()?;
            Some((facts.dev(), facts.ino()))
        };
        of(&self.path()) == of(Path::new("/"))
    }

    /// Returns a path of this process to the root.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    fn open(&self, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
        // The kernel takes no other flags beside O_PATH. A pipe without a writer must not block.
        let more = match flags.contains(OFlag::O_PATH) {
            true => OFlag::empty(),
            false => OFlag::O_NONBLOCK | OFlag::O_NOCTTY,
        };
        let resolve = ResolveFlag::RESOLVE_IN_ROOT;
        let opened = open_resolved(self.0.as_fd(), path, flags | more, resolve)?;
        Ok(opened)
    }

    /// Opens a regular file with the rights of a process.
    ///
    /// # Errors
    /// The kernel's, and when it is another kind of file.
    pub(in super::super) fn file(&self, path: &Path, creds: Creds, to: For) -> io::Result<File> {
        let flags = match to {
            For::Reading => OFlag::O_RDONLY,
            For::Writing => OFlag::O_RDWR,
        };
        let file = File::from(creds.lend(|| self.open(path, flags))?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("not a regular file")),
        }
    }

    /// Reads a regular file of at most `cap` bytes, with the rights of a process.
    ///
    /// # Errors
    /// As [`Root::file`], and when it cannot be read.
    pub(in super::super) fn read(
        &self,
        path: &Path,
        creds: Creds,
        cap: usize,
    ) -> io::Result<Vec<u8>> {
        let file = self.file(path, creds, For::Reading)?;
        let mut bytes = Vec::new();
        file.take(u64::try_from(cap).unwrap_or(u64::MAX))
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Checks whether a path exists below the root.
    pub(in super::super) fn has(&self, path: &Path) -> bool {
        self.open(path, OFlag::O_PATH).is_ok()
    }

    /// Returns the facts about a file below the root.
    pub(super) fn facts(&self, path: &Path) -> Option<std::fs::Metadata> {
        let found = self.open(path, OFlag::O_PATH).ok()?;
        File::from(found).metadata().ok()
    }

    /// Checks whether a process with these rights can create files in a folder below the root.
    pub(in super::super) fn is_writable(&self, folder: &Path, creds: Creds) -> bool {
        creds.lend(|| {
            let Ok(folder) = self.open(folder, OFlag::O_PATH | OFlag::O_DIRECTORY) else {
                return false;
            };
            let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
            let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
            faccessat(AT_FDCWD, path.as_str(), wanted, AtFlags::AT_EACCESS).is_ok()
        })
    }

    /// Returns the real path of a file below the root.
    pub(in super::super) fn resolved(&self, path: &Path) -> Option<PathBuf> {
        let found = self.open(path, OFlag::O_PATH).ok()?;
        std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()
    }

    /// Calls with a path that leads to a file below the root, for code that takes a path. The file's
    /// folder stays open meanwhile, so files beside it can be found too.
    ///
    /// # Errors
    /// When the folder cannot be opened.
    pub(in super::super) fn with_path<T>(
        &self,
        path: &Path,
        creds: Creds,
        doing: impl FnOnce(&CString) -> T,
    ) -> io::Result<T> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::ENOENT.into());
        };
        creds.lend(|| {
            let folder = self.open(folder, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
            let mut there = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
            there.extend(name.as_bytes());
            Ok(doing(&CString::new(there)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const OWN: Creds = Creds {
        real: 0,
        user: 0,
        group: 0,
    };

    #[test]
    fn a_link_of_a_container_leads_nowhere_outside_of_it() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("etc")).unwrap();
        std::fs::write(place.path().join("etc/inside"), "inside").unwrap();
        symlink("/etc/passwd", place.path().join("etc/link")).unwrap();
        symlink("/etc/inside", place.path().join("etc/own")).unwrap();
        let root = Root::of(place.path()).unwrap();
        assert!(root.read(Path::new("/etc/link"), OWN, 10).is_err());
        assert_eq!(
            root.read(Path::new("/etc/own"), OWN, 10).unwrap(),
            b"inside"
        );
        assert!(root.has(Path::new("/etc/inside")) && !root.has(Path::new("/etc/passwd")));
        let found = root.with_path(Path::new("/etc/inside"), OWN, |path| {
            std::fs::read(std::ffi::OsStr::from_bytes(path.as_bytes())).unwrap()
        });
        assert_eq!(found.unwrap(), b"inside");
        assert!(root.file(Path::new("/etc"), OWN, For::Reading).is_err());
        assert!(!root.is_ours());
    }
}
