//! Volumes of a container at the places of the slice. Other containers may have them, too.
//! Touches: the container's mount namespace, by descriptors alone.

use super::changes::{Attached, Step};
use super::root::{self, Found};
use super::{InjectError, LIST, inside};
use gpuslice_host::base::paths::PRELOAD;
use gpuslice_host::base::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Moves a volume away from the place of the loader's list, and returns the file below it. Another
/// container can remove the file of a volume, and the kernel then removes every mount on that file.
/// If the volume cannot be moved, it is returned. The volume stays mounted, because a runtime may
/// still make it read-only.
///
/// # Errors
/// When the file below the volume cannot be opened.
pub(super) fn set_aside(
    volume: Found,
    etc: &Found,
    own: BorrowedFd<'_>,
    attached: &mut Attached,
) -> Result<Found, InjectError> {
    let aside = root::stands(own, PRELOAD).map_err(io::Error::from);
    let moved = aside.and_then(|aside| sys::attach(volume.fd.as_fd(), aside.as_fd()));
    if moved.is_err() {
        return Ok(volume);
    }
    let failed = || inside("open /etc/ld.so.preload");
    let below = root::found(etc.fd.as_fd(), LIST).map_err(|error| failed()(error.into()))?;
    let from = below.fd.try_clone().map_err(failed())?;
    let volume = volume.fd;
    attached.0.push(Step::Moved { volume, from });
    Ok(below)
}
