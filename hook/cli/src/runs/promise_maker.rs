//! Identifies the maker of a run's promise by the name of the promise's file.
//! Touches: the registry, the links in the private folders of runs.

use crate::runs::registry::{self, Remains};
use crate::runs::run_dir;
use gpuslice_host::machine::process::ProcessId;
use gpuslice_host::slices::tenants;
use std::fs;
use std::path::Path;

/// The maker of a run's promise: the process that runs the command, and ran gpuslice before `exec`.
pub(super) struct Maker<'a> {
    pub(super) process: ProcessId,
    pub(super) name: &'a str,
    id: &'a str,
}

/// Returns the maker that a promise's id names. A container's promise has no maker: the OCI hook
/// manages it.
pub(super) fn maker(id: &str) -> Option<Maker<'_>> {
    let (process, name) = tenants::promise_owner(id)?;
    Some(Maker { process, name, id })
}

impl Maker<'_> {
    /// Checks whether processes that the command left behind still use its slice.
    pub(super) fn has_left_something(&self, folder: &Path, remains: Remains) -> bool {
        registry::running_and(remains).iter().any(|entry| {
            run_dir::private_folder(&entry.file)
                .and_then(|private| fs::read_link(private.join(run_dir::PROMISE)).ok())
                .is_some_and(|file| {
                    let name = file.file_name().and_then(|name| name.to_str());
                    let id = name.and_then(|name| name.split_once('.')).map(|(_, id)| id);
                    file.parent() == Some(folder) && id == Some(self.id)
                })
        })
    }

    /// The run's name and pid, for messages.
    pub(super) fn shown(&self) -> String {
        format!("{} (pid {})", self.name, self.process.pid)
    }
}
