//! Paths that the runtime masks after the hooks have run: a mask over the loader's list, or over the
//! slice, would take the slice away again.
//! Touches: the container's root, to resolve paths.

use super::root::Root;
use super::{InjectError, LIST};
use nix::errno::Errno;
use nix::sys::stat::fstat;
use std::path::{Path, PathBuf};

/// Checks that none of the masked paths is one without which the container has no slice, by whatever
/// links it leads there.
///
/// # Errors
/// [`InjectError::Masked`] for the first that is, or that cannot be resolved as the runtime will.
pub(super) fn check(root: &Root, at: &str, masked: &[PathBuf]) -> Result<(), InjectError> {
    if masked.is_empty() {
        return Ok(());
    }
    let list = format!("/etc/{LIST}");
    let library = format!("{at}/libgpuslice.so");
    let ours = ["/", "/etc", "/dev", at, &list, &library].map(|path| identity(root, path));
    for path in masked {
        match path.to_str().map(|text| identity(root, text)) {
            // A path that does not exist is not masked. One with a link may exist later: /proc/self
            // leads elsewhere in the container than here.
            Some(Err(Errno::ENOENT | Errno::ENOTDIR)) if !has_link(root, path) => {}
            Some(Ok(found)) if !ours.contains(&Ok(found)) => {}
            _ => return Err(InjectError::Masked(Path::new("/").join(path))),
        }
    }
    Ok(())
}

/// Whether a link stands on the way of a path.
fn has_link(root: &Root, path: &Path) -> bool {
    let text = path.to_str().unwrap_or_default();
    root.stands_plainly_at(text)
        .is_err_and(|error| error == Errno::ELOOP)
}

/// What a path leads to: the device and the number of its file.
fn identity(root: &Root, path: &str) -> Result<(u64, u64), Errno> {
    let found = fstat(root.stands_at(path)?)?;
    Ok((found.st_dev, found.st_ino))
}
