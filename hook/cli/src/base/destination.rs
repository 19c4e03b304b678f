//! Resolves the file that a path names, without following a symbolic link planted by another user.
//! Touches: the file system, by descriptors; it opens no regular file.
//! Law: a link in a folder in which others may create files is followed only if it belongs to this
//! user or to root. `fs.protected_symlinks` is the kernel's form of this rule. It is not always
//! enabled, knows only sticky folders, and does not apply to links before the last component.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::geteuid;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// The number of links that the kernel follows in one path.
const LINKS: u32 = 40;

/// The file that a path names.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A regular file, or a file that does not exist yet: it can be replaced.
    File {
        /// Its folder.
        folder: OwnedFd,
        /// Its name in the folder.
        name: OsString,
        /// The existing file.
        old: Option<FileStat>,
    },
    /// A device, a pipe, a socket or an open file of a process, opened for writing.
    Stream(File),
}

/// Returns an absolute path, with links resolved as far as the path exists.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for folder in absolute.ancestors() {
        let rest = absolute.strip_prefix(folder).unwrap_or(Path::new(""));
        match folder.canonicalize() {
            Ok(found) if rest.as_os_str().is_empty() => return found,
            Ok(found) => return found.join(rest),
            Err(_) => {}
        }
    }
    absolute
}

/// One component of a path.
enum Step {
    Root,
    Up,
    Name(OsString),
}

fn steps(path: &Path) -> impl DoubleEndedIterator<Item = Step> {
    path.components().filter_map(|component| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Resolves a path.
///
/// # Errors
/// When a folder cannot be entered, a link may not be followed, or the path names a folder.
pub(crate) fn find(path: &Path) -> io::Result<Destination> {
    let mut left: VecDeque<Step> = steps(path).collect();
    let mut folder = enter(AT_FDCWD, OsStr::new("."))?;
    let mut links = 0u32;
    while let Some(step) = left.pop_front() {
        let name = match step {
            Step::Root => {
                folder = enter(AT_FDCWD, OsStr::new("/"))?;
                continue;
            }
            Step::Up => {
                folder = enter(&folder, OsStr::new(".."))?;
                continue;
            }
            Step::Name(name) => name,
        };
        let is_last = left.is_empty();
        let found = match fstatat(&folder, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) if is_last => {
                let old = None;
                return Ok(Destination::File { folder, name, old });
            }
            found => found?,
        };
        if kind(&found) == SFlag::S_IFLNK {
            links = links.saturating_add(1);
            if links > LINKS {
                return Err(Errno::ELOOP.into());
            }
            may_use(&folder, &found, "link")?;
            // The kernel's own links, such as /proc/self/fd/1, may lead to files without a path.
            let is_of_the_kernel = fstatfs(&folder)?.filesystem_type() == PROC_SUPER_MAGIC;
            match (is_of_the_kernel, is_last) {
                (true, true) => return stream(&folder, &name, OFlag::O_APPEND),
                (true, false) => folder = follow(&folder, &name)?,
                (false, _) => {
                    let target = readlinkat(&folder, name.as_os_str())?;
                    for step in steps(Path::new(&target)).rev() {
                        left.push_front(step);
                    }
                }
            }
        } else if is_last {
            return match kind(&found) {
                SFlag::S_IFDIR => Err(Errno::EISDIR.into()),
                SFlag::S_IFREG => {
                    may_use(&folder, &found, "file")?;
                    let old = Some(found);
                    Ok(Destination::File { folder, name, old })
                }
                _ => stream(&folder, &name, OFlag::O_NOFOLLOW),
            };
        } else {
            folder = enter(&folder, &name)?;
        }
    }
    // Only "/", "." and ".." are left, and they name folders.
    Err(Errno::EISDIR.into())
}

fn kind(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}

/// Opens a folder, but not through a link.
fn enter(folder: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Opens the folder that one of the kernel's own links leads to.
fn follow(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

/// Refuses a link that another user may have planted: in a folder of that user, or in one to which
/// others may write. Refuses a file only in a folder to which everybody may write: a file is
/// replaced, so nothing that it leads to is overwritten.
fn may_use(folder: &OwnedFd, found: &FileStat, what: &str) -> io::Result<()> {
    let is_trusted = |owner: u32| owner == 0 || owner == geteuid().as_raw();
    if is_trusted(found.st_uid) {
        return Ok(());
    }
    let of = fstat(folder)?;
    let is_link = kind(found) == SFlag::S_IFLNK;
    let everybody = Mode::S_ISVTX | Mode::S_IWOTH;
    let others = match is_link {
        true => everybody | Mode::S_IWGRP,
        false => everybody,
    };
    let is_shared = of.st_mode & others.bits() != 0 || is_link && !is_trusted(of.st_uid);
    match is_shared {
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "the {what} belongs to user {}, who may create files in its folder (use a folder of your own)",
                found.st_uid
            ),
        )),
        false => Ok(()),
    }
}

/// Opens a file that is not a regular file. Standard output and error are used as they are: opening
/// them again would overwrite the data they already hold.
fn stream(folder: &OwnedFd, name: &OsStr, more: OFlag) -> io::Result<Destination> {
    let follow = fstatat(folder, name, AtFlags::empty())?;
    for own in [io::stdout().as_fd(), io::stderr().as_fd()] {
        let is_same =
            fstat(own).is_ok_and(|own| (own.st_dev, own.st_ino) == (follow.st_dev, follow.st_ino));
        if is_same && kind(&follow) != SFlag::S_IFCHR {
            return Ok(Destination::Stream(own.try_clone_to_owned()?.into()));
        }
    }
    let flags = OFlag::O_WRONLY | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | more;
    let file = openat(folder, name, flags, Mode::empty())?;
    Ok(Destination::Stream(file.into()))
}
