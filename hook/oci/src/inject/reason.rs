//! Records the reason why a container starts without its slice, so that `gpuslice check` in the
//! container finds it.
//! Touches: /run/gpuslice, the container's mount namespace, by descriptors alone.
//! Law: nothing is preloaded, and the only mount is one read-only folder with one file.

use super::{IN_DEV, InjectError, Injection, enter, inside, is_attached, place};
use gpuslice_config::words::paths::NO_SLICE;
use gpuslice_host::base::sys;
use nix::fcntl::OFlag;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The folder with the reason, as a detached mount. It must be taken in the host's mount namespace,
/// or in a copy of it.
#[derive(Debug)]
pub(crate) struct Reason(OwnedFd);

impl Reason {
    /// Writes the reason into a folder of the host, which is created for it.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn write(folder: &Path, why: &str) -> io::Result<Reason> {
        match DirBuilder::new().mode(0o755).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        write(folder, why)?;
        let copy = sys::clone_mount_at(folder)?;
        let set = sys::RDONLY | sys::NOSUID | sys::NODEV | sys::NOEXEC;
        sys::set_attributes(copy.as_fd(), set, 0, false)?;
        Ok(Reason(copy))
    }

    /// Mounts the folder where a slice would be. The process stays in the container's mount
    /// namespace, even after an error.
    ///
    /// # Errors
    /// When the container has no place for it.
    pub(crate) fn mount(self, target: &Injection<'_>) -> Result<(), InjectError> {
        let root = enter(target)?;
        let (place, at) = place(&root, target.hosts_dev)?;
        if is_attached(&place, at, self.0.as_fd(), target)? {
            return Ok(());
        }
        let doing = match at {
            IN_DEV => "mount /dev/gpuslice",
            _ => "mount /.gpuslice",
        };
        sys::attach(self.0.as_fd(), place.fd.as_fd()).map_err(inside(doing))
    }
}

/// Writes the reason into a folder of the host's.
///
/// # Errors
/// The kernel's.
pub(crate) fn write(folder: &Path, why: &str) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_NOFOLLOW;
    let mut file = sys::make(&folder.join(NO_SLICE), flags, 0o444)?;
    file.write_all(format!("{why}\n").as_bytes())
}
