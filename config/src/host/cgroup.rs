//! Computes the host memory that a slice's programs use, besides the memory that the driver gave
//! them.
//! Touches: its arguments; the caller has read the files.
//! Law: memory that the kernel can reclaim at any time, such as page cache, is not counted. Memory
//! in both the driver's and the kernel's figures counts once.

use crate::words::units::{Bytes, KIB};

/// The bytes of a `memory.stat` to read.
pub const STAT: usize = 4096;

/// The memory of a cgroup that cannot be reclaimed, from its `memory.current` (v1:
/// `memory.usage_in_bytes`) and its `memory.stat`. `None` when either is garbled.
#[must_use]
pub fn of_cgroup(current: &[u8], stat: &[u8]) -> Option<Bytes> {
    let mut rest = amount(current)?;
    for line in stat.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (Some(name), Some(value)) = (fields.next(), fields.next()) else {
            continue;
        };
        // cgroup v1 has these names, too, but counts child groups only under separate names.
        let reclaimable = match v1(stat) {
            true => matches!(name, b"total_inactive_file" | b"total_active_file"),
            false => matches!(
                name,
                b"inactive_file" | b"active_file" | b"slab_reclaimable"
            ),
        };
        if reclaimable {
            rest = rest.minus(amount(value)?);
        }
    }
    Some(rest)
}

fn v1(stat: &[u8]) -> bool {
    let mut lines = stat.split(|byte| *byte == b'\n');
    lines.any(|line| line.starts_with(b"total_inactive_file "))
}

/// Parses `memory.current`: a number and a line break.
#[must_use]
pub fn amount(text: &[u8]) -> Option<Bytes> {
    let text = core::str::from_utf8(text).ok()?.trim_ascii_end();
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match digits && !text.is_empty() {
        true => text.parse().ok().map(Bytes::new),
        false => None,
    }
}

/// The memory of a process that is not file-backed, from its `/proc/PID/statm`.
#[must_use]
pub fn of_process(statm: &[u8], page: u64) -> Option<Bytes> {
    let mut fields = statm.split(|byte| *byte == b' ').skip(1);
    let (resident, shared) = (amount(fields.next()?)?, amount(fields.next()?)?);
    let pages = resident.minus(shared).get();
    Some(Bytes::new(pages.saturating_mul(page)))
}

/// The smallest page size, in bytes: the unit of `/proc/PID/statm`, unless the caller knows the
/// real size.
pub const PAGE: u64 = 4 * KIB;

/// The host memory that is charged to the slice: the part beyond its allowance, without memory that
/// the driver's figures contain, too.
#[must_use]
pub const fn charged(host: Bytes, in_both: Bytes, allowance: Bytes) -> Bytes {
    host.minus(in_both).minus(allowance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_of_a_container_is_not_its_own() {
        // 30 of 48 GiB, of which 27 are reclaimable files.
        let current = std::format!("{}\n", Bytes::gib(30).get());
        let stat = std::format!(
            "anon 1\nfile {}\ninactive_file {}\nactive_file {}\nslab_reclaimable 0\n",
            Bytes::gib(27).get(),
            Bytes::gib(20).get(),
            Bytes::gib(7).get(),
        );
        let held = of_cgroup(current.as_bytes(), stat.as_bytes());
        assert_eq!(held, Some(Bytes::gib(3)));
        let old = "inactive_file 1\nactive_file 1\ntotal_inactive_file 100\ntotal_active_file 11\n";
        assert_eq!(of_cgroup(b"200\n", old.as_bytes()), Some(Bytes::new(89)));
    }

    #[test]
    fn more_cache_than_there_is_leaves_nothing_and_garbage_is_not_used() {
        assert_eq!(of_cgroup(b"5\n", b"inactive_file 9\n"), Some(Bytes::ZERO));
        for (current, stat) in [
            (&b""[..], &b""[..]),
            (b"max\n", b""),
            (b"-5\n", b""),
            (b"+5\n", b""),
            (b"99999999999999999999\n", b""),
            (b"5\n", b"inactive_file x\n"),
        ] {
            assert_eq!(of_cgroup(current, stat), None, "{current:?} {stat:?}");
        }
        assert_eq!(of_cgroup(b"5\n", b"\xff\n\n \n"), Some(Bytes::new(5)));
    }

    #[test]
    fn a_process_holds_what_is_no_file() {
        let held = of_process(b"1000 300 100 1 0 200 0\n", PAGE);
        assert_eq!(held, Some(Bytes::new(200 * 4096)));
        assert_eq!(
            of_process(b"1000 100 300 1 0 2 0\n", PAGE),
            Some(Bytes::ZERO)
        );
        assert_eq!(of_process(b"1000\n", PAGE), None);
    }

    #[test]
    fn an_interpreter_fits_the_allowance_and_no_memory_counts_twice() {
        let allowance = Bytes::gib(4);
        assert_eq!(charged(Bytes::gib(3), Bytes::ZERO, allowance), Bytes::ZERO);
        assert_eq!(
            charged(Bytes::gib(16), Bytes::gib(10), allowance),
            Bytes::gib(2)
        );
    }
}
