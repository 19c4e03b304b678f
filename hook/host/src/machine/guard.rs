//! Reads the state of the guard: how short of memory the host is, and which devices hold memory that
//! no slice counts.
//! Touches: guard.json, by reading it.

use crate::base::paths::HostPaths;
use crate::base::read;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of the format.
pub const SCHEMA: u64 = 1;

/// The name of the file in the run folder of the host.
const FILE: &str = "guard.json";

/// The most bytes that are read of it.
const CAP: usize = 1 << 16;

/// The state of the guard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardState {
    /// The version of the format.
    pub schema: u64,
    /// The time at which the guard last worked, in seconds since 1970.
    pub seen: u64,
    /// The host's shortage of memory: 0 enough, 1 warn, 2 short, 3 terminate, 4 kill.
    pub level: u64,
    /// How often the guard has sent SIGTERM to a process or slice, or tried to, since its start.
    pub terminated: u64,
    /// How often it has sent SIGKILL, or tried to.
    pub killed: u64,
    /// The processes that were named because they hold memory beyond their slice.
    pub named: u64,
    /// The lists of processes that the driver was asked for.
    #[serde(default)]
    pub snapshots: u64,
    /// The memory that named processes hold beyond their slices at present, in bytes, by device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beyond: BTreeMap<String, u64>,
}

/// The file of the state.
#[must_use]
pub fn file(places: &HostPaths) -> PathBuf {
    places.run().join(FILE)
}

/// Reads the state that the last guard wrote. None if there is no file, or its schema is another one.
#[must_use]
pub fn read(places: &HostPaths) -> Option<GuardState> {
    let text = read::file(&file(places), CAP).ok()?;
    let state: GuardState = serde_json::from_slice(&text).ok()?;
    (state.schema == SCHEMA).then_some(state)
}
