//! Reads the host's memory and its promises, by which admission decides.
//! Touches: the host's meminfo and its folder of promises, by reading them.

use crate::base::paths::HostPaths;
use crate::base::read;
use crate::slices::admission::{HostState, Unused};
use crate::slices::records::SliceRecord;
use crate::slices::tenants;
use anyhow::Context;
use gpuslice_config::host::meminfo;
use gpuslice_config::promises::ReadPromise;
use gpuslice_config::words::units::Bytes;
use std::io;

/// The host's memory, with the unused part of its promises. `records` are the slices of containers,
/// for their names.
///
/// # Errors
/// When the host's memory or its promises cannot be read.
pub fn read(paths: &HostPaths, records: &[SliceRecord]) -> anyhow::Result<HostState> {
    let path = paths.meminfo();
    let head = read::capped(
        read::open(&path).with_context(|| format!("cannot read {}", path.display()))?,
        1 << 16,
    )?;
    let memory =
        meminfo::parse(&head).with_context(|| format!("{} is not a meminfo", path.display()))?;
    let folder = paths.promises();
    let held = match folder.try_exists() {
        // No promise has been made since boot.
        Ok(false) => Ok(Vec::new()),
        _ => tenants::promised(&folder),
    };
    let held = held.with_context(|| format!("cannot read {}", folder.display()))?;
    let unused = held.into_iter().map(|promise| {
        let known = records.iter().find(|record| record.slice == promise.slice);
        Unused {
            name: known.map_or_else(|| run_name(&promise.slice), |record| record.name.clone()),
            slice: promise.slice,
            memory: promise.unused,
        }
    });
    let unused = unused.collect();
    Ok(HostState { memory, unused })
}

/// The promise of a slice; `None` if it has none.
///
/// # Errors
/// When the promises cannot be read.
pub fn promise(paths: &HostPaths, slice: &str) -> io::Result<Option<ReadPromise>> {
    let folder = paths.promises();
    if !folder.try_exists()? {
        return Ok(None);
    }
    let mut held = tenants::promised(&folder)?.into_iter();
    Ok(held.find(|promise| promise.slice == slice))
}

/// The host memory that a slice is promised: by its promise's file or, before that is made, by its
/// record. A resize that was killed may have changed only one of them.
#[must_use]
pub fn promised(paths: &HostPaths, record: &SliceRecord) -> Bytes {
    let file = promise(paths, &record.slice).ok().flatten();
    file.map_or_else(|| record.unified(), |promise| promise.budget)
}

/// The display name of a run; the id of its promise contains its process.
fn run_name(slice: &str) -> String {
    match tenants::promise_owner(slice) {
        Some((owner, name)) => format!("{name} (pid {})", owner.pid),
        None => slice.to_owned(),
    }
}
