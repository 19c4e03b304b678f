//! Injects into a read-only image: the slice goes into the runtime's /dev, the loader's list into a
//! layer over /etc.
//! Touches: the container's mount namespace, by descriptors alone.

use super::IN_DEV;
use super::changes::{Attached, Step};
use super::mount_table::{self, topmost};
use super::root::{ContainerRoot, Found, found, stands};
use gpuslice_config::slice;
use gpuslice_host::base::{read, sys};
use nix::errno::Errno;
use nix::sys::stat::{FileStat, fstat};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

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

/// The slice file for a container whose slice is in /dev, which is not among the shim's default
/// paths.
pub(super) fn slice_in_dev(text: &str) -> String {
    let Ok(mut slice) = slice::parse(text.as_bytes()) else {
        return text.to_owned();
    };
    let path = |name: &str| Some(slice::Text::new(&format!("{IN_DEV}/{name}")));
    slice.meminfo = path("meminfo");
    slice.ledger = path("ledger/ledger");
    if slice
        .devices()
        .any(|device| device.integrated == Some(true))
    {
        slice.promises = path("promises");
        slice.promise = path("promise");
    }
    slice.to_json()
}

/// Mounts a layer over a folder: files in `upper` hide those of the folder. Mounts below the folder
/// (/etc/hosts) are moved onto the layer. They are not copied: crun makes read-only volumes read-only
/// after the hooks, by descriptors, and a copy would stay writable.
///
/// # Errors
/// The kernel's, for example because an overlay of overlays of overlays is nested too deep, or because
/// the runtime shares the mounts of the container's root, which keeps mounts from being moved.
pub(super) fn layer_over(
    folder: BorrowedFd<'_>,
    upper: BorrowedFd<'_>,
    attached: &mut Attached,
) -> io::Result<()> {
    let place = std::fs::read_link(sys::descriptor_path(folder))?;
    let table = read::file(Path::new("/proc/self/mountinfo"), mount_table::CAP)?;
    let layers = [upper, folder].map(sys::descriptor_path).join(":");
    let layers = CString::new(layers)?;
    let options = [(c"lowerdir", layers.as_c_str())];
    let layer = sys::new_mount(c"overlay", &options, sys::RDONLY | sys::NOSUID | sys::NODEV)?;
    let shown = layer.try_clone()?;
    sys::attach(layer.as_fd(), folder)?;
    attached.0.push(Step::Attached(layer));
    for path in topmost(&table, &place) {
        let volume = match found(folder, &path) {
            Ok(volume) if volume.foreign => volume.fd,
            // A later mount covers it.
            Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR) => continue,
            Err(error) => return Err(error.into()),
        };
        let point = stands(shown.as_fd(), &path)?;
        sys::attach(volume.as_fd(), point.as_fd())?;
        // The place below the volume. It could not be opened earlier.
        let from = stands(folder, &path).ok();
        attached.0.push(Step::Moved { volume, from });
    }
    Ok(())
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
