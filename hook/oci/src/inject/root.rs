//! Accesses a container's file system from outside the container.
//! Touches: everything below its root. Law: the kernel resolves every path inside the root, and
//! never twice. No magic link is followed. Only regular files are opened. Nothing is created in a
//! file system that was mounted into the container.

use gpuslice_host::base::sys::{self, open_resolved};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, ResolveFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The container's root, and the ids of the user who may create files in it.
#[derive(Debug)]
pub(crate) struct ContainerRoot {
    fd: OwnedFd,
    /// The host's ids of the container's root user, where they differ from ours.
    mapped: Option<(Uid, Gid)>,
}

/// A folder or a file in the container.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) fd: OwnedFd,
    /// Whether its path crosses a mount: a volume, which may be the host's.
    pub(crate) foreign: bool,
}

/// A writable copy of the mount of a folder. The mount may be read-only although the file system
/// below it is not.
fn writable(folder: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let copy = sys::clone_mount(folder, false)?;
    sys::set_attributes(copy.as_fd(), 0, sys::RDONLY, false)?;
    Ok(copy)
}

impl ContainerRoot {
    /// Opens a container's root.
    ///
    /// # Errors
    /// When it cannot be opened, or is the root of the host.
    pub(crate) fn open(path: &Path, mapped: Option<(Uid, Gid)>) -> io::Result<ContainerRoot> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let fd = open_resolved(AT_FDCWD, path, flags, ResolveFlag::RESOLVE_NO_MAGICLINKS)?;
        let (own, hosts) = (fstat(&fd)?, nix::sys::stat::stat("/")?);
        if (own.st_dev, own.st_ino) == (hosts.st_dev, hosts.st_ino) {
            return Err(io::Error::other("it is the host's own root"));
        }
        Ok(ContainerRoot { fd, mapped })
    }

    fn resolve(&self, path: &str, flags: OFlag, more: ResolveFlag) -> Result<OwnedFd, Errno> {
        open_resolved(self.fd.as_fd(), Path::new(path), flags, inside() | more)
    }

    /// Finds the file that a path leads to, without opening it. Links are followed inside the
    /// image.
    ///
    /// # Errors
    /// When there is no such file; ELOOP where a link of /proc leads elsewhere.
    pub(super) fn stands_at(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlag::O_PATH, ResolveFlag::empty())
    }

    /// Like [`ContainerRoot::stands_at`], but follows no link.
    ///
    /// # Errors
    /// When there is no such file; ELOOP when the path contains a link.
    pub(super) fn stands_plainly_at(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlag::O_PATH, ResolveFlag::RESOLVE_NO_SYMLINKS)
    }

    /// Opens a regular file of the image for reading. Links are followed inside the image.
    ///
    /// # Errors
    /// When it does not exist, or is not a regular file.
    pub(crate) fn regular(&self, path: &str) -> io::Result<File> {
        let found = self.resolve(path, OFlag::O_PATH, ResolveFlag::empty())?;
        reopen(found.as_fd())
    }

    /// Whether a path leads to a regular file.
    #[must_use]
    pub(crate) fn has(&self, path: &str) -> bool {
        let found = self.resolve(path, OFlag::O_PATH, ResolveFlag::empty());
        found.is_ok_and(|found| is_regular(found.as_fd()).unwrap_or(false))
    }

    /// Opens the folder of that name in the root, and creates it if it is missing.
    ///
    /// # Errors
    /// When it is not a folder, or cannot be created: EROFS where the file system is read-only.
    pub(crate) fn folder(&self, name: &str) -> io::Result<Found> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let open = || find(self.fd.as_fd(), Path::new(name), flags, inside());
        match open() {
            Err(Errno::ENOENT) => {
                self.make_folder(self.fd.as_fd(), name)?;
                Ok(open()?)
            }
            opened => Ok(opened?),
        }
    }

    /// Opens a folder in a folder, and creates it if it is missing. A link is refused.
    ///
    /// # Errors
    /// When it is a link or something else, or cannot be created.
    pub(crate) fn plain_folder(&self, at: BorrowedFd<'_>, name: &str) -> io::Result<Found> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let open = || find(at, Path::new(name), flags, leaf());
        match open() {
            Err(Errno::ENOENT) => {
                self.make_folder(at, name)?;
                Ok(open()?)
            }
            opened => Ok(opened?),
        }
    }

    /// The descriptor of the root.
    #[must_use]
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn make_folder(&self, at: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let mode = Mode::from_bits_truncate(0o755);
        self.make(at, |at| match mkdirat(at, name, mode) {
            // Another process has created it. It is checked like one that existed before.
            Err(Errno::EEXIST) => Ok(()),
            made => made,
        })
    }

    /// Creates an empty, read-only file.
    ///
    /// # Errors
    /// When it cannot be created: EROFS where the file system is read-only.
    pub(crate) fn make_file(&self, at: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let flags = OFlag::O_CREAT
            | OFlag::O_EXCL
            | OFlag::O_NOFOLLOW
            | OFlag::O_WRONLY
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o444);
        self.make(at, |at| match openat(at, name, flags, mode) {
            Ok(_) | Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Creates a file or folder, also where the mount is read-only, or where the file system maps
    /// only the ids of the container's own root.
    fn make(
        &self,
        at: BorrowedFd<'_>,
        make: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> io::Result<()> {
        match self.make_as(at, &make) {
            Err(Errno::EROFS) => {}
            made => return Ok(made?),
        }
        // No writable copy is possible, so the file system is read-only.
        let Ok(copy) = writable(at) else {
            return Err(Errno::EROFS.into());
        };
        Ok(self.make_as(copy.as_fd(), &make)?)
    }

    fn make_as(
        &self,
        at: BorrowedFd<'_>,
        make: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match (make(at), self.mapped) {
            (Err(Errno::EOVERFLOW | Errno::EACCES), Some((uid, gid))) => {
                let (own_gid, own_uid) = (setfsgid(gid), setfsuid(uid));
                let made = make(at);
                setfsuid(own_uid);
                setfsgid(own_gid);
                made
            }
            (made, _) => made,
        }
    }
}

/// Flags to resolve a path inside the container's root.
fn inside() -> ResolveFlag {
    ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS
}

/// Flags to resolve the last component of a path, which must not be a link.
fn leaf() -> ResolveFlag {
    ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
}

/// Finds the file of that name in a folder, without opening it.
///
/// # Errors
/// When there is no such file, or it is a link.
pub(crate) fn stands(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> Result<OwnedFd, Errno> {
    open_resolved(at, name.as_ref(), OFlag::O_PATH | OFlag::O_NOFOLLOW, leaf())
}

/// Like [`stands`], but also reports whether the file is a mount.
///
/// # Errors
/// When there is no such file, or it is a link.
pub(super) fn found(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> Result<Found, Errno> {
    find(at, name.as_ref(), OFlag::O_PATH | OFlag::O_NOFOLLOW, leaf())
}

/// Resolves a path without crossing a mount, and only then across mounts.
fn find(
    at: BorrowedFd<'_>,
    name: &Path,
    flags: OFlag,
    resolve: ResolveFlag,
) -> Result<Found, Errno> {
    match open_resolved(at, name, flags, resolve | ResolveFlag::RESOLVE_NO_XDEV) {
        Err(Errno::EXDEV) => Ok(Found {
            fd: open_resolved(at, name, flags, resolve)?,
            foreign: true,
        }),
        opened => Ok(Found {
            fd: opened?,
            foreign: false,
        }),
    }
}

/// Opens the file of an `O_PATH` descriptor if it is regular. It is always that inode, even if its
/// name now leads to another file.
///
/// # Errors
/// When it is not a regular file.
pub(crate) fn reopen(found: BorrowedFd<'_>) -> io::Result<File> {
    if !is_regular(found)? {
        return Err(io::Error::other("not a regular file"));
    }
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let path = sys::descriptor_path(found);
    sys::open(Path::new(&path), OFlag::O_RDONLY | flags)
}

/// Whether a descriptor refers to a regular file.
///
/// # Errors
/// The kernel's.
pub(crate) fn is_regular(found: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = fstat(found)?.st_mode & nix::libc::S_IFMT;
    Ok(kind == nix::libc::S_IFREG)
}

/// Whether two descriptors refer to the same file.
///
/// # Errors
/// The kernel's.
pub(crate) fn same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
