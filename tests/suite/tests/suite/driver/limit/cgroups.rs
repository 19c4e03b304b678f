//! Cgroups of the tests' own.
//! Touches: the mounted cgroups of version 2, where this machine lets it.

use gpuslice_suite::run::Run;
use gpuslice_suite::worker::Worker;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A cgroup of version 2, and its folder. Dropping it removes both.
pub(crate) struct Cgroup {
    pub(crate) folder: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup. Returns `None`, and reports it, where this machine does not permit that.
    pub(crate) fn new(name: &str) -> Option<Cgroup> {
        let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
        let mount = mounts
            .iter()
            .find(|mount| mount.join("cgroup.controllers").exists());
        let folder =
            mount.map(|mount| mount.join(format!("gpuslice-{name}-{}", std::process::id())));
        let made = folder.filter(|folder| fs::create_dir(folder).is_ok());
        if made.is_none() {
            eprintln!("not run: no cgroup can be made here ({name})");
        }
        made.map(|folder| Cgroup { folder })
    }

    pub(crate) fn takes(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// A worker in it, with a context.
    pub(crate) fn worker(&self, run: Run) -> Worker {
        let mut worker = Worker::start(run);
        self.takes(worker.pid());
        worker.must("start 0");
        worker
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel needs a moment to see that the last process is gone.
        let start = Instant::now();
        while fs::remove_dir(&self.folder).is_err_and(|error| error.raw_os_error() == Some(16)) {
            if start.elapsed() > Duration::from_secs(60) {
                eprintln!("{} still has processes", self.folder.display());
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// `MOUNT/gpuslice-NAME-PID`, and a leaf `leaf` in it.
pub(crate) fn two_levels(name: &str) -> Option<(Cgroup, Cgroup)> {
    let above = Cgroup::new(name)?;
    let folder = above.folder.join("leaf");
    fs::create_dir(&folder).unwrap();
    Some((above, Cgroup { folder }))
}

pub(crate) fn path(cgroup: &Cgroup) -> String {
    cgroup.folder.display().to_string()
}
