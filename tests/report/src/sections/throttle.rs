//! A cgroup whose processes read so much from a disk and no more.
//! Touches: blkio of cgroup v1, or io of v2; needs root.

use anyhow::{Context, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The cgroup. It is removed when this is dropped.
pub(crate) struct Throttle {
    folder: PathBuf,
}

impl Throttle {
    /// For the disk that a file is on.
    pub(crate) fn of(file: &Path, bytes_per_second: u64) -> Result<Throttle> {
        let device = file.metadata().context("the model")?.dev();
        let disk = disk(device).context("the model's file system is on no disk of its own")?;
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("gpuslice-report-{}", std::process::id());
        let v1 = (
            root.join("blkio"),
            "blkio.throttle.read_bps_device",
            format!("{disk} {bytes_per_second}"),
        );
        let v2 = (
            root.to_owned(),
            "io.max",
            format!("{disk} rbps={bytes_per_second}"),
        );
        // If the controller is on already, this is refused and changes nothing.
        let _ = std::fs::write(root.join("cgroup.subtree_control"), "+io");
        let made = [v1, v2].into_iter().find_map(|(root, limit, line)| {
            let throttle = Throttle {
                folder: root.join(&name),
            };
            std::fs::create_dir(&throttle.folder).ok()?;
            std::fs::write(throttle.folder.join(limit), line).ok()?;
            Some(throttle)
        });
        made.context("no cgroup limits this disk's reads (root, blkio of cgroup v1 or io of v2)")
    }

    /// The folder, into whose `cgroup.procs` a process writes its id.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // A process that was just killed may still be leaving.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// The disk of a device, as cgroups name it. A partition has none of its own.
fn disk(device: u64) -> Option<String> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let place = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let whole = match place.join("partition").exists() {
        true => place.parent()?.to_owned(),
        false => place,
    };
    let said = std::fs::read_to_string(whole.join("dev")).ok()?;
    Some(said.trim().to_owned())
}
