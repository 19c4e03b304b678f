//! Limits per cgroup, as `nvmlDeviceSetMemoryLimits_v1` sets them: kept in the state, obeyed by every allocation.
//! Touches: the limit table, and the paths (never the numbers) of cgroups.
//!
//! A cgroup is known by its number, the inode of its folder: in a container that has a cgroup
//! namespace its path is another one. The path is what is left where cgroups are not mounted.

use crate::map::Machine;
use crate::shared::{CGROUPS, LimitEntry, Slot};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// One cgroup's limit on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The cgroup's path.
    pub cgroup: String,
    /// Soft limit in bytes.
    pub soft: u64,
    /// Hard limit in bytes; allocations beyond it fail.
    pub hard: u64,
    /// What the cgroup's processes hold.
    pub used: u64,
}

/// Why a limit was not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSet {
    /// There is no such cgroup.
    NoCgroup,
    /// The driver keeps no more of them.
    Full,
}

/// Where version 2 of the cgroups is mounted: beside version 1, or alone.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

fn mounted() -> Option<&'static str> {
    let there = |mount: &&str| Path::new(mount).join("cgroup.controllers").exists();
    MOUNTS.into_iter().find(there)
}

/// A cgroup's number; 0 when there is none at the path.
fn number(path: &str) -> u64 {
    let folder = mounted().map(|mount| format!("{mount}{path}"));
    folder.map_or(0, |folder| {
        fs::metadata(folder).map_or(0, |facts| facts.ino())
    })
}

/// A process's cgroup, version 2.
pub(crate) struct Cgroup {
    path: String,
    /// Its number and those above it.
    numbers: Vec<u64>,
}

impl Cgroup {
    /// This process's.
    pub(crate) fn own() -> Cgroup {
        let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = text
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .unwrap_or("/");
        let numbers = Path::new(path)
            .ancestors()
            .map(|above| number(&above.to_string_lossy()))
            .filter(|number| *number != 0)
            .take(CGROUPS)
            .collect();
        let path = path.to_owned();
        Cgroup { path, numbers }
    }

    pub(crate) fn put(&self, slot: &Slot) {
        slot.cgroup.set(&self.path);
        for (cell, number) in slot.cgroups.iter().zip(&self.numbers) {
            cell.store(*number, Relaxed);
        }
    }

    fn of(slot: &Slot) -> Cgroup {
        let numbers = slot.cgroups.iter().map(|cell| cell.load(Relaxed));
        Cgroup {
            path: slot.cgroup.get(),
            numbers: numbers.take_while(|number| *number != 0).collect(),
        }
    }

    fn is_below(&self, limit: &LimitEntry) -> bool {
        match limit.number.load(Relaxed) {
            number if number != 0 && !self.numbers.is_empty() => self.numbers.contains(&number),
            _ => contains(&limit.cgroup.get(), &self.path),
        }
    }
}

/// A path as NVML gets it, with or without the mount point in front, as the kernel says it.
fn kernel_path(path: &str) -> &str {
    let path = MOUNTS
        .iter()
        .find_map(|mount| path.strip_prefix(mount))
        .unwrap_or(path);
    if path.is_empty() { "/" } else { path }
}

fn contains(limit: &str, cgroup: &str) -> bool {
    let limit = limit.trim_end_matches('/');
    cgroup
        .strip_prefix(limit)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Machine {
    /// Sets the limit of one cgroup on one GPU.
    ///
    /// # Errors
    /// When there is no such cgroup, or the table is full.
    pub fn set_limit(&self, gpu: usize, cgroup: &str, soft: u64, hard: u64) -> Result<(), NotSet> {
        self.locked(|| {
            let path = kernel_path(cgroup);
            let number = number(path);
            if number == 0 && mounted().is_some() {
                return Err(NotSet::NoCgroup);
            }
            let entries = &self.shared.limits;
            // A limit goes with its cgroup.
            for entry in entries.iter().filter(|it| it.gpu.load(Relaxed) != 0) {
                if entry.number.load(Relaxed) != self::number(&entry.cgroup.get()) {
                    entry.gpu.store(0, Release);
                }
            }
            let wanted = gpu as u64 + 1;
            let same = entries
                .iter()
                .find(|it| it.gpu.load(Relaxed) == wanted && it.cgroup.get() == path);
            let free = || entries.iter().find(|it| it.gpu.load(Relaxed) == 0);
            let entry = same.or_else(free).ok_or(NotSet::Full)?;
            entry.cgroup.set(path);
            entry.number.store(number, Relaxed);
            entry.soft.store(soft, Relaxed);
            entry.hard.store(hard, Relaxed);
            entry.gpu.store(wanted, Release);
            Ok(())
        })
    }

    /// The limit of one cgroup on one GPU.
    #[must_use]
    pub fn limit(&self, gpu: usize, cgroup: &str) -> Option<Limit> {
        let path = kernel_path(cgroup);
        let number = number(path);
        let entry = self
            .limits_on(gpu)
            .find(|entry| entry.cgroup.get() == path && entry.number.load(Relaxed) == number)?;
        Some(Limit {
            cgroup: path.to_owned(),
            soft: entry.soft.load(Relaxed),
            hard: entry.hard.load(Relaxed),
            used: self.cgroup_use(gpu, entry),
        })
    }

    /// The tightest limit above this process on a GPU: all that it may hold with the others of
    /// that cgroup, and what they hold.
    #[must_use]
    pub fn limit_above(&self, gpu: usize) -> Option<(u64, u64)> {
        self.limits_on(gpu).next()?;
        let own = Cgroup::own();
        self.limits_on(gpu)
            .filter(|entry| own.is_below(entry))
            .map(|entry| (entry.hard.load(Relaxed), self.cgroup_use(gpu, entry)))
            .min_by_key(|(hard, used)| hard.saturating_sub(*used))
    }

    /// What the limits above this process still leave on a memory.
    pub(crate) fn below_limits(&self, domain: usize) -> u64 {
        let above = self.limit_above(self.domains[domain].gpu);
        above.map_or(u64::MAX, |(hard, used)| hard.saturating_sub(used))
    }

    fn limits_on(&self, gpu: usize) -> impl Iterator<Item = &LimitEntry> {
        let entries = self.shared.limits.iter();
        entries.filter(move |entry| entry.gpu.load(Acquire) == gpu as u64 + 1)
    }

    fn cgroup_use(&self, gpu: usize, limit: &LimitEntry) -> u64 {
        let domains: Vec<usize> = (0..self.domains.len())
            .filter(|d| self.domains[*d].gpu == gpu)
            .collect();
        (0..self.slots_high())
            .filter(|i| {
                let slot = &self.shared.slots[*i];
                slot.image.load(Acquire) != 0 && Cgroup::of(slot).is_below(limit)
            })
            .map(|i| domains.iter().map(|d| self.slot_use(i, *d)).sum::<u64>())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_for_the_cgroup_and_all_below_it() {
        assert!(
            contains("/a", "/a/b")
                && contains("/a", "/a")
                && contains("/", "/x")
                && contains("/", "/")
        );
        assert!(!contains("/a", "/ab") && !contains("/a/b", "/a"));
    }
}
