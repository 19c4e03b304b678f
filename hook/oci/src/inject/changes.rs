//! Keeps the changes of a container's mounts, to undo them after a failure.
//! Touches: the container's mount namespace, by descriptors alone.

use gpuslice_host::base::sys;
use nix::mount::{MntFlags, umount2};
use std::os::fd::{AsFd, OwnedFd};

/// A change of the container's mounts.
pub(super) enum Step {
    /// A mount was attached.
    Attached(OwnedFd),
    /// A volume was moved away from the place that is given.
    Moved { volume: OwnedFd, from: OwnedFd },
}

/// Changes of the container's mounts; they are undone unless all of them succeed.
pub(super) struct Attached(pub(super) Vec<Step>);

impl Drop for Attached {
    fn drop(&mut self) {
        for step in self.0.iter().rev() {
            match step {
                Step::Attached(mount) => {
                    let path = sys::descriptor_path(mount);
                    let _ = umount2(path.as_str(), MntFlags::MNT_DETACH);
                }
                Step::Moved { volume, from } => {
                    let _ = sys::attach(volume.as_fd(), from.as_fd());
                }
            }
        }
    }
}
