//! Injects into a read-only image: the slice goes into the runtime's /dev, the loader's list into a
//! layer over /etc.
//! Touches: the container's mount namespace, by descriptors alone.

use super::root::{ContainerRoot, stands};
use gpuslice_host::base::{read, sys};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::fstat;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The bytes that are read of a mount table.
const TABLE: usize = 4 << 20;

/// Creates our folder in the container's /dev, which is a file system of the runtime's.
///
/// # Errors
/// When it is the host's own /dev, or read-only as well.
pub(super) fn folder_in_dev(
    root: &ContainerRoot,
    name: &str,
    hosts_dev: u64,
) -> io::Result<OwnedFd> {
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

/// Copies of the mounts below a folder, by their paths relative to it.
fn mounts_below(folder: BorrowedFd<'_>) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let place = std::fs::read_link(sys::descriptor_path(folder))?;
    let table = read::file(Path::new("/proc/self/mountinfo"), TABLE)?;
    let mut below = Vec::new();
    for path in topmost(&table, &place) {
        let point = stands(folder, &path)?;
        let copy = sys::clone_mount(point.as_fd(), true)?;
        sys::set_attributes(copy.as_fd(), 0, 0, true)?;
        below.push((path, copy));
    }
    Ok(below)
}

/// The topmost mount points below a place, relative to it.
fn topmost(table: &[u8], place: &Path) -> Vec<PathBuf> {
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let point = line.split(|byte| *byte == b' ').nth(4)?;
        let point = PathBuf::from(OsStr::from_bytes(&unescaped(point)));
        Some(point.strip_prefix(place).ok()?.to_owned())
    });
    let mut points: Vec<PathBuf> = points
        .filter(|point| !point.as_os_str().is_empty())
        .collect();
    points.sort();
    points.dedup();
    let all = points.clone();
    points.retain(|point| {
        let above = |other: &&PathBuf| *other != point && point.starts_with(other);
        !all.iter().any(|other| above(&other))
    });
    points
}

/// Decodes a path of a mount table, in which the kernel writes blanks and backslashes as three
/// octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal = |digits: &[u8; 3]| {
            let value = |sum: u32, digit: &u8| {
                let digit = char::from(*digit).to_digit(8)?;
                sum.checked_mul(8)?.checked_add(digit)
            };
            let sum = digits.iter().try_fold(0, value)?;
            u8::try_from(sum).ok()
        };
        let escaped = (*first == b'\\')
            .then(|| after.split_first_chunk::<3>())
            .flatten()
            .and_then(|(digits, after)| Some((octal(digits)?, after)));
        let (byte, next) = escaped.unwrap_or((*first, after));
        plain.push(byte);
        rest = next;
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_topmost_mounts_below_a_place_are_carried_over() {
        let table = b"21 1 8:1 / / rw - ext4 /dev/sda rw\n\
            22 21 0:5 / /c/etc rw - tmpfs t rw\n\
            23 22 0:6 / /c/etc/hosts rw - tmpfs t rw\n\
            24 22 0:7 / /c/etc/with\\040blank rw - tmpfs t rw\n\
            25 24 0:8 / /c/etc/with\\040blank/deeper rw - tmpfs t rw\n\
            26 21 0:9 / /c/etcetera rw - tmpfs t rw\n";
        let found = topmost(table, Path::new("/c/etc"));
        assert_eq!(found, [Path::new("hosts"), Path::new("with blank")]);
        assert_eq!(
            topmost(b"garbage\n\n", Path::new("/")),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn escapes_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped(b"a\\040b\\134c"), b"a b\\c");
        assert_eq!(unescaped(b"a\\04"), b"a\\04");
        assert_eq!(unescaped(b"\\999\\777"), b"\\999\\777");
    }
}
