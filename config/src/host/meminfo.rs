//! Parses the fields of `/proc/meminfo` that matter for memory shared with a GPU.
//! Touches: its arguments; the caller has read the file.

use crate::words::units::Bytes;

/// The bytes of the file to read: the needed lines are the first three, on old kernels the first
/// thirty.
pub const HEAD: usize = 2048;

/// The host's memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemFree`: less than can be allocated, because it counts page cache as used.
    pub free: Bytes,
    /// `MemAvailable`: the memory that the kernel could provide without swapping.
    pub available: Bytes,
}

/// Parses a meminfo file.
///
/// Returns `None` when a line is missing or garbled, or when the lines contradict each other (free
/// or available exceeds the total): a number that cannot be trusted is not used. A kernel before
/// 3.14 does not report available memory. Then it is computed from other lines, and is less than a
/// newer kernel would report, never more.
#[must_use]
pub fn parse(text: &[u8]) -> Option<HostMemory> {
    let total = line(text, b"MemTotal:")?.ok()?;
    let free = line(text, b"MemFree:")?.ok()?;
    let available = match line(text, b"MemAvailable:") {
        Some(available) => available.ok()?,
        None => guess(text, total, free),
    };
    let sound = total > Bytes::ZERO && free <= total && available <= total;
    sound.then_some(HostMemory {
        total,
        free,
        available,
    })
}

/// Estimates the available memory for a kernel that does not report it. The kernel keeps at most
/// half of the files' pages and of its caches, and about a hundredth of the free memory as
/// watermarks.
fn guess(text: &[u8], total: Bytes, free: Bytes) -> Bytes {
    let names: [&[u8]; 3] = [b"Active(file):", b"Inactive(file):", b"SReclaimable:"];
    let half = |name: &[u8]| match line(text, name) {
        Some(Ok(bytes)) => Bytes::new(bytes.get() / 2),
        _ => Bytes::ZERO,
    };
    let keeps = Bytes::new(total.get() / 64);
    let reclaimable = names.into_iter().map(half);
    reclaimable
        .fold(free.minus(keeps), Bytes::plus)
        .at_most(total)
}

/// The line exists but cannot be parsed.
struct Garbled;

/// The number of the first line with this name; `None` if there is no such line.
fn line(text: &[u8], name: &[u8]) -> Option<Result<Bytes, Garbled>> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let line = lines.find(|line| line.starts_with(name))?;
    Some(kilobytes(line).ok_or(Garbled))
}

/// The number of a line `Name:   123 kB`.
fn kilobytes(line: &[u8]) -> Option<Bytes> {
    let mut fields = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|field| !field.is_empty())
        .skip(1);
    let digits = core::str::from_utf8(fields.next()?).ok()?;
    if fields.next()? != b"kB" || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Bytes::kib(digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB10: &[u8] = b"MemTotal:       127600748 kB\nMemFree:        108265472 kB\n\
        MemAvailable:   121267814 kB\nBuffers:          512000 kB\n";

    #[test]
    fn the_three_lines_are_read() {
        assert_eq!(
            parse(GB10),
            Some(HostMemory {
                total: Bytes::kib(127_600_748),
                free: Bytes::kib(108_265_472),
                available: Bytes::kib(121_267_814),
            })
        );
    }

    #[test]
    fn a_garbled_file_is_not_used() {
        for text in [
            &b""[..],
            b"MemTotal: 5 kB\n",
            b"MemTotal: 5 kB\nMemAvailable: 1 kB\n",
            b"MemTotal: 5 kB\nMemFree: 1 kB\nMemAvailable: x kB\n",
            b"MemTotal: 5 kB\nMemFree: 1 kB\nMemAvailable:",
            b"MemTotal: 99999999999999999999 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\n",
            b"MemTotal: 5 kB\nMemFree: 9 kB\nMemAvailable: 5 kB\n",
            b"MemTotal: 5 kB\nMemFree: 1 kB\nMemAvailable: 6 kB\n",
            b"MemTotal: 0 kB\nMemFree: 0 kB\nMemAvailable: 0 kB\n",
            b"MemTotal: -5 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n",
            b"MemTotal: 5 MB\nMemFree: 1 kB\nMemAvailable: 2 kB\n",
            b"MemTotal: \xff kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n",
        ] {
            assert_eq!(parse(text), None);
        }
    }

    #[test]
    fn an_old_kernel_is_believed_to_have_less_and_never_more() {
        // From a current kernel, without its line MemAvailable, which read 23492760.
        let text = b"MemTotal: 24683668 kB\nMemFree: 21178128 kB\nBuffers: 97456 kB\n\
            Active(file): 1128540 kB\nInactive(file): 1353008 kB\nSReclaimable: 164932 kB\n";
        let available = parse(text).unwrap().available;
        assert!(available < Bytes::kib(23_492_760) && available > Bytes::kib(22_000_000));
        let bare = parse(b"MemTotal: 64 kB\nMemFree: 64 kB\n").unwrap();
        assert_eq!(bare.available, Bytes::kib(63));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            text in proptest::collection::vec(proptest::num::u8::ANY, 0..400),
        ) {
            let _ = parse(&text);
        }
    }
}
