//! Keeps the counts of the guard for metrics, doctor and the DRA driver, in one small file that the
//! guard replaces.
//! Touches: the file.

use crate::base::atomic_write::{self, Durability};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::guard;
pub(crate) use gpuslice_host::machine::guard::{GuardState, read};

/// Writes the state. If that fails, metrics show the former one.
pub(crate) fn write(places: &HostPaths, state: &GuardState) {
    let text = serde_json::to_vec(state).unwrap_or_default();
    let _ = atomic_write::replace_with(&guard::file(places), &text, Durability::Cached);
}
