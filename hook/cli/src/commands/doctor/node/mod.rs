//! The checks of the host: what a slice needs before any program starts.
//! Touches: everything its parts touch.
//! Law: nothing is written. Below another root, only files below that root are read.

mod daemons;
mod engines;
mod files;
mod host;

use super::checks::Gpus;
use super::finding::Finding;
use crate::base::hook_entry::{self, HOOK};
use gpuslice_host::base::paths::HostPaths;
use std::path::Path;

/// Checks the host. `installed` is this installation's library, or the reason why there is none.
pub(super) fn findings(
    places: &HostPaths,
    installed: &Result<std::path::PathBuf, String>,
    gpus: &Gpus,
) -> Vec<Finding> {
    let mut found = Vec::new();
    host::check(places, installed, &mut found);
    files::check(places, gpus, &mut found);
    engines::check(places, &mut found);
    daemons::check(places, &mut found);
    found
}

/// Checks whether the hook is installed: where packages install it, or beside this command. Without the
/// hook, this host gives no slices to containers.
fn has_hook(places: &HostPaths) -> bool {
    let packaged = places.root().join("usr/bin").join(HOOK).exists();
    packaged || (is_here(places) && hook_entry::find(None, HOOK).is_ok())
}

/// Checks whether the host is this machine, and not one below another root.
fn is_here(places: &HostPaths) -> bool {
    places.root() == Path::new("/")
}
