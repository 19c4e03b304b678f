//! Keeps the counts of the guard for metrics and doctor, in one small file that the guard replaces.
//! Touches: the file.

use crate::base::atomic_write::{self, Durability};
use gpuslice_host::base::paths::HostPaths;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// The name of the file in the run folder of the host.
const FILE: &str = "guard.json";

/// The state of the guard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuardState {
    /// The version of the format.
    pub(crate) schema: u64,
    /// The time at which the guard last worked, in seconds since 1970.
    pub(crate) seen: u64,
    /// The host's shortage of memory: 0 enough, 1 warn, 2 short, 3 terminate, 4 kill.
    pub(crate) level: u64,
    /// How often the guard has sent SIGTERM to a process or slice, or tried to, since its start.
    pub(crate) terminated: u64,
    /// How often it has sent SIGKILL, or tried to.
    pub(crate) killed: u64,
    /// The processes that were named because they hold memory beyond their slice.
    pub(crate) named: u64,
    /// The lists of processes that the driver was asked for.
    #[serde(default)]
    pub(crate) snapshots: u64,
}

fn file(places: &HostPaths) -> PathBuf {
    places.run().join(FILE)
}

/// Reads the state that the last guard wrote. None if there is no file, or its schema is another one.
pub(crate) fn read(places: &HostPaths) -> Option<GuardState> {
    let text = fs::read(file(places)).ok()?;
    let state: GuardState = serde_json::from_slice(&text).ok()?;
    (state.schema == 1).then_some(state)
}

/// Writes the state. If that fails, metrics show the former one.
pub(crate) fn write(places: &HostPaths, state: &GuardState) {
    let text = serde_json::to_vec(state).unwrap_or_default();
    let _ = atomic_write::replace_with(&file(places), &text, Durability::Cached);
}
