//! Measures a process's host memory: live, kept by malloc, shared and mapped.
//! Touches: /proc.

use super::allowance::Allowance;
use super::heap::{self, Area};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Host memory, in bytes. Memory that several processes share is divided between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct HostUse {
    /// Private memory, without the part that malloc keeps.
    pub(super) live: u64,
    /// Memory that was freed and that malloc keeps; None if unknown.
    pub(super) kept: Option<u64>,
    /// Shared memory: tmpfs, memfd, System V.
    pub(super) shmem: u64,
    /// Page cache that the process has mapped.
    pub(super) page_cache_mapped: u64,
    /// Memory that was swapped out.
    pub(super) swapped: u64,
}

impl HostUse {
    /// Returns the memory that stays occupied until this process ends: everything but page cache
    /// and swap.
    pub(super) fn held(&self) -> u64 {
        let own = self.live.saturating_add(self.kept.unwrap_or(0));
        own.saturating_add(self.shmem)
    }
}

/// Reads a process's host memory. Returns None if the process has ended or belongs to another user.
pub(super) fn of(pid: u32, allowance: &mut Allowance) -> Option<HostUse> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let amount = |name: &str| field(&rollup, name);
    // Kernels before 5.9 have no `Pss_Anon`.
    let anonymous = amount("Pss_Anon").or_else(|| amount("Anonymous"))?;
    let kept = kept(pid, allowance);
    Some(HostUse {
        live: anonymous.saturating_sub(kept.unwrap_or(0)),
        kept,
        shmem: amount("Pss_Shmem").unwrap_or(0),
        page_cache_mapped: amount("Pss_File").unwrap_or(0),
        swapped: amount("SwapPss").unwrap_or(0),
    })
}

/// Returns the bytes in a line of the form `Name:   123 kB`.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Allocators that replace malloc and keep their own data structures.
const OTHERS: [&str; 4] = ["libjemalloc", "libtcmalloc", "libmimalloc", "libsnmalloc"];

fn kept(pid: u32, allowance: &mut Allowance) -> Option<u64> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let mut process = heap::Process::open(pid).ok()?;
    heap::kept(&mut process, &areas(&maps)?, allowance)
}

/// Returns the areas in which glibc's heaps can be. Returns None if the program does not use glibc,
/// or uses another allocator.
fn areas(maps: &str) -> Option<Vec<Area>> {
    let mut areas = Vec::new();
    let mut glibc = false;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (range, rights) = (fields.next()?, fields.next()?);
        let name = fields.nth(3).unwrap_or_default();
        let file = Path::new(name)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        if OTHERS.iter().any(|other| file.starts_with(other)) {
            return None;
        }
        glibc |= file == "libc.so.6" || file.starts_with("libc-2.");
        let main = name == "[heap]";
        if rights != "rw-p" || !(main || name.is_empty() || name.starts_with("[anon")) {
            continue;
        }
        let (start, end) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        areas.push(Area {
            start: address(start)?,
            end: address(end)?,
            main,
        });
    }
    glibc.then_some(areas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_are_private_and_writable_and_only_glibcs_are_known() {
        let libc = "7f00-7f10 r-xp 00000000 08:01 5    /lib/x86_64-linux-gnu/libc.so.6\n";
        let heap = "5500-5600 rw-p 00000000 00:00 0    [heap]\n";
        let arena = "7000-7100 rw-p 00000000 00:00 0 \n7100-7200 ---p 00000000 00:00 0 \n";
        let maps = [heap, arena, libc].concat();
        let area = |start, end, main| Area { start, end, main };
        let both = vec![area(0x5500, 0x5600, true), area(0x7000, 0x7100, false)];
        assert_eq!(areas(&maps), Some(both));
        assert_eq!(areas(heap), None);
        let other = "7f20-7f30 r-xp 00000000 08:01 6    /usr/lib/libjemalloc.so.2\n";
        assert_eq!(areas(&[maps.as_str(), other].concat()), None);
    }

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let text = "Pss_Anon:  12 kB\nPss:   99 kB\nSwapPss:  1 kB\n";
        assert_eq!(field(text, "Pss"), Some(99 << 10));
        assert_eq!(field(text, "Pss_File"), None);
    }
}
