//! The cgroups of version 2: where they are mounted, and which one a process is in.
//! Touches: /proc/PID/cgroup and the mount of the cgroups, by reading them.

use crate::base::read;
use gpuslice_config::slice::version_2;
use std::io;
use std::path::{Path, PathBuf};

/// The mount points: beside version 1, or alone.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// The bytes that are read of a process's list.
const CAP: usize = 1 << 16;

/// Where the cgroups of version 2 are mounted; `None` where they are not.
#[must_use]
pub fn mount() -> Option<&'static Path> {
    let mut mounts = MOUNTS.into_iter().map(Path::new);
    mounts.find(|mount| mount.join("cgroup.controllers").exists())
}

/// The folder of a cgroup, by its path in `/proc/PID/cgroup`.
#[must_use]
pub fn folder(path: &str) -> Option<PathBuf> {
    mount().map(|mount| mount.join(path.trim_start_matches('/')))
}

/// The path of a process's cgroup, or of this process's own; `/` where it has none of version 2.
///
/// # Errors
/// When its list cannot be read.
pub fn path_of(pid: Option<i32>) -> io::Result<String> {
    let file = match pid {
        Some(pid) => format!("/proc/{pid}/cgroup"),
        None => "/proc/self/cgroup".to_owned(),
    };
    let text = read::file(Path::new(&file), CAP)?;
    let path = version_2(&text).unwrap_or(b"/");
    Ok(String::from_utf8_lossy(path).into_owned())
}
