//! Reads the kernel's view of this process's own pages: which are mapped, and which hold data that
//! no file has.
//! Touches: `/proc/self/pagemap`, which needs no rights for one's own process.
//! Law: where the kernel gives no answer, the result is the one that drops nothing.

use crate::page_cache::mappings::Range;
use crate::sys::file_calls::{self, Descriptor};
use crate::sys::syscall;

/// `PAGEMAP_SCAN`, since kernel 6.7.
const PAGEMAP_SCAN: usize = 0xc060_6610;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;

/// The bits of an entry in the pagemap file.
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_FILE: u64 = 1 << 61;

/// The smallest page size. With larger pages the file has fewer entries, and our reads lie beyond
/// its end, which counts as no answer.
const PAGE: u64 = 4096;

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const REGIONS: usize = 16;
const NO_REGIONS: [Region; REGIONS] = [Region {
    start: 0,
    end: 0,
    categories: 0,
}; REGIONS];

impl Scan {
    fn new(range: Range, most: u64, inverted: u64, mask: u64, any: u64) -> Scan {
        Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start: range.start,
            end: range.end,
            walk_end: 0,
            vec: 0,
            vec_len: REGIONS as u64,
            max_pages: most,
            category_inverted: inverted,
            category_mask: mask,
            category_anyof_mask: any,
            return_mask: mask | any,
        }
    }
}

/// The pages of this process.
pub(in crate::page_cache) struct Pages(Descriptor);

impl Pages {
    pub(in crate::page_cache) fn open() -> Option<Pages> {
        file_calls::open(c"/proc/self/pagemap").ok().map(Pages)
    }

    pub(in crate::page_cache) fn close(self) {
        file_calls::close(self.0);
    }

    /// Whether all mapped pages of a range are a file's, so that dropping them loses no data.
    pub(in crate::page_cache) fn are_a_files(&self, range: Range) -> bool {
        let own = self.scan(range, 1, IS_FILE, IS_FILE, IS_PRESENT | IS_SWAPPED);
        match own {
            Some(own) => own == 0,
            None => self
                .count(range, |entry| {
                    entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0 && entry & ENTRY_FILE == 0
                })
                .is_some_and(|own| own == 0),
        }
    }

    /// Whether at least a quarter of a range is mapped.
    pub(in crate::page_cache) fn are_present(&self, range: Range) -> bool {
        let some = range.end.saturating_sub(range.start) / PAGE / 4;
        let present = self.scan(range, some, 0, IS_PRESENT, 0);
        let present = match present {
            Some(present) => Some(present),
            None => self.count(range, |entry| entry & ENTRY_PRESENT != 0),
        };
        present.is_some_and(|present| present >= some)
    }

    /// Calls `of` for each mapped piece of a range that holds only the file's pages.
    pub(in crate::page_cache) fn each_of_a_file(&self, range: Range, mut of: impl FnMut(Range)) {
        let mut rest = range;
        while rest.start < rest.end {
            let kind = IS_FILE | IS_PRESENT;
            let mut scan = Scan::new(rest, 0, 0, kind, 0);
            let mut regions = NO_REGIONS;
            let Some(found) = self.ask(&mut scan, &mut regions) else {
                // The kernel lacks PAGEMAP_SCAN: the range is passed on as a whole, or not at all.
                if self.are_a_files(rest) {
                    of(rest);
                }
                return;
            };
            for region in regions.iter().take(found) {
                let Region { start, end, .. } = *region;
                of(Range { start, end });
            }
            if scan.walk_end <= rest.start {
                return;
            }
            rest.start = scan.walk_end;
        }
    }

    /// The number of pages of a kind in a range, up to `most`. None: the kernel lacks PAGEMAP_SCAN.
    fn scan(&self, range: Range, most: u64, inverted: u64, mask: u64, any: u64) -> Option<u64> {
        let mut regions = NO_REGIONS;
        let found = self.ask(
            &mut Scan::new(range, most, inverted, mask, any),
            &mut regions,
        )?;
        let pages = regions.iter().take(found).map(|region| {
            let length = region.end.saturating_sub(region.start);
            length / PAGE
        });
        Some(pages.fold(0, u64::saturating_add))
    }

    /// The number of regions that the kernel has found.
    fn ask(&self, scan: &mut Scan, regions: &mut [Region; REGIONS]) -> Option<usize> {
        scan.vec = (&raw mut *regions) as u64;
        let place = (&raw mut *scan) as usize;
        let fd = self.0.0 as usize;
        // SAFETY: the kernel writes only to the two structs, at most `vec_len` regions.
        unsafe { syscall(libc::SYS_ioctl, [fd, PAGEMAP_SCAN, place, 0, 0, 0]) }.ok()
    }

    /// The number of wanted pages, counted from the file's entries. None: they cannot be read.
    fn count(&self, range: Range, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        const ENTRIES: usize = 256;
        let mut count = 0u64;
        let mut at = range.start / PAGE;
        let end = range.end / PAGE;
        while at < end {
            let mut entries = [0u64; ENTRIES];
            let rest = usize::try_from(end.saturating_sub(at)).unwrap_or(ENTRIES);
            let length = rest.min(ENTRIES).saturating_mul(8);
            let offset = usize::try_from(at.saturating_mul(8)).ok()?;
            let (fd, place) = (self.0.0 as usize, (&raw mut entries) as usize);
            // SAFETY: the kernel writes at most `length` bytes, and `entries` has that room.
            let read =
                unsafe { syscall(libc::SYS_pread64, [fd, place, length, offset, 0, 0]) }.ok()?;
            if read < length {
                return None;
            }
            let found = entries
                .iter()
                .take(length / 8)
                .filter(|entry| wanted(**entry));
            count = count.saturating_add(found.count() as u64);
            at = at.saturating_add(ENTRIES as u64);
        }
        Some(count)
    }
}
