//! Reads the host's memory and its promises, by which admission decides.
//! Touches: the host's meminfo and its folder of promises, by reading them.

use crate::base::paths::HostPaths;
use crate::base::read;
use crate::slices::admission::{HostState, Unused};
use crate::slices::records::SliceRecord;
use crate::slices::tenants;
use anyhow::Context;
use gpuslice_config::host::meminfo::{self, HostMemory};
use gpuslice_config::promises::ReadPromise;
use gpuslice_config::words::units::Bytes;
use std::io;

/// The host's memory, with the unused part of its promises. `records` are the slices of containers,
/// for their names.
///
/// # Errors
/// When the host's memory or its promises cannot be read.
pub fn read(paths: &HostPaths, records: &[SliceRecord]) -> anyhow::Result<HostState> {
    read_around(paths, records, || memory(paths))
}

/// Reads the promises before and after the memory, because slices spend and free memory meanwhile.
/// The larger unused part of each counts. With one reading, memory would be free and no part of a
/// promise: after a slice has spent it, if the memory was read first, or has freed it, if last.
fn read_around(
    paths: &HostPaths,
    records: &[SliceRecord],
    memory: impl FnOnce() -> anyhow::Result<HostMemory>,
) -> anyhow::Result<HostState> {
    let before = all_promised(paths)?;
    let memory = memory()?;
    let unused = all_promised(paths)?.into_iter().map(|promise| {
        let known = records.iter().find(|record| record.slice == promise.slice);
        let earlier = before.iter().find(|one| one.slice == promise.slice);
        Unused {
            name: known.map_or_else(|| run_name(&promise.slice), |record| record.name.clone()),
            slice: promise.slice,
            memory: earlier.map_or(promise.unused, |one| promise.unused.max(one.unused)),
        }
    });
    let unused = unused.collect();
    Ok(HostState { memory, unused })
}

fn memory(paths: &HostPaths) -> anyhow::Result<HostMemory> {
    let path = paths.meminfo();
    let head = read::capped(
        read::open(&path).with_context(|| format!("cannot read {}", path.display()))?,
        1 << 16,
    )?;
    meminfo::parse(&head).with_context(|| format!("{} is not a meminfo", path.display()))
}

fn all_promised(paths: &HostPaths) -> anyhow::Result<Vec<ReadPromise>> {
    let folder = paths.promises();
    let held = match tenants::promised(&folder) {
        // No promise has been made since boot.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        held => held,
    };
    held.with_context(|| format!("cannot read {}", folder.display()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_config::promises::{file_name, spent};
    use std::fs;

    /// Reads the state while a slice with a promise of 1000 bytes changes what it has spent.
    fn unused_while_it_spends(from: u64, to: u64) -> Bytes {
        let host = tempfile::tempdir().unwrap();
        let paths = HostPaths::below(host.path());
        fs::create_dir_all(paths.promises()).unwrap();
        let name = file_name(Bytes::new(1000), "a").unwrap();
        let file = paths.promises().join(name);
        let spends = |bytes| fs::write(&file, spent(Bytes::new(bytes))).unwrap();
        spends(from);
        let state = read_around(&paths, &[], || {
            spends(to);
            Ok(meminfo::parse(b"MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n").unwrap())
        });
        let [unused] = state.unwrap().unused.try_into().unwrap();
        assert_eq!((unused.name.as_str(), unused.slice.as_str()), ("a", "a"));
        unused.memory
    }

    #[test]
    fn memory_that_moves_during_the_reading_is_not_free_as_well_as_promised() {
        assert_eq!(unused_while_it_spends(200, 900), Bytes::new(800));
        assert_eq!(unused_while_it_spends(900, 200), Bytes::new(800));
        assert_eq!(unused_while_it_spends(300, 300), Bytes::new(700));
    }
}
