//! Opens the files and folders that will be mounted into a container, while the hook is still in
//! the host's mount namespace: a mount of another namespace cannot be copied.
//! Touches: /run/gpuslice, the library, /proc/meminfo.

use crate::plan::{ContainerPlan, PROC_MEMINFO, PlannedMount, READ_ONLY, READ_ONLY_DATA};
use gpuslice_host::base::paths::{HostPaths, MOUNT};
use gpuslice_host::base::{read, sys};
use nix::fcntl::OFlag;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A source that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot mount {path}")]
pub(crate) struct SourceError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Detached copies of a plan's mounts.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The folder that becomes `/.gpuslice`.
    pub(crate) root: OwnedFd,
    /// The mounts inside that folder, by name.
    pub(crate) below: Vec<(PathBuf, OwnedFd)>,
    /// The slice's meminfo page.
    pub(crate) page: Option<OwnedFd>,
    /// The loader's list.
    pub(crate) preload: OwnedFd,
    /// The host's own folder. The list and the slice file are rewritten in it once the image is
    /// known.
    pub(crate) folder: File,
    /// The library, for checking it against the image's libc.
    pub(crate) library: File,
}

impl Sources {
    /// Opens all sources of a plan.
    ///
    /// # Errors
    /// When a source is missing, or users other than root may write to the library.
    pub(crate) fn take(plan: &ContainerPlan, paths: &HostPaths) -> Result<Sources, SourceError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| SourceError { path, source }
        };
        let (mut root, mut preload, mut library, mut page) = (None, None, None, None);
        let mut below = Vec::new();
        for mount in &plan.mounts {
            let path = &mount.source;
            let name = mount.target.strip_prefix("/").unwrap_or(&mount.target);
            let is_library = name.ends_with("libgpuslice.so");
            let copy = match is_library {
                true => {
                    let file = trusted(path).map_err(failed(path))?;
                    let copy = sys::clone_mount(file.as_fd(), false);
                    library = Some(file);
                    copy
                }
                false => sys::clone_mount_at(path),
            };
            let copy = copy.and_then(|copy| restricted(copy, mount));
            let copy = copy.map_err(failed(path))?;
            match name.strip_prefix(MOUNT) {
                Ok(below) if below.as_os_str().is_empty() => root = Some(copy),
                Ok(name) => below.push((name.to_owned(), copy)),
                Err(_) if mount.target == Path::new(PROC_MEMINFO) => page = Some(copy),
                Err(_) => preload = Some(copy),
            }
        }
        let place = paths.container_root(&plan.container);
        let missing = || failed(&place)(io::Error::from(io::ErrorKind::NotFound));
        Ok(Sources {
            root: root.ok_or_else(missing)?,
            below,
            page,
            preload: preload.ok_or_else(missing)?,
            folder: folder(&place).map_err(failed(&place))?,
            library: library.ok_or_else(missing)?,
        })
    }
}

fn folder(path: &Path) -> io::Result<File> {
    sys::open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW)
}

/// Opens a file that only root may write to, and that all users may read: every program of a
/// container loads the library, with that program's rights. ld.so ignores a library that it cannot
/// open.
fn trusted(path: &Path) -> io::Result<File> {
    let file = read::open(path)?;
    read::only_roots(&file)?;
    if file.metadata()?.mode() & 0o004 == 0 {
        return Err(io::Error::other(
            "users other than root cannot read it (chmod o+r)",
        ));
    }
    if fstatvfs(&file)?.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(io::Error::other("its file system is mounted noexec"));
    }
    Ok(file)
}

fn restricted(copy: OwnedFd, mount: &PlannedMount) -> io::Result<OwnedFd> {
    let common = sys::NOSUID | sys::NODEV;
    let set = match mount.options {
        READ_ONLY => common | sys::RDONLY,
        READ_ONLY_DATA => common | sys::RDONLY | sys::NOEXEC,
        _ => common | sys::NOEXEC,
    };
    sys::set_attributes(copy.as_fd(), set, 0, false)?;
    Ok(copy)
}
