//! A container's file system, seen from outside of it.
//! Touches: what is below its root. Law: every path is resolved by the kernel inside the root
//! and never twice; no magic link is followed; nothing is opened but regular files; nothing is
//! made in a file system that was mounted into the container.

use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// How often a path is tried that others rename meanwhile.
const TRIES: u32 = 128;

/// The container's root, and who may make things in it.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    /// The container's root as the host numbers it, where that is another user than ours.
    mapped: Option<(Uid, Gid)>,
}

/// A folder in the container.
#[derive(Debug)]
pub struct Folder {
    /// It.
    pub fd: OwnedFd,
    /// Whether something was mounted on the way to it: a volume, which may be the host's.
    pub foreign: bool,
}

fn open2(
    at: BorrowedFd<'_>,
    path: &Path,
    flags: OFlag,
    resolve: ResolveFlag,
) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(resolve);
    let mut tries = TRIES;
    loop {
        match openat2(at, path, how) {
            // The kernel lost a race against a rename, and says so.
            Err(Errno::EAGAIN) if tries > 0 => tries = tries.saturating_sub(1),
            opened => return opened,
        }
    }
}

/// A folder of what is mounted here, to be written to although the mount is read-only: the
/// file system below may not be.
fn writable(folder: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let copy = sys::clone_mount(folder, false)?;
    sys::set_attributes(copy.as_fd(), 0, sys::RDONLY, false)?;
    Ok(copy)
}

impl Root {
    /// Opens a container's root.
    ///
    /// # Errors
    /// When it cannot be opened, or is the root of the host.
    pub fn open(path: &Path, mapped: Option<(Uid, Gid)>) -> io::Result<Root> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let fd = open2(AT_FDCWD, path, flags, ResolveFlag::RESOLVE_NO_MAGICLINKS)?;
        let (own, hosts) = (fstat(&fd)?, nix::sys::stat::stat("/")?);
        if (own.st_dev, own.st_ino) == (hosts.st_dev, hosts.st_ino) {
            return Err(io::Error::other("it is the host's own root"));
        }
        Ok(Root { fd, mapped })
    }

    fn resolve(&self, path: &str, flags: OFlag, more: ResolveFlag) -> Result<OwnedFd, Errno> {
        let inside = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        open2(self.fd.as_fd(), Path::new(path), flags, inside | more)
    }

    /// Whatever a path leads to, not opened. Links are followed inside the image.
    ///
    /// # Errors
    /// When there is nothing; ELOOP where a link of /proc leads elsewhere.
    pub(super) fn stands_at(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlag::O_PATH, ResolveFlag::empty())
    }

    /// The same, where no link is followed: ELOOP where there is one.
    ///
    /// # Errors
    /// When there is nothing, or a link.
    pub(super) fn stands_plainly_at(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlag::O_PATH, ResolveFlag::RESOLVE_NO_SYMLINKS)
    }

    /// Opens a regular file of the image to be read. Links are followed inside the image.
    ///
    /// # Errors
    /// When there is none, or it is something else.
    pub fn regular(&self, path: &str) -> io::Result<File> {
        let found = self.resolve(path, OFlag::O_PATH, ResolveFlag::empty())?;
        reopen(found.as_fd())
    }

    /// Whether there is a regular file.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let found = self.resolve(path, OFlag::O_PATH, ResolveFlag::empty());
        found.is_ok_and(|found| is_regular(found.as_fd()).unwrap_or(false))
    }

    /// The folder of that name in the root, made if there is none.
    ///
    /// # Errors
    /// When it is not a folder, or cannot be made: with EROFS where nobody can.
    pub fn folder(&self, name: &str) -> io::Result<Folder> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let mut made = false;
        loop {
            match self.resolve(name, flags, ResolveFlag::RESOLVE_NO_XDEV) {
                Ok(fd) => return Ok(Folder { fd, foreign: false }),
                Err(Errno::EXDEV) => {
                    let fd = self.resolve(name, flags, ResolveFlag::empty())?;
                    return Ok(Folder { fd, foreign: true });
                }
                Err(Errno::ENOENT) if !made => {
                    self.make_folder(self.fd.as_fd(), name)?;
                    made = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A folder in a folder, which no link may stand for, made if there is none.
    ///
    /// # Errors
    /// When it is a link or something else, or cannot be made.
    pub fn plain_folder(&self, at: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let open = || open2(at, Path::new(name), flags, leaf());
        match open() {
            Err(Errno::ENOENT) => {
                self.make_folder(at, name)?;
                Ok(open()?)
            }
            opened => Ok(opened?),
        }
    }

    /// The root itself.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn make_folder(&self, at: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let mode = Mode::from_bits_truncate(0o755);
        self.make(at, |at| match mkdirat(at, name, mode) {
            // Somebody else has; it is looked at like one that was there.
            Err(Errno::EEXIST) => Ok(()),
            made => made,
        })
    }

    /// Makes an empty file that nobody writes to.
    ///
    /// # Errors
    /// When it cannot be made: with EROFS where nobody can.
    pub fn make_file(&self, at: BorrowedFd<'_>, name: &str) -> io::Result<()> {
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

    /// Makes something, also where the mount is read-only, or only the container's own root has
    /// a number in the file system.
    fn make(
        &self,
        at: BorrowedFd<'_>,
        make: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> io::Result<()> {
        match self.make_as(at, &make) {
            Err(Errno::EROFS) => {}
            made => return Ok(made?),
        }
        // Where it cannot be made writable it stays as it is: read-only.
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

/// The last part of a path: what stands there, and no link.
fn leaf() -> ResolveFlag {
    ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
}

/// What stands at a name in a folder, without opening it.
///
/// # Errors
/// When there is nothing, or a link.
pub fn stands(at: BorrowedFd<'_>, name: impl AsRef<Path>) -> Result<OwnedFd, Errno> {
    open2(at, name.as_ref(), OFlag::O_PATH | OFlag::O_NOFOLLOW, leaf())
}

/// Opens what a descriptor stands for, if that is a regular file: the same inode, whatever its
/// name leads to by now.
///
/// # Errors
/// When it is something else.
pub fn reopen(found: BorrowedFd<'_>) -> io::Result<File> {
    if !is_regular(found)? {
        return Err(io::Error::other("not a regular file"));
    }
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let path = sys::descriptor_path(found);
    sys::open(Path::new(&path), OFlag::O_RDONLY | flags)
}

/// Whether a descriptor stands for a regular file.
///
/// # Errors
/// The kernel's.
pub fn is_regular(found: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = fstat(found)?.st_mode & nix::libc::S_IFMT;
    Ok(kind == nix::libc::S_IFREG)
}

/// Whether two descriptors stand for the same file.
///
/// # Errors
/// The kernel's.
pub fn same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
