//! Names in a run's private folder: its slice file, and the links to its records elsewhere.
//! Touches: its arguments.

use std::path::Path;

/// The prefix of every private folder's name. No other folder is ever removed.
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

/// Returns the folder of a slice file, if gpuslice has created that folder for a run.
#[must_use]
pub(crate) fn private_folder(file: &Path) -> Option<&Path> {
    let folder = file.parent()?;
    let ours = folder.file_name()?.to_str()?.starts_with(PREFIX);
    (ours && file.file_name()? == SLICE).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

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
