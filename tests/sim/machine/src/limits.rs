//! Limits per cgroup, as `nvmlDeviceSetMemoryLimits_v1` sets them: kept in the state, obeyed by every allocation.
//! Touches: the limit table, and the path (never the numbers) in /proc/self/cgroup.

use crate::map::Machine;
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

/// The path of this process's cgroup, version 2.
pub(crate) fn own_cgroup() -> String {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/")
        .to_owned()
}

/// A path as NVML gets it, with or without the mount point in front, as the kernel says it.
fn kernel_path(path: &str) -> &str {
    let path = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path);
    if path.is_empty() { "/" } else { path }
}

fn contains(limit: &str, cgroup: &str) -> bool {
    let limit = limit.trim_end_matches('/');
    cgroup
        .strip_prefix(limit)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Machine {
    /// Sets the limit of one cgroup on one GPU. False: the table is full.
    pub fn set_limit(&self, gpu: usize, cgroup: &str, soft: u64, hard: u64) -> bool {
        self.locked(|| {
            let path = kernel_path(cgroup);
            let entries = &self.shared.limits;
            let wanted = gpu as u64 + 1;
            let same = entries
                .iter()
                .find(|it| it.gpu.load(Relaxed) == wanted && it.cgroup.get() == path);
            let Some(entry) = same.or_else(|| entries.iter().find(|it| it.gpu.load(Relaxed) == 0))
            else {
                return false;
            };
            entry.cgroup.set(path);
            entry.soft.store(soft, Relaxed);
            entry.hard.store(hard, Relaxed);
            entry.gpu.store(wanted, Release);
            true
        })
    }

    /// The limit of one cgroup on one GPU.
    #[must_use]
    pub fn limit(&self, gpu: usize, cgroup: &str) -> Option<Limit> {
        let path = kernel_path(cgroup);
        let entry = self
            .shared
            .limits
            .iter()
            .find(|it| it.gpu.load(Acquire) == gpu as u64 + 1 && it.cgroup.get() == path)?;
        Some(Limit {
            cgroup: path.to_owned(),
            soft: entry.soft.load(Relaxed),
            hard: entry.hard.load(Relaxed),
            used: self.cgroup_use(gpu, path),
        })
    }

    /// What the limits above this process still leave on a memory.
    pub(crate) fn below_limits(&self, domain: usize) -> u64 {
        let gpu = self.domains[domain].gpu;
        let entries = &self.shared.limits;
        if entries.iter().all(|it| it.gpu.load(Acquire) == 0) {
            return u64::MAX;
        }
        let own = own_cgroup();
        entries
            .iter()
            .filter(|it| it.gpu.load(Acquire) == gpu as u64 + 1 && contains(&it.cgroup.get(), &own))
            .map(|it| {
                it.hard
                    .load(Relaxed)
                    .saturating_sub(self.cgroup_use(gpu, &it.cgroup.get()))
            })
            .min()
            .unwrap_or(u64::MAX)
    }

    fn cgroup_use(&self, gpu: usize, path: &str) -> u64 {
        let domains: Vec<usize> = (0..self.domains.len())
            .filter(|d| self.domains[*d].gpu == gpu)
            .collect();
        (0..self.slots_high())
            .filter(|i| {
                let slot = &self.shared.slots[*i];
                slot.image.load(Acquire) != 0 && contains(path, &slot.cgroup.get())
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
