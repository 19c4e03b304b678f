//! The edits of the engines' files, for fuzzers.
//! Touches: its arguments.

use super::{containerd, docker, nvidia};
use crate::base::hook_entry::RUNTIME;
use gpuslice_host::machine::dialects::Dialects;

/// A file, and the change that `gpuslice runtime configure` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Docker's daemon.json, with a runtime of one size or without.
    Docker {
        /// Whether a size has a runtime of its own.
        sized: bool,
    },
    /// containerd's config.toml, with a base specification or a runtime.
    Containerd {
        /// Whether the handler names a base specification.
        by_hooks: bool,
    },
    /// The configuration of NVIDIA's toolkit.
    Nvidia,
}

/// The wrapper's path.
const WRAPPER: &str = "/usr/bin/gpuslice-runtime";

/// Returns the file's text with gpuslice's part; None if the file is refused.
pub fn add(text: Option<&str>, edit: Edit, default: bool) -> Option<String> {
    match edit {
        Edit::Docker { sized } => {
            let size = ("8gib".to_owned(), "8GiB".to_owned());
            let wanted = docker::Wanted {
                runtime: WRAPPER,
                sizes: Some(size).filter(|_| sized).into_iter().collect(),
                default,
            };
            docker::add(text, &wanted).ok()
        }
        Edit::Containerd { by_hooks } => {
            let by = match by_hooks {
                true => containerd::By::BaseSpec("/etc/containerd/gpuslice-base-spec.json"),
                false => containerd::By::Runtime(WRAPPER),
            };
            containerd::add(text, by, default, Dialects::default()).ok()
        }
        Edit::Nvidia => nvidia::add(text, WRAPPER).ok(),
    }
}

/// Returns the file's text without gpuslice's part; None if the file is refused.
pub fn remove(text: &str, edit: Edit) -> Option<String> {
    match edit {
        Edit::Docker { .. } => docker::remove(text).ok(),
        Edit::Containerd { .. } => containerd::remove(text).ok(),
        Edit::Nvidia => nvidia::remove(text, WRAPPER).ok(),
    }
}

/// Whether a file has gpuslice's part.
pub fn has(text: &str, edit: Edit) -> bool {
    match edit {
        Edit::Docker { .. } => docker::has(text),
        Edit::Containerd { .. } => containerd::has(text),
        Edit::Nvidia => nvidia::has(text, WRAPPER),
    }
}

/// Adds gpuslice's part in the form of the command `--remove`, which compares the result with a
/// backup, and removes it again.
pub fn added_and_removed(text: &str, edit: Edit) -> Option<String> {
    let added = match edit {
        Edit::Docker { .. } => {
            let wanted = docker::Wanted {
                runtime: RUNTIME,
                ..docker::Wanted::default()
            };
            docker::add(Some(text), &wanted).ok()
        }
        Edit::Containerd { .. } => {
            let by = containerd::By::BaseSpec("x");
            containerd::add(Some(text), by, false, Dialects::default()).ok()
        }
        Edit::Nvidia => nvidia::add(Some(text), WRAPPER).ok(),
    };
    remove(&added?, edit)
}
