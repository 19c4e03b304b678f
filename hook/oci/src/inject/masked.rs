//! Checks the paths that the runtime masks after the hooks have run. A mask over the loader's list,
//! or over the slice, would hide the slice again.
//! Touches: the container's root, to resolve paths.

use super::root::ContainerRoot;
use super::{InjectError, LIST};
use nix::errno::Errno;
use nix::sys::stat::fstat;
use std::path::{Path, PathBuf};

/// Checks that no masked path leads, through any links, to a file that the container's slice needs.
///
/// # Errors
/// [`InjectError::Masked`] for the first path that does, or that cannot be resolved as the runtime
/// will resolve it.
pub(super) fn check(root: &ContainerRoot, at: &str, masked: &[PathBuf]) -> Result<(), InjectError> {
    if masked.is_empty() {
        return Ok(());
    }
    let list = format!("/etc/{LIST}");
    let library = format!("{at}/libgpuslice.so");
    let ours = ["/", "/etc", "/dev", at, &list, &library].map(|path| identity(root, path));
    for path in masked {
        match path.to_str().map(|text| identity(root, text)) {
            // A path that does not exist is not masked. A path with a link may exist later:
            // /proc/self leads elsewhere in the container than here.
            Some(Err(Errno::ENOENT | Errno::ENOTDIR)) if !has_link(root, path) => {}
            Some(Ok(found)) if !ours.contains(&Ok(found)) => {}
            _ => return Err(InjectError::Masked(Path::new("/").join(path))),
        }
    }
    Ok(())
}

/// Whether a component of a path is a link.
fn has_link(root: &ContainerRoot, path: &Path) -> bool {
    let text = path.to_str().unwrap_or_default();
    root.stands_plainly_at(text)
        .is_err_and(|error| error == Errno::ELOOP)
}

/// The device and inode number of the file that a path leads to.
fn identity(root: &ContainerRoot, path: &str) -> Result<(u64, u64), Errno> {
    let found = fstat(root.stands_at(path)?)?;
    Ok((found.st_dev, found.st_ino))
}
