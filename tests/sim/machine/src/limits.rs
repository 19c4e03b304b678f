//! Limits per cgroup, as `nvmlDeviceSetMemoryLimits_v1` sets them. The state keeps them, and every
//! allocation obeys them.
//! Touches: the limit table, and the paths (never the numbers) of cgroups.
//!
//! Two backends, as NVIDIA documents them. `dmem`: the limit of every ancestor applies; a soft
//! limit is added to every ancestor's dmem.min and stays there when the cgroup is removed. `misc`:
//! only the nearest limit applies; the root and a limit below the current use are refused. Both
//! report a limit only to the processes of the very cgroup on which it was set.
//!
//! A cgroup is identified by its number, the inode of its folder, because its path differs in a
//! container with a cgroup namespace. Where cgroups are not mounted, only the path is left.

use crate::map::Machine;
use crate::query::Use;
use crate::scenario::{Gpu, MemoryLimits, Scenario};
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
    /// The memory that the cgroup's processes hold.
    pub used: u64,
}

/// Why a limit was not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSet {
    /// There is no such cgroup.
    NoCgroup,
    /// The root cgroup has no limits in the driver's own table.
    Root,
    /// The cgroup's processes already hold more than this limit.
    BelowUse,
    /// The driver's table of limits is full.
    Full,
}

/// The file in the state directory that stands for the kernel's `dmem.capacity`. It exists where the
/// driver has chosen the dmem controller.
pub(crate) const CAPACITY: &str = "dmem.capacity";

/// Its text: one line for each region, as the kernel writes them.
pub(crate) fn capacity(scenario: &Scenario) -> Option<String> {
    let own = |gpu: &&Gpu| gpu.mig.is_empty() && !gpu.integrated;
    let region = |gpu: &Gpu| {
        let place = gpu.pci.strip_prefix("0000").unwrap_or(&gpu.pci);
        format!("nvidia/{place}/vidmem {}\n", gpu.cuda_total)
    };
    let is_dmem = scenario.memory_limits == MemoryLimits::Dmem;
    is_dmem.then(|| scenario.gpu.iter().filter(own).map(region).collect())
}

/// The mount points of cgroups version 2: beside version 1, or alone.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

fn mounted() -> Option<&'static str> {
    let there = |mount: &&str| Path::new(mount).join("cgroup.controllers").exists();
    MOUNTS.into_iter().find(there)
}

/// A cgroup's number; 0 if the path is no cgroup.
fn number(path: &str) -> u64 {
    let folder = mounted().map(|mount| format!("{mount}{path}"));
    folder.map_or(0, |folder| {
        fs::metadata(folder).map_or(0, |facts| facts.ino())
    })
}

/// A process's cgroup of version 2.
pub(crate) struct Cgroup {
    path: String,
    /// The cgroup's number, and the numbers of its ancestors.
    numbers: Vec<u64>,
}

impl Cgroup {
    /// The cgroup of this process.
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

    fn is(&self, limit: &LimitEntry) -> bool {
        match (limit.number.load(Relaxed), self.numbers.first()) {
            (number, Some(own)) if number != 0 => number == *own,
            _ => limit.cgroup.get() == self.path,
        }
    }

    fn is_below(&self, limit: &LimitEntry) -> bool {
        match limit.number.load(Relaxed) {
            number if number != 0 && !self.numbers.is_empty() => self.numbers.contains(&number),
            _ => contains(&limit.cgroup.get(), &self.path),
        }
    }
}

/// A path as the kernel writes it, from a path that NVML gets with or without the mount point.
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
    /// Sets the limits of one cgroup on one GPU.
    ///
    /// # Errors
    /// When there is no such cgroup, the backend refuses, or the table is full.
    pub fn set_limit(&self, gpu: usize, cgroup: &str, soft: u64, hard: u64) -> Result<(), NotSet> {
        self.locked(|| {
            let path = kernel_path(cgroup);
            let number = number(path);
            if number == 0 && mounted().is_some() {
                return Err(NotSet::NoCgroup);
            }
            self.forget_removed();
            let misc = self.scenario.memory_limits == MemoryLimits::Misc;
            if misc && path == "/" {
                return Err(NotSet::Root);
            }
            let entry = self.entry(gpu, path)?;
            if misc && hard < self.cgroup_use(gpu, entry) {
                return Err(NotSet::BelowUse);
            }
            let before = entry.soft.swap(soft, Relaxed);
            entry.hard.store(hard, Relaxed);
            if misc {
                return Ok(());
            }
            for above in Path::new(path).ancestors() {
                let above = above.to_string_lossy();
                // The root cgroup has no dmem.min.
                if above != "/" && (soft != before || above == path) {
                    let minimum = &self.entry(gpu, &above)?.minimum;
                    minimum.fetch_add(soft.wrapping_sub(before), Relaxed);
                }
            }
            Ok(())
        })
    }

    /// Removes limits whose cgroups are gone. Their share of the dmem.min of other cgroups stays
    /// there.
    fn forget_removed(&self) {
        let entries = self.shared.limits.iter();
        for entry in entries.filter(|it| it.gpu.load(Relaxed) != 0) {
            if entry.number.load(Relaxed) != number(&entry.cgroup.get()) {
                entry.gpu.store(0, Release);
            }
        }
    }

    /// The entry of one cgroup on one GPU, created if it is missing.
    fn entry(&self, gpu: usize, path: &str) -> Result<&LimitEntry, NotSet> {
        let entries = &self.shared.limits;
        let wanted = gpu as u64 + 1;
        let same = |it: &&LimitEntry| it.gpu.load(Relaxed) == wanted && it.cgroup.get() == path;
        if let Some(entry) = entries.iter().find(same) {
            return Ok(entry);
        }
        let free = entries.iter().find(|it| it.gpu.load(Relaxed) == 0);
        let entry = free.ok_or(NotSet::Full)?;
        entry.cgroup.set(path);
        entry.number.store(number(path), Relaxed);
        entry.soft.store(0, Relaxed);
        entry.hard.store(u64::MAX, Relaxed);
        entry.minimum.store(0, Relaxed);
        entry.gpu.store(wanted, Release);
        Ok(entry)
    }

    /// The limits that were set on one cgroup on one GPU.
    #[must_use]
    pub fn limit(&self, gpu: usize, cgroup: &str) -> Option<Limit> {
        let path = kernel_path(cgroup);
        let entry = self.set_on(gpu, path)?;
        (entry.hard.load(Relaxed) != u64::MAX).then(|| Limit {
            cgroup: path.to_owned(),
            soft: entry.soft.load(Relaxed),
            hard: entry.hard.load(Relaxed),
            used: self.cgroup_use(gpu, entry),
        })
    }

    /// A cgroup's dmem.min: its own soft limit, and all soft limits that were ever set below it.
    #[must_use]
    pub fn guaranteed(&self, gpu: usize, cgroup: &str) -> u64 {
        let entry = self.set_on(gpu, kernel_path(cgroup));
        entry.map_or(0, |entry| entry.minimum.load(Relaxed))
    }

    fn set_on(&self, gpu: usize, path: &str) -> Option<&LimitEntry> {
        let number = number(path);
        self.limits_on(gpu)
            .find(|entry| entry.cgroup.get() == path && entry.number.load(Relaxed) == number)
    }

    /// The limit that applies to this process on a GPU, and the memory that all processes of the
    /// limited cgroup hold.
    fn limit_above(&self, gpu: usize) -> Option<(u64, u64)> {
        self.limits_on(gpu).next()?;
        let own = Cgroup::own();
        let limits = self
            .limits_on(gpu)
            .filter(|entry| own.is_below(entry) && entry.hard.load(Relaxed) != u64::MAX);
        let state = |entry: &LimitEntry| (entry.hard.load(Relaxed), self.cgroup_use(gpu, entry));
        match self.scenario.memory_limits {
            MemoryLimits::Misc => limits
                .max_by_key(|entry| entry.cgroup.get().len())
                .map(state),
            _ => limits
                .map(state)
                .min_by_key(|(hard, used)| hard.saturating_sub(*used)),
        }
    }

    /// The limit of this process's own cgroup on a GPU, and the memory that its processes hold.
    /// `cuMemGetInfo` and `nvmlDeviceGetMemoryInfo_v2` report these instead of the card's numbers.
    #[must_use]
    pub fn limit_shown(&self, gpu: usize) -> Option<(u64, u64)> {
        self.limits_on(gpu).next()?;
        let own = Cgroup::own();
        let entry = self.limits_on(gpu).find(|entry| own.is(entry))?;
        let hard = entry.hard.load(Relaxed);
        (hard != u64::MAX).then(|| (hard, self.cgroup_use(gpu, entry)))
    }

    /// The answer of `cuMemGetInfo` to this process: the numbers of its cgroup if that has a limit,
    /// and otherwise those of the memory.
    #[must_use]
    pub fn query_in_cgroup(&self, domain: usize) -> Use {
        let now = self.query(domain);
        match self.limit_shown(self.domains[domain].gpu) {
            None => now,
            Some((hard, used)) => Use {
                total: hard.min(now.total),
                free: now.free.min(hard.saturating_sub(used)),
            },
        }
    }

    /// The bytes that the limits above this process still leave on a memory.
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
