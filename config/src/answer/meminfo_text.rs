//! Writes the `/proc/meminfo` of a slice: the text that the kernel would print on a machine of its
//! size.
//! Touches: its arguments.
//! Law: the kernel's lines in the kernel's order, under 2 KiB (llama.cpp reads no more), and
//! MemFree <= MemAvailable <= MemTotal (psutil and Triton drop lines that violate this).

use crate::answer::view::MemoryView;
use crate::words::units::{Bytes, KIB, MIB};

/// The longest text: even with every number at its 64-bit maximum, the text is shorter.
pub const LENGTH: usize = 2048;

/// The value of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Total,
    Free,
    Used,
    Nothing,
    /// A number without a unit: hugetlb pages are counted, not measured.
    NoPages,
    /// The size of a huge page, which is printed even if there are no such pages.
    HugePage,
    /// The size of the kernel's address space, which is not memory.
    Vmalloc,
}

use Value::{Free, HugePage, NoPages, Nothing, Total, Used, Vmalloc};

/// One text and not a list of texts, because a list would need relocations in every process.
const NAMES: &str = "MemTotal MemFree MemAvailable Buffers Cached SwapCached Active Inactive \
    Active(anon) Inactive(anon) Active(file) Inactive(file) Unevictable Mlocked SwapTotal SwapFree \
    Dirty Writeback AnonPages Mapped Shmem KReclaimable Slab SReclaimable SUnreclaim KernelStack \
    PageTables NFS_Unstable Bounce WritebackTmp CommitLimit Committed_AS VmallocTotal VmallocUsed \
    VmallocChunk Percpu HardwareCorrupted AnonHugePages ShmemHugePages ShmemPmdMapped \
    FileHugePages FilePmdMapped CmaTotal CmaFree HugePages_Total HugePages_Free HugePages_Rsvd \
    HugePages_Surp Hugepagesize Hugetlb";

fn value(name: &[u8]) -> Value {
    match name {
        b"MemTotal" | b"CommitLimit" => Total,
        b"MemFree" | b"MemAvailable" => Free,
        // Used memory is not cache: it cannot be reclaimed.
        b"Active" | b"Active(anon)" | b"AnonPages" | b"Committed_AS" => Used,
        b"VmallocTotal" => Vmalloc,
        b"Hugepagesize" => HugePage,
        name if name.starts_with(b"HugePages_") => NoPages,
        _ => Nothing,
    }
}

/// Writes the text, and returns its part of the buffer.
pub fn write<'a>(view: &MemoryView, buffer: &'a mut [u8; LENGTH]) -> &'a [u8] {
    put(view, 8, buffer)
}

/// Writes the text of a page: a file that is rewritten in place while programs read it. All pages of
/// a machine are of one length, so that no reader sees the end of an earlier text. Free memory is in
/// whole MiB, so that a page rarely changes.
pub fn write_page<'a>(view: &MemoryView, machine: Bytes, buffer: &'a mut [u8; LENGTH]) -> &'a [u8] {
    let free = Bytes::new(view.free.get() & !(MIB - 1));
    let view = MemoryView {
        total: view.total,
        free,
        used: view.total.minus(free),
    };
    let widest = Digits::of(kilobytes(machine.at_least(view.total)));
    put(&view, widest.text().len().max(8), buffer)
}

/// Writes the text with numbers of at least so many letters.
fn put<'a>(view: &MemoryView, letters: usize, buffer: &'a mut [u8; LENGTH]) -> &'a [u8] {
    let mut line = Text { buffer, length: 0 };
    for name in NAMES.as_bytes().split(|letter| *letter == b' ') {
        let value = value(name);
        let number = match value {
            Total => kilobytes(view.total),
            Free => kilobytes(view.free),
            Used => kilobytes(view.total).saturating_sub(kilobytes(view.free)),
            Nothing | NoPages => 0,
            HugePage => 2048,
            Vmalloc => 34_359_738_367,
        };
        line.push(name);
        line.push(b":");
        // The kernel's columns: 16 for the name, and at least 8 for the number.
        let digits = Digits::of(number);
        let named = name.len().saturating_add(1);
        let columns = letters.saturating_add(16);
        let gap = columns.saturating_sub(named.saturating_add(digits.text().len()));
        for _ in 0..gap.max(16usize.saturating_sub(named)).max(1) {
            line.push(b" ");
        }
        line.push(digits.text());
        line.push(match value {
            NoPages => b"\n",
            _ => b" kB\n",
        });
    }
    line.done()
}

fn kilobytes(bytes: Bytes) -> u64 {
    bytes.get() / KIB
}

struct Text<'a> {
    buffer: &'a mut [u8; LENGTH],
    length: usize,
}

impl<'a> Text<'a> {
    fn push(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(place) = self.buffer.get_mut(self.length) {
                *place = *byte;
                self.length = self.length.saturating_add(1);
            }
        }
    }

    fn done(self) -> &'a [u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

/// A number in decimal, without the formatting machinery (which can panic).
struct Digits {
    digits: [u8; 20],
    count: usize,
}

impl Digits {
    fn of(mut number: u64) -> Digits {
        let mut made = Digits {
            digits: [b'0'; 20],
            count: 0,
        };
        for digit in made.digits.iter_mut().rev() {
            // Less than ten, so the cast is exact.
            *digit = b'0'.saturating_add((number % 10) as u8);
            number /= 10;
            made.count = made.count.saturating_add(1);
            if number == 0 {
                break;
            }
        }
        made
    }

    fn text(&self) -> &[u8] {
        let start = self.digits.len().saturating_sub(self.count);
        self.digits.get(start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    fn text(total: Bytes, free: Bytes) -> String {
        let view = MemoryView {
            total,
            free,
            used: total.minus(free),
        };
        let mut buffer = [0; LENGTH];
        String::from_utf8(write(&view, &mut buffer).to_vec()).unwrap()
    }

    #[test]
    fn a_slice_of_forty_gibibytes_is_a_machine_of_forty() {
        let text = text(Bytes::gib(40), Bytes::gib(39));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "MemTotal:       41943040 kB");
        assert_eq!(lines[1], "MemFree:        40894464 kB");
        assert_eq!(lines[2], "MemAvailable:   40894464 kB");
        assert!(lines.contains(&"SwapTotal:             0 kB"), "{text}");
        assert!(lines.contains(&"HugePages_Total:       0"), "{text}");
        assert!(lines.contains(&"AnonPages:       1048576 kB"), "{text}");
        assert!(lines.contains(&"Hugepagesize:       2048 kB"), "{text}");
        assert!(lines.contains(&"VmallocTotal:   34359738367 kB"), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn a_page_keeps_its_length_and_rounds_down_to_a_mebibyte(
            machine in (1u64 << 30)..(1 << 45),
            total in 0u64..,
            free in proptest::num::u64::ANY,
        ) {
            let (mut first, mut buffer) = ([0; LENGTH], [0; LENGTH]);
            let view = |total, free| MemoryView { total, free, used: total.minus(free) };
            let machine = Bytes::new(machine);
            let total = Bytes::new(total.checked_rem(machine.get()).unwrap_or(0));
            let free = Bytes::new(free).at_most(total);
            let zero = write_page(&view(Bytes::ZERO, Bytes::ZERO), machine, &mut first);
            let text = write_page(&view(total, free), machine, &mut buffer);
            proptest::prop_assert_eq!(text.len(), zero.len());
            let read = crate::host::meminfo::parse(text).unwrap();
            proptest::prop_assert_eq!(read.total, Bytes::kib(total.get() / 1024));
            proptest::prop_assert_eq!(read.available, Bytes::mib(free.get() >> 20));
        }

        #[test]
        fn whatever_is_shown_fits_and_is_read_back(total in 1024u64.., free in proptest::num::u64::ANY) {
            let free = free.min(total);
            let text = text(Bytes::new(total), Bytes::new(free));
            proptest::prop_assert!(text.len() < LENGTH && text.ends_with(" kB\n"), "{}", text);
            let read = crate::host::meminfo::parse(text.as_bytes()).unwrap();
            proptest::prop_assert_eq!(read.total, Bytes::kib(total / 1024));
            proptest::prop_assert_eq!(read.free, read.available);
            proptest::prop_assert_eq!(read.available, Bytes::kib(free / 1024));
        }
    }
}
