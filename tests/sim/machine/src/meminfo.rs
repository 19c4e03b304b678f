//! The simulated host's memory. It is computed from the scenario and from later changes, and
//! written in the kernel's own format whenever it changes.
//! Touches: the live `meminfo` file of the state directory. Never: the real /proc/meminfo.

use crate::map::Machine;
use crate::units::{UnitError, parse_change};
use std::fmt::Write as _;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const PAGE: u64 = 4096;

/// The numbers of the host's /proc/meminfo, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMemory {
    /// MemTotal.
    pub mem_total: u64,
    /// MemFree.
    pub mem_free: u64,
    /// MemAvailable: MemFree and the page cache that can be reclaimed.
    pub mem_available: u64,
    /// Reclaimable page cache.
    pub cache: u64,
    /// The memory that programs take beyond the idle machine.
    pub anon: u64,
    /// SwapTotal and SwapFree.
    pub swap: u64,
}

impl Machine {
    /// The host's memory now; `None` on machines whose scenario has no host.
    #[must_use]
    #[inline]
    pub fn host_memory(&self) -> Option<HostMemory> {
        let host = self.scenario.host.as_ref()?;
        let device: u64 = (0..self.domains.len())
            .filter(|domain| self.gpu(*domain).integrated)
            .map(|domain| self.used_now(domain))
            .sum();
        let anon = self.shared.anon.load(Relaxed);
        let cache = self.shared.cache.load(Relaxed);
        let taken = (host.mem_total - host.mem_available) + anon + device;
        let mem_free = host.mem_total.saturating_sub(taken + cache);
        Some(HostMemory {
            mem_total: host.mem_total,
            mem_free,
            mem_available: mem_free + cache,
            cache,
            anon,
            swap: host.swap,
        })
    }

    /// Changes the page cache, `+60GiB`: reading files takes free pages until there are none.
    pub fn change_cache(&self, change: &str) -> Result<(), UnitError> {
        self.locked(|| {
            self.reap();
            let Some(host) = self.host_memory() else {
                return Ok(());
            };
            let wanted = parse_change(change, host.cache)? / PAGE * PAGE;
            self.shared
                .cache
                .store(wanted.min(host.cache + host.mem_free), Relaxed);
            self.write_meminfo();
            Ok(())
        })
    }

    /// Changes the memory that host programs hold, `+6GiB`: free pages go first, then page cache
    /// shrinks.
    pub fn change_host(&self, change: &str) -> Result<(), UnitError> {
        self.locked(|| {
            self.reap();
            let Some(host) = self.host_memory() else {
                return Ok(());
            };
            let wanted = parse_change(change, host.anon)? / PAGE * PAGE;
            let wanted = wanted.min(host.anon + host.mem_available);
            let missing = wanted
                .saturating_sub(host.anon)
                .saturating_sub(host.mem_free);
            self.shared
                .cache
                .store(host.cache - missing.min(host.cache), Relaxed);
            self.shared.anon.store(wanted, Relaxed);
            self.write_meminfo();
            Ok(())
        })
    }

    /// Resets page cache and host programs to the idle machine.
    pub fn reset_host(&self) {
        self.locked(|| {
            if let Some(host) = &self.scenario.host {
                self.shared.anon.store(0, Relaxed);
                self.shared
                    .cache
                    .store(host.mem_available - host.mem_free, Relaxed);
                self.write_meminfo();
            }
        });
    }

    /// Rewrites the live file in place, in one write of a constant length, so that a reader never
    /// sees half of it.
    pub(crate) fn write_meminfo(&self) {
        if let (Some(file), Some(host)) = (&self.meminfo, self.host_memory()) {
            // A full disk must not fail an allocation; the test that reads the file will say so.
            drop(file.write_all_at(text(&host).as_bytes(), 0));
        }
    }
}

/// The length of the file, whatever its numbers are.
const LENGTH: usize = 1664;

/// The lines that the kernel prints, in its order. Numbers that the scenario does not fix are
/// plausible and add up.
#[must_use]
pub(crate) fn text(host: &HostMemory) -> String {
    let mib = 1 << 20;
    let fixed =
        host.mem_total - host.mem_available.min(host.mem_total) - host.anon.min(host.mem_total);
    let slab_reclaimable = (host.cache / 16).min(600 * mib);
    let buffers = (host.cache / 32).min(200 * mib);
    let shmem = 64 * mib;
    let files = host.cache - slab_reclaimable - buffers;
    let anon = host.anon + (fixed / 3).min(2048 * mib);
    let lines: &[(&str, u64)] = &[
        ("MemTotal", host.mem_total),
        ("MemFree", host.mem_free),
        ("MemAvailable", host.mem_available),
        ("Buffers", buffers),
        ("Cached", files + shmem),
        ("SwapCached", 0),
        ("Active", anon / 2 + files / 3),
        ("Inactive", anon / 2 + files - files / 3 + buffers),
        ("Active(anon)", anon / 2),
        ("Inactive(anon)", anon / 2),
        ("Active(file)", files / 3),
        ("Inactive(file)", files - files / 3 + buffers),
        ("Unevictable", 16 * mib),
        ("Mlocked", 16 * mib),
        ("SwapTotal", host.swap),
        ("SwapFree", host.swap),
        ("Zswap", 0),
        ("Zswapped", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", anon),
        ("Mapped", 512 * mib),
        ("Shmem", shmem),
        ("KReclaimable", slab_reclaimable),
        ("Slab", slab_reclaimable + 256 * mib),
        ("SReclaimable", slab_reclaimable),
        ("SUnreclaim", 256 * mib),
        ("KernelStack", 16 * mib),
        ("PageTables", 48 * mib),
        ("SecPageTables", 0),
        ("NFS_Unstable", 0),
        ("Bounce", 0),
        ("WritebackTmp", 0),
        ("CommitLimit", host.mem_total / 2 + host.swap),
        ("Committed_AS", anon * 2),
        ("VmallocTotal", 134_217_727 << 20),
        ("VmallocUsed", 128 * mib),
        ("VmallocChunk", 0),
        ("Percpu", 32 * mib),
        ("HardwareCorrupted", 0),
        ("AnonHugePages", 0),
        ("ShmemHugePages", 0),
        ("ShmemPmdMapped", 0),
        ("FileHugePages", 0),
        ("FilePmdMapped", 0),
        ("CmaTotal", 0),
        ("CmaFree", 0),
    ];
    let mut out = String::with_capacity(2048);
    for (name, bytes) in lines {
        let label = format!("{name}:");
        writeln!(out, "{label:<16}{:>8} kB", bytes / 1024).unwrap_or(());
    }
    for (name, count) in [
        ("HugePages_Total", 0),
        ("HugePages_Free", 0),
        ("HugePages_Rsvd", 0),
        ("HugePages_Surp", 0),
    ] {
        let label = format!("{name}:");
        writeln!(out, "{label:<16}{count:>8}").unwrap_or(());
    }
    out.push_str("Hugepagesize:       2048 kB\n");
    // A number of nine digits makes its line longer, as in the kernel's file. The last line has
    // fewer blanks then, so that every write covers the whole file.
    let rest = LENGTH.saturating_sub(out.len() + "Hugetlb:0 kB\n".len());
    writeln!(out, "Hugetlb:{:rest$}0 kB", "").unwrap_or(());
    out
}
