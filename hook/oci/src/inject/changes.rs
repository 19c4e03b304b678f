//! Keeps the changes of a container's mounts, to undo them after a failure.
//! Touches: the container's mount namespace, by descriptors alone.

use gpuslice_host::base::sys;
use nix::mount::{MntFlags, umount2};
use std::os::fd::{AsFd, OwnedFd};

/// A change of the container's mounts.
pub(super) enum Step {
    /// A mount was attached.
    Attached(OwnedFd),
    /// A volume was moved away from the place that is given. If that could not be opened, the volume
    /// cannot be put back.
    Moved {
        volume: OwnedFd,
        from: Option<OwnedFd>,
    },
}

/// Changes of the container's mounts.
pub(super) struct Attached(pub(super) Vec<Step>);

impl Attached {
    /// Undoes all changes, the last one first. Returns whether all is as it was: every volume of the
    /// container is at its place again, and nothing covers it.
    pub(super) fn undo(&self) -> bool {
        let mut undone = true;
        for step in self.0.iter().rev() {
            match step {
                Step::Attached(mount) => {
                    let path = sys::descriptor_path(mount);
                    undone &= umount2(path.as_str(), MntFlags::MNT_DETACH).is_ok();
                }
                Step::Moved { volume, from } => {
                    let back = |from: &OwnedFd| sys::attach(volume.as_fd(), from.as_fd()).is_ok();
                    undone &= from.as_ref().is_some_and(back);
                }
            }
        }
        undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_volume_that_is_not_at_its_place_again_is_noticed() {
        let some = || OwnedFd::from(File::open("/proc/self/stat").expect("a file"));
        let moved = |from| {
            Attached(vec![Step::Moved {
                volume: some(),
                from,
            }])
        };
        assert!(!moved(None).undo(), "its place could not be opened");
        assert!(!moved(Some(some())).undo(), "the kernel refuses");
        assert!(Attached(Vec::new()).undo());
    }
}
