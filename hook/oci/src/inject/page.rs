//! Mounts a slice's meminfo page over `/proc/meminfo`.
//! Touches: the container's /proc.

use super::changes::{Attached, Step};
use super::root::{self, ContainerRoot};
use super::{InjectError, inside, volumes};
use gpuslice_host::base::sys;
use nix::errno::Errno;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Mounts the page, unless it is mounted already. A container without a /proc needs none.
///
/// # Errors
/// When the container's /proc is not the kernel's or is shared with the host, or the page cannot be
/// mounted.
pub(super) fn attach(
    root: &ContainerRoot,
    page: OwnedFd,
    attached: &mut Attached,
) -> Result<(), InjectError> {
    let failed = || inside("mount /proc/meminfo");
    let (folder, place) = match (
        root.stands_plainly_at("proc"),
        root.stands_plainly_at("proc/meminfo"),
    ) {
        (Err(Errno::ENOENT), _) | (_, Err(Errno::ENOENT)) => return Ok(()),
        (Err(Errno::ELOOP), _) | (_, Err(Errno::ELOOP)) => return Err(InjectError::Meminfo),
        (folder, place) => {
            let folder = folder.map_err(|error| failed()(error.into()))?;
            (folder, place.map_err(|error| failed()(error.into()))?)
        }
    };
    let kind = fstatfs(&folder).map_err(|error| failed()(error.into()))?;
    let is_file = root::is_regular(place.as_fd()).map_err(failed())?;
    if kind.filesystem_type() != PROC_SUPER_MAGIC || !is_file {
        return Err(InjectError::Meminfo);
    }
    if root::same(place.as_fd(), page.as_fd()).map_err(failed())? {
        return Ok(());
    }
    // The container's /proc may be the host's, by a volume.
    volumes::check("/proc", place.as_fd(), true)?;
    let mounted: io::Result<()> = sys::attach(page.as_fd(), place.as_fd());
    mounted.map_err(failed())?;
    attached.0.push(Step::Attached(page));
    Ok(())
}
