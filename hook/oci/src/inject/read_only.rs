//! Injects into a read-only image: the slice goes into the runtime's /dev, the loader's list into a
//! layer over /etc.
//! Touches: the container's mount namespace, by descriptors alone.

use super::mount_table::{self, topmost};
use super::root::{ContainerRoot, Found, stands};
use gpuslice_host::base::{read, sys};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{FileStat, fstat};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Creates our folder in the container's /dev, which is a file system of the runtime's.
///
/// # Errors
/// When it is the host's own /dev, or read-only as well.
pub(super) fn folder_in_dev(root: &ContainerRoot, name: &str, hosts_dev: u64) -> io::Result<Found> {
    let dev = root.folder("dev")?;
    if fstat(&dev.fd)?.st_dev == hosts_dev {
        return Err(io::Error::other(
            "its image is read-only and its /dev is the host's",
        ));
    }
    root.plain_folder(dev.fd.as_fd(), name)
}

/// Mounts a layer over a folder: files in `upper` hide those of the folder. Mounts below the folder
/// (/etc/hosts) are carried over.
///
/// # Errors
/// The kernel's, for example because an overlay of overlays of overlays is nested too deep.
pub(super) fn layer_over(folder: BorrowedFd<'_>, upper: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let below = mounts_below(folder)?;
    let layers = [upper, folder].map(sys::descriptor_path).join(":");
    let layers = CString::new(layers)?;
    let options = [(c"lowerdir", layers.as_c_str())];
    let layer = sys::new_mount(c"overlay", &options, sys::RDONLY | sys::NOSUID | sys::NODEV)?;
    sys::attach(layer.as_fd(), folder)?;
    let carried = below.iter().try_for_each(|(path, mount)| {
        let point = stands(layer.as_fd(), path)?;
        sys::attach(mount.as_fd(), point.as_fd())
    });
    if carried.is_err() {
        // Without the mounts below the folder, the layer would hide more than it shows.
        let place = sys::descriptor_path(&layer);
        let _ = umount2(place.as_str(), MntFlags::MNT_DETACH);
    }
    carried.map(|()| layer)
}

/// Whether a file is the one of `upper` that a layer shows. An overlay reports the owner, the length
/// and the times of the file below. No user can set the time of a file's last change.
///
/// # Errors
/// The kernel's.
pub(super) fn is_in_layer(found: BorrowedFd<'_>, upper: BorrowedFd<'_>) -> io::Result<bool> {
    if fstatfs(found)?.filesystem_type() != OVERLAYFS_SUPER_MAGIC {
        return Ok(false);
    }
    let facts = |file: &FileStat| {
        let changed = (file.st_ctime, file.st_ctime_nsec);
        (file.st_mode, file.st_uid, file.st_size, changed)
    };
    Ok(facts(&fstat(found)?) == facts(&fstat(upper)?))
}

/// Copies of the mounts below a folder, by their paths relative to it.
fn mounts_below(folder: BorrowedFd<'_>) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let place = std::fs::read_link(sys::descriptor_path(folder))?;
    let table = read::file(Path::new("/proc/self/mountinfo"), mount_table::CAP)?;
    let mut below = Vec::new();
    for path in topmost(&table, &place) {
        let point = stands(folder, &path)?;
        let copy = sys::clone_mount(point.as_fd(), true)?;
        sys::set_attributes(copy.as_fd(), 0, 0, true)?;
        below.push((path, copy));
    }
    Ok(below)
}
