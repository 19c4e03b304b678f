//! Volumes of a container at the places of the slice. Other containers, or the host, may have them
//! too.
//! Touches: the container's mount namespace, by descriptors alone.

use super::changes::{Attached, Step};
use super::mount_table::{CAP, is_shared};
use super::root::{self, Found};
use super::{InjectError, LIST, inside};
use gpuslice_host::base::paths::PRELOAD;
use gpuslice_host::base::{read, sys};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

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
    let from = root::stands(etc.fd.as_fd(), LIST).ok();
    let volume = volume.fd;
    attached.0.push(Step::Moved { volume, from });
    root::found(etc.fd.as_fd(), LIST)
        .map_err(|error| inside("open /etc/ld.so.preload")(error.into()))
}

/// Checks that a mount on a file or folder of a volume stays in the container: if the container
/// shares the mounts of the volume with the host, the host's programs would see it as well. `name`:
/// the volume's place, for the error.
///
/// # Errors
/// [`InjectError::Shared`] if the volume's mounts are shared.
pub(super) fn check(
    name: &'static str,
    place: BorrowedFd<'_>,
    is_volume: bool,
) -> Result<(), InjectError> {
    match is_volume && is_in_peer_group(place).map_err(inside("look at the mounts"))? {
        true => Err(InjectError::Shared(name)),
        false => Ok(()),
    }
}

/// Whether the mount of a file is in a peer group.
fn is_in_peer_group(place: BorrowedFd<'_>) -> io::Result<bool> {
    let facts = format!("/proc/self/fdinfo/{}", place.as_raw_fd());
    let facts = read::file(Path::new(&facts), CAP)?;
    let table = read::file(Path::new("/proc/self/mountinfo"), CAP)?;
    let missing = || io::Error::from(io::ErrorKind::InvalidData);
    is_shared(&table, &facts).ok_or_else(missing)
}
