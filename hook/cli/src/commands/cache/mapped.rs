//! Counts the pages of a file that are in processes' page tables: the kernel does not evict them. A
//! dry run predicts from this count what a real run would leave.
//! Touches: /proc, by reading.

use super::holders::{Holder, Identity, Mapping};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::page_size;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Bits of an entry in /proc/PID/pagemap: the page is present, and it is a file's page.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;

/// Returns how much of the file is in the page tables of those processes together.
pub(super) fn in_page_tables<'a>(
    file: &Identity,
    holders: impl Iterator<Item = &'a Holder>,
) -> Bytes {
    let page = page_size();
    let mut pages = Pages::default();
    for holder in holders {
        let maps = fs::read(format!("/proc/{}/maps", holder.pid)).unwrap_or_default();
        let table = File::open(format!("/proc/{}/pagemap", holder.pid));
        let lines = maps.split(|byte| *byte == b'\n');
        for mapping in lines
            .filter_map(Mapping::read)
            .filter(|one| one.is_of(file))
        {
            let first = mapping.offset.checked_div(page).unwrap_or(0);
            let seen = table.as_ref().is_ok_and(|table| {
                let read = entries(table, &mapping, page, |at, entry| {
                    if entry & PRESENT != 0 && entry & OF_FILE != 0 {
                        pages.add(first.saturating_add(at));
                    }
                });
                read.is_ok()
            });
            if !seen {
                // If the entries cannot be read, all pages count as present.
                let length = bytes(mapping.end.saturating_sub(mapping.start));
                let count = length.checked_div(page).unwrap_or(0);
                (0..count).for_each(|at| pages.add(first.saturating_add(at)));
            }
        }
    }
    Bytes::new(pages.count().saturating_mul(page))
}

/// Passes on each page of a mapping: its position and its entry.
fn entries(
    table: &File,
    mapping: &Mapping,
    page: u64,
    mut give: impl FnMut(u64, u64),
) -> io::Result<()> {
    let index = |address: usize| bytes(address).checked_div(page).unwrap_or(0);
    let (first, end) = (index(mapping.start), index(mapping.end));
    let mut block = [0u8; 64 << 10];
    let mut at = first;
    while at < end {
        let left = end.saturating_sub(at).saturating_mul(ENTRY);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        let part = block.get_mut(..length).unwrap_or_default();
        table.read_exact_at(part, at.saturating_mul(ENTRY))?;
        for entry in part.as_chunks().0 {
            give(at.saturating_sub(first), u64::from_ne_bytes(*entry));
            at = at.saturating_add(1);
        }
    }
    Ok(())
}

/// The length of an entry in bytes.
const ENTRY: u64 = 8;

fn bytes(amount: usize) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

/// A set of pages of a file.
#[derive(Default)]
struct Pages(Vec<u64>);

impl Pages {
    fn add(&mut self, page: u64) {
        let word = usize::try_from(page >> 6).unwrap_or(usize::MAX);
        // 64 TiB: no mapping reaches beyond it.
        if word >= 1 << 28 {
            return;
        }
        if word >= self.0.len() {
            self.0.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << (page & 63);
        }
    }

    fn count(&self) -> u64 {
        let ones = self.0.iter().map(|word| u64::from(word.count_ones()));
        ones.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_two_have_counts_once() {
        let mut pages = Pages::default();
        for page in [0, 63, 64, 64, 1000, 0, u64::MAX] {
            pages.add(page);
        }
        assert_eq!(pages.count(), 4);
    }
}
