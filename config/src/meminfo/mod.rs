//! The host's `/proc/meminfo`, as far as memory that programs share with a GPU goes.
//! Touches: its arguments; the caller has read the file.

pub mod slice;

use crate::units::Bytes;

/// How much of the file is worth reading: the lines we want are the first three.
pub const HEAD: usize = 4096;

/// The host's memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemFree`: not what can be allocated, page cache counts as used in it.
    pub free: Bytes,
    /// `MemAvailable`: what the kernel could give out without swapping.
    pub available: Bytes,
}

/// Reads the first lines of a meminfo file.
///
/// None when one of the three lines is missing or garbled, or when they contradict each
/// other (more free or available than there is): a number that cannot be trusted is not used.
#[must_use]
pub fn parse(text: &[u8]) -> Option<HostMemory> {
    let (mut total, mut free, mut available) = (None, None, None);
    for line in text.split(|byte| *byte == b'\n') {
        let slot = if line.starts_with(b"MemTotal:") {
            &mut total
        } else if line.starts_with(b"MemFree:") {
            &mut free
        } else if line.starts_with(b"MemAvailable:") {
            &mut available
        } else {
            continue;
        };
        if slot.is_none() {
            *slot = Some(kilobytes(line)?);
        }
        if let (Some(total), Some(free), Some(available)) = (total, free, available) {
            let sound = total > Bytes::ZERO && free <= total && available <= total;
            return sound.then_some(HostMemory {
                total,
                free,
                available,
            });
        }
    }
    None
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
            b"MemTotal: 5 kB\nMemFree: 1 kB\n",
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

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            text in proptest::collection::vec(proptest::num::u8::ANY, 0..400),
        ) {
            let _ = parse(&text);
        }
    }
}
