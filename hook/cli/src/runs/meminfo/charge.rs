//! The host memory that is charged to a slice, as the library charges it: that of a container's
//! cgroup, or of the processes that hold device memory.
//! Touches: `/proc/PID/statm`, the cgroups that a container sees.
//! Law: the folders of a container are the container's. They are opened without following a link out
//! of it, and used only where they are on a file system of cgroups.

use gpuslice_config::host::cgroup;
use gpuslice_config::ledger::{Kind, Record};
use gpuslice_config::slice::host_reserve::HOST_ALLOWANCE;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::sys::open_resolved;
use gpuslice_host::machine::page_size;
use nix::fcntl::{OFlag, ResolveFlag};
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, fstatfs};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The memory that is charged.
#[derive(Debug)]
pub(crate) enum Charged {
    /// The memory of the processes that hold device memory: a run has no cgroup of its own.
    Processes,
    /// The memory of the cgroups of these containers.
    Cgroups(Vec<Cgroup>),
}

impl Charged {
    /// Returns the memory that is charged beside the device memory of these processes.
    pub(super) fn of(&self, records: &[Record], allowance: Option<Bytes>) -> Bytes {
        let allowance = allowance.unwrap_or(HOST_ALLOWANCE);
        match self {
            Charged::Processes => {
                let held = records.iter().filter_map(|record| of_process(record.pid));
                let held = held.fold(Bytes::ZERO, Bytes::plus);
                cgroup::charged(held, Bytes::ZERO, allowance)
            }
            Charged::Cgroups(cgroups) => {
                let held = cgroups.iter().filter_map(|one| one.held(allowance));
                let held = held.fold(Bytes::ZERO, Bytes::plus);
                // The kernel charges managed and pinned memory to the cgroup, and the ledger counts
                // it too.
                let both = records.iter().flat_map(|record| record.by_kind);
                let both = both.filter(|(kind, _)| matches!(kind, Kind::Managed | Kind::Pinned));
                let both = both.fold(Bytes::ZERO, |sum, (_, held)| sum.plus(Bytes::new(held)));
                match held > allowance {
                    true => cgroup::charged(held, both, allowance),
                    false => Bytes::ZERO,
                }
            }
        }
    }
}

fn of_process(pid: u32) -> Option<Bytes> {
    let statm = fs::read(format!("/proc/{pid}/statm")).ok()?;
    cgroup::of_process(&statm, page_size())
}

/// The memory cgroup of a container, as the container sees it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: File,
    current: &'static str,
}

impl Cgroup {
    /// Opens the cgroup that a container's first process sees. None: it sees none that is its own, and
    /// the library charges nothing either.
    pub(crate) fn of(pid: i32) -> Option<Cgroup> {
        let root = File::open(format!("/proc/{pid}/root")).ok()?;
        let identity = |facts: Metadata| (facts.dev(), facts.ino());
        if root.metadata().map(identity).ok()? == fs::metadata("/").map(identity).ok()? {
            return None;
        }
        let folder = |path: &str| {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
            let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
            let folder = open_resolved(root.as_fd(), Path::new(path), flags, resolve);
            let folder = File::from(folder.ok()?);
            let kind = fstatfs(&folder).ok()?.filesystem_type();
            matches!(kind, CGROUP_SUPER_MAGIC | CGROUP2_SUPER_MAGIC).then_some(folder)
        };
        let has = |folder: &File, name: &str| open(folder, name).is_some();
        // The machine's own root cgroup of version 2 has no such file.
        if let Some(folder) = folder("sys/fs/cgroup").filter(|folder| has(folder, CURRENT)) {
            let current = CURRENT;
            return Some(Cgroup { folder, current });
        }
        // Only the machine's own root cgroup of version 1 has the file of the agent.
        let folder = folder("sys/fs/cgroup/memory")
            .filter(|folder| has(folder, USAGE) && !has(folder, "release_agent"))?;
        let current = USAGE;
        Some(Cgroup { folder, current })
    }

    /// Returns the memory that cannot be reclaimed. Up to the allowance the exact amount does not
    /// matter, and `memory.stat` is not read.
    fn held(&self, allowance: Bytes) -> Option<Bytes> {
        let current = self.read(self.current, 32)?;
        let all = cgroup::amount(&current)?;
        match all <= allowance {
            true => Some(all),
            false => cgroup::of_cgroup(&current, &self.read("memory.stat", cgroup::STAT)?),
        }
    }

    fn read(&self, name: &str, most: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let file = open(&self.folder, name)?;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        file.take(most).read_to_end(&mut text).ok()?;
        Some(text)
    }
}

/// Adds the cgroups of containers, and leaves those processes whose cgroup is not found yet.
pub(crate) fn cgroups_of(starting: &mut Vec<i32>, cgroups: &mut Vec<Cgroup>) {
    starting.retain(|pid| match Cgroup::of(*pid) {
        Some(cgroup) => {
            cgroups.push(cgroup);
            false
        }
        None => true,
    });
}

const CURRENT: &str = "memory.current";
const USAGE: &str = "memory.usage_in_bytes";

fn open(folder: &File, name: &str) -> Option<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
    let resolve = ResolveFlag::RESOLVE_BENEATH;
    let file = open_resolved(folder.as_fd(), Path::new(name), flags, resolve);
    file.ok().map(File::from)
}
