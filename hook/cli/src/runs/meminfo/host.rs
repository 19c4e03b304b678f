//! The host of slices of unified memory at one moment.
//! Touches: the host's meminfo and memory pressure, the folder of promises, by reading them.

use crate::base::host_files;
use gpuslice_config::host::meminfo::{self, HostMemory};
use gpuslice_config::host::pressure;
use gpuslice_config::promises::{ReadPromise, read_folder};
use gpuslice_config::words::paths;
use gpuslice_config::words::units::Bytes;
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A reading of the host. All slices of one look share it.
#[derive(Debug)]
pub(crate) struct HostReading {
    pub(crate) memory: HostMemory,
    before: Vec<ReadPromise>,
    after: Vec<ReadPromise>,
    /// The pressure of the whole machine, once it was read.
    full: OnceCell<Option<u32>>,
}

impl HostReading {
    /// Reads the host; None if its memory cannot be read.
    pub(crate) fn now(meminfo: &Path, promises: Option<&Path>) -> Option<HostReading> {
        let read = || promises.and_then(|folder| read_folder(folder).ok());
        let before = read().unwrap_or_default();
        let text = host_files::read_unhooked(meminfo).ok()?;
        let memory = meminfo::parse(&text)?;
        // A slice that spent memory between these two readings would be counted twice.
        let after = match before.len() {
            0 | 1 => before.clone(),
            _ => read().unwrap_or_default(),
        };
        Some(HostReading {
            memory,
            before,
            after,
            full: OnceCell::new(),
        })
    }

    /// Returns the memory that was promised to others and that they have not spent.
    pub(super) fn others_unused(&self, own: Option<&str>) -> Bytes {
        let sum = |held: &[ReadPromise]| {
            let others = held.iter().filter(|one| Some(one.slice.as_str()) != own);
            others.fold(Bytes::ZERO, |sum, one| sum.plus(one.unused))
        };
        sum(&self.before).at_most(sum(&self.after))
    }

    /// Returns the share of time in which all processes waited for memory.
    pub(super) fn full(&self, file: Option<&str>) -> Option<u32> {
        match file {
            Some(file) => read_pressure(Path::new(file)),
            None => *self.full.get_or_init(|| {
                read_pressure(Path::new(OsStr::from_bytes(paths::PRESSURE.to_bytes())))
            }),
        }
    }
}

fn read_pressure(file: &Path) -> Option<u32> {
    pressure::full_avg10(&fs::read(file).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_config::promises::{file_name, spent};

    #[test]
    fn a_slice_leaves_the_others_what_they_were_promised_and_not_itself() {
        let folder = tempfile::tempdir().unwrap();
        let meminfo = folder.path().join("meminfo");
        let text = "MemTotal: 1048576 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB\n";
        fs::write(&meminfo, text).unwrap();
        assert!(HostReading::now(&folder.path().join("none"), None).is_none());
        for (name, used) in [("own", 1), ("other", 3)] {
            let name = file_name(Bytes::gib(8), name).unwrap();
            fs::write(folder.path().join(name), spent(Bytes::gib(used))).unwrap();
        }
        let host = HostReading::now(&meminfo, Some(folder.path())).unwrap();
        assert_eq!(host.memory.available, Bytes::mib(512));
        assert_eq!(host.others_unused(Some("own")), Bytes::gib(5));
        assert_eq!(host.others_unused(None), Bytes::gib(12));
    }
}
