//! Names in a run's private folder: its slice file, and the links to its records elsewhere.
//! Touches: its arguments.

use gpuslice_config::slice::Slice;
use std::path::{Path, PathBuf};

/// The prefix of every private folder's name. Only folders with this prefix are removed, and only by
/// their watcher, or if they contain the link to their run, or if their watcher has marked the run as
/// ended.
pub(crate) const PREFIX: &str = "gpuslice-";

/// The slice file.
pub(crate) const SLICE: &str = "slice.json";

/// The link to the run's link in the registry.
pub(crate) const ENTRY: &str = "entry";

/// The link to the run's promise.
pub(crate) const PROMISE: &str = "promise";

/// The link to the run's record among the tenants of its GPUs.
pub(crate) const TENANT: &str = "tenant";

/// The link to the folder of the run's cgroup. Only a run whose limit the driver holds has one.
pub(crate) const CGROUP: &str = "cgroup";

/// The link to the file with the headroom. Only a run that learns headroom has it; such a run has a
/// --name, which later runs reuse.
pub(crate) const HEADROOM: &str = "headroom";

/// The history of the run, until the run ends. Only a run that is recorded has it.
pub(crate) const HISTORY: &str = "history";

/// The link to the folder of the user's events.
pub(crate) const EVENTS: &str = "events";

/// The command of --on-refusal, until the watcher has read it.
pub(crate) const ON_REFUSAL: &str = "on-refusal";

/// The variables that `gpuslice env` printed, as in /proc/PID/environ. It exists only for a slice that
/// was made by that command.
pub(crate) const PRINTED: &str = "printed";

/// The meminfo page. Only a run with `--meminfo mount` on unified memory has it.
pub(crate) const PAGE: &str = "meminfo";

/// The place at which the programs of such a run find the host's own meminfo. It is mounted for them
/// alone: elsewhere the file is empty.
pub(crate) const HOSTS_MEMINFO: &str = "host-meminfo";

/// Returns the host's meminfo that a slice file names, as processes outside of the run find it; None if
/// it is /proc/meminfo.
#[must_use]
pub(crate) fn hosts_meminfo(slice: &Slice) -> Option<PathBuf> {
    let named = slice.meminfo.map(|path| PathBuf::from(path.as_str()));
    let is_private = |folder: &Path| {
        let name = folder.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
    };
    named.filter(|path| !path.ends_with(HOSTS_MEMINFO) || !path.parent().is_some_and(is_private))
}

/// Returns the folder of a slice file, if both have the names of what gpuslice creates for a run. A
/// user's own folder may have such a name.
#[must_use]
pub(crate) fn private_folder(file: &Path) -> Option<&Path> {
    let folder = file.parent()?;
    let ours = folder.file_name()?.to_str()?.starts_with(PREFIX);
    (ours && file.file_name()? == SLICE).then_some(folder)
}

/// Returns the path of the meminfo page of a run with this slice file, if the run can have one.
#[must_use]
pub(crate) fn page(file: &Path) -> Option<PathBuf> {
    private_folder(file).map(|folder| folder.join(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meminfo_that_is_mounted_for_a_run_alone_is_the_hosts_elsewhere() {
        let of = |path| {
            let mut slice = Slice::default();
            slice.meminfo = Some(gpuslice_config::slice::Text::new(path));
            hosts_meminfo(&slice)
        };
        assert_eq!(of("/dev/shm/gpuslice-abc/host-meminfo"), None);
        for own in ["/state/meminfo", "/mine/host-meminfo"] {
            assert_eq!(of(own), Some(PathBuf::from(own)));
        }
        assert_eq!(hosts_meminfo(&Slice::default()), None);
    }

    #[test]
    fn only_what_gpuslice_has_made_is_a_private_folder() {
        let folder = |file| private_folder(Path::new(file));
        let own = "/dev/shm/gpuslice-abc";
        assert_eq!(
            folder("/dev/shm/gpuslice-abc/slice.json"),
            Some(Path::new(own))
        );
        assert_eq!(folder("/dev/shm/gpuslice-abc/other.json"), None);
        assert_eq!(folder("/home/me/slice.json"), None);
        assert_eq!(folder("/slice.json"), None);
    }
}
