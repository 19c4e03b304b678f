//! What is mounted into a container, taken while we are still in the host's mount namespace: a
//! mount of another namespace cannot be copied.
//! Touches: /run/gpuslice, the library, /proc/meminfo.

use crate::place::Places;
use crate::plan::{MOUNT, Mount, Plan, READ_ONLY, READ_ONLY_DATA};
use crate::{host, read, sys};
use nix::fcntl::OFlag;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A source that cannot be taken.
#[derive(Debug, thiserror::Error)]
#[error("cannot mount {path}")]
pub struct SourceError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Detached copies of the mounts of a plan.
#[derive(Debug)]
pub struct Sources {
    /// What becomes `/.gpuslice`.
    pub root: OwnedFd,
    /// What is mounted into that, by name.
    pub below: Vec<(PathBuf, OwnedFd)>,
    /// The loader's list.
    pub preload: OwnedFd,
    /// The same, to be written when the image's own list is known.
    pub preload_text: File,
    /// The slice file, likewise.
    pub slice_text: File,
    /// The library, to compare with the image's libc.
    pub library: File,
}

impl Sources {
    /// Takes them.
    ///
    /// # Errors
    /// When one is not there, or the library could be anybody's.
    pub fn take(plan: &Plan, places: &Places) -> Result<Sources, SourceError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| SourceError { path, source }
        };
        let (mut root, mut preload, mut library) = (None, None, None);
        let mut below = Vec::new();
        for mount in &plan.mounts {
            let path = &mount.source;
            let name = mount.target.strip_prefix("/").unwrap_or(&mount.target);
            let is_library = name.ends_with("libgpuslice.so");
            let source = match is_library {
                true => trusted(path),
                false => path_only(path),
            };
            let source = source.map_err(failed(path))?;
            let copy = take(source.as_fd(), mount).map_err(failed(path))?;
            match name.strip_prefix(MOUNT) {
                Ok(below) if below.as_os_str().is_empty() => root = Some(copy),
                Ok(name) => below.push((name.to_owned(), copy)),
                Err(_) => preload = Some(copy),
            }
            if is_library {
                library = Some(source);
            }
        }
        let folder = places.container_root(&plan.container);
        let missing = || failed(&folder)(io::Error::from(io::ErrorKind::NotFound));
        let write = |path: PathBuf| {
            let file = OpenOptions::new().write(true).open(&path);
            file.map_err(failed(&path))
        };
        Ok(Sources {
            root: root.ok_or_else(missing)?,
            below,
            preload: preload.ok_or_else(missing)?,
            preload_text: write(host::preload(places, &plan.container))?,
            slice_text: write(folder.join("slice.json"))?,
            library: library.ok_or_else(missing)?,
        })
    }
}

fn path_only(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
}

/// Every program of a container loads it, with that program's rights.
fn trusted(path: &Path) -> io::Result<File> {
    let file = read::open(path)?;
    read::only_roots(&file)?;
    if fstatvfs(&file)?.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(io::Error::other("its file system is mounted noexec"));
    }
    Ok(file)
}

fn take(source: BorrowedFd<'_>, mount: &Mount) -> io::Result<OwnedFd> {
    let common = sys::NOSUID | sys::NODEV;
    let set = match mount.options {
        READ_ONLY => common | sys::RDONLY,
        READ_ONLY_DATA => common | sys::RDONLY | sys::NOEXEC,
        _ => common | sys::NOEXEC,
    };
    let copy = sys::clone_mount(source, false)?;
    sys::set_attributes(copy.as_fd(), set, 0, false)?;
    Ok(copy)
}
