//! Measures the freed memory that glibc's malloc keeps in another process.
//! Touches: another process's memory, by reading it; its pagemap.
//!
//! A heap is a chain of chunks. Each chunk stores its length, and whether the previous chunk is in
//! use. A chain is accepted only if it ends exactly at the heap's end. The process keeps running
//! during the reading, so a chain that is not accepted is read again.
//!
//! The result counts whole resident pages inside free chunks: the memory that `malloc_trim(0)`
//! would return to the kernel. Freed pieces in a thread's own cache count as in use, as in malloc's
//! own statistics.

use super::allowance::Allowance;
use gpuslice_host::machine::page_size;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The largest size of an arena's heap, and the alignment of its start.
const HEAP: u64 = 64 << 20;
/// The alignment of a heap's length: the smallest page of any kernel.
const SMALLEST_PAGE: u64 = 4096;
/// The bits of a chunk's size field that are flags.
const FLAGS: u64 = 7;
const PREVIOUS_IN_USE: u64 = 1;
/// The bytes of a free chunk that malloc itself uses.
const LINKS: u64 = 48;
/// The possible offsets of a heap's first chunk. A heap begins with a header of a few words. An
/// arena's first heap also contains the arena.
const OWN_WORDS: [u64; 3] = [32, 48, 64];
const ARENA: std::ops::Range<u64> = 1024..4096;
/// The number of attempts to read a chain.
const ATTEMPTS: usize = 3;
/// The most bytes read of a heap: this many times its length, plus a small amount for a short heap.
const READINGS: u64 = 4;
const READ: u64 = 4 << 20;
/// The bytes per read. A read that continues the previous one takes `MUCH`; after a jump over a
/// large chunk, a read takes only `LITTLE`.
const MUCH: usize = 64 << 10;
const LITTLE: usize = 4 << 10;

/// A mapping that can be part of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether this is the area that grows by `brk`.
    pub(super) main: bool,
}

/// Memory of a process, for reading.
pub(super) trait Memory {
    /// Reads from an address until the buffer is full or the memory ends.
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Returns how many of the whole pages between two addresses are resident.
    fn resident(&mut self, from: u64, to: u64) -> io::Result<u64>;
    /// Returns the length of a page. On ARM, a kernel can have pages of 64 KiB.
    fn page(&self) -> u64;
}

/// The memory of a running process.
pub(super) struct Process {
    memory: File,
    pages: File,
}

impl Process {
    /// Opens the memory of a process of this user.
    pub(super) fn open(pid: u32) -> io::Result<Process> {
        Ok(Process {
            memory: File::open(format!("/proc/{pid}/mem"))?,
            pages: File::open(format!("/proc/{pid}/pagemap"))?,
        })
    }
}

impl Memory for Process {
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.memory.read_at(buffer, at)
    }

    fn resident(&mut self, from: u64, to: u64) -> io::Result<u64> {
        // The page is present and exclusively mapped. Other pages do not count. A page that was
        // only read is the kernel's zero page. A page shared with a forked process stays in memory
        // when this process frees it.
        const OWN: u64 = (1 << 63) | (1 << 56);
        let number = |at: u64| at.checked_div(page_size()).unwrap_or(0);
        let (mut page, end) = (number(from), number(to));
        let mut resident = 0u64;
        let mut entries = [0u8; 4096];
        while page < end {
            let wanted = end.saturating_sub(page).saturating_mul(8);
            let wanted = usize::try_from(wanted)
                .unwrap_or(usize::MAX)
                .min(entries.len());
            let place = entries.get_mut(..wanted).unwrap_or_default();
            let read = self.pages.read_at(place, page.saturating_mul(8))?;
            let (whole, _) = entries.get(..read).unwrap_or_default().as_chunks::<8>();
            if whole.is_empty() {
                break;
            }
            let own = whole
                .iter()
                .filter(|entry| u64::from_ne_bytes(**entry) & OWN == OWN);
            resident = resident.saturating_add(own.count() as u64);
            page = page.saturating_add(whole.len() as u64);
        }
        Ok(resident)
    }

    fn page(&self) -> u64 {
        page_size()
    }
}

/// Returns the bytes that malloc keeps. Returns None if the chain of a heap cannot be followed, or
/// the allowance is used up.
pub(super) fn kept(
    memory: &mut impl Memory,
    areas: &[Area],
    allowance: &mut Allowance,
) -> Option<u64> {
    let page = memory.page();
    let mut reader = Reader {
        memory,
        at: 0,
        piece: Vec::new(),
        left: 0,
        allowance,
    };
    let mut pages = 0u64;
    for area in areas {
        if area.main {
            let starts = [area.start, area.start.saturating_add(8)];
            reader.allow(area.end.saturating_sub(area.start));
            pages = pages.saturating_add(reader.chain_of(&starts, area.end)?);
            continue;
        }
        let mut start = area.start.next_multiple_of(HEAP);
        while start < area.end {
            reader.allow(HEAP.min(area.end.saturating_sub(start)));
            if let Some(heap) = reader.heap(start, area.end) {
                pages = pages.saturating_add(reader.chain_of(&heap.starts, heap.end)?);
            }
            start = start.saturating_add(HEAP);
        }
    }
    Some(pages.saturating_mul(page))
}

/// A heap of an arena, and the possible addresses of its first chunk.
struct Heap {
    starts: Vec<u64>,
    end: u64,
}

struct Reader<'a, M> {
    memory: &'a mut M,
    at: u64,
    piece: Vec<u8>,
    /// The bytes that may still be read of this heap.
    left: u64,
    allowance: &'a mut Allowance,
}

impl<M: Memory> Reader<'_, M> {
    /// Resets the allowance for a heap of that length.
    fn allow(&mut self, length: u64) {
        self.left = length.saturating_mul(READINGS).saturating_add(READ);
    }

    /// Reads a word; None if it cannot be read.
    fn word(&mut self, at: u64) -> Option<u64> {
        if let Some(word) = self.known(at) {
            return Some(word);
        }
        let from = at & !(SMALLEST_PAGE.wrapping_sub(1));
        let goes_on = from == self.at.saturating_add(self.piece.len() as u64);
        let length = if goes_on { MUCH } else { LITTLE };
        self.left = self.left.checked_sub(length as u64)?;
        if self.allowance.is_used_up() {
            return None;
        }
        self.piece.resize(length, 0);
        self.at = from;
        let read = self.memory.read(self.at, &mut self.piece).unwrap_or(0);
        self.piece.truncate(read);
        self.known(at)
    }

    fn known(&self, at: u64) -> Option<u64> {
        let place = usize::try_from(at.checked_sub(self.at)?).ok()?;
        let word = self.piece.get(place..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*word))
    }

    /// Reads the header of the heap that begins at `start`: the addresses of its arena and of the
    /// previous heap, and its length.
    fn heap(&mut self, start: u64, limit: u64) -> Option<Heap> {
        let arena = self.word(start)?;
        let previous = self.word(start.saturating_add(8))?;
        let length = self.word(start.saturating_add(16))?;
        let root = arena & !(HEAP.wrapping_sub(1));
        let sound = OWN_WORDS.contains(&arena.wrapping_sub(root))
            && previous.is_multiple_of(HEAP)
            && (previous == 0) == (root == start)
            && length.is_multiple_of(SMALLEST_PAGE)
            && (SMALLEST_PAGE..=HEAP).contains(&length)
            && start.saturating_add(length) <= limit;
        let after: Vec<u64> = match root == start {
            true => ARENA.step_by(16).collect(),
            false => OWN_WORDS.to_vec(),
        };
        sound.then(|| Heap {
            starts: after
                .into_iter()
                .map(|own| start.saturating_add(own))
                .collect(),
            end: start.saturating_add(length),
        })
    }

    /// Counts the resident pages in free chunks of a heap whose first chunk is at one of `starts`.
    fn chain_of(&mut self, starts: &[u64], end: u64) -> Option<u64> {
        for _ in 0..ATTEMPTS {
            for start in starts {
                if let Some(pages) = self.chain(*start, end) {
                    return Some(pages);
                }
            }
            // The process may have changed its memory in the meantime, so the next attempt reads it
            // again.
            self.piece.clear();
        }
        None
    }

    fn chain(&mut self, start: u64, end: u64) -> Option<u64> {
        let page = self.memory.page();
        let mut free = Vec::new();
        let mut at = start;
        let mut head = self.word(at.saturating_add(8))?;
        // The first chunk has no predecessor, so its flag always says that the previous chunk is in
        // use.
        if head & PREVIOUS_IN_USE == 0 {
            return None;
        }
        loop {
            let length = head & !FLAGS;
            let next = at.checked_add(length)?;
            if next == end {
                // The last chunk is the top of the heap: free memory for further allocations.
                free.push((at, next));
                break;
            }
            let last = length == 0 && at.saturating_add(16) == end;
            if last {
                break;
            }
            if length < 16 || !length.is_multiple_of(16) || next > end.saturating_sub(16) {
                return None;
            }
            head = self.word(next.saturating_add(8))?;
            if head & PREVIOUS_IN_USE == 0 {
                // A free chunk also stores its length at its end.
                if self.word(next)? != length {
                    return None;
                }
                // A chunk that contains no whole page would return no memory.
                if length >= page {
                    free.push((at, next));
                }
            }
            at = next;
        }
        let mut pages = 0u64;
        for (from, to) in free {
            let from = from.saturating_add(LINKS).next_multiple_of(page);
            if from < to {
                pages = pages.saturating_add(self.memory.resident(from, to).ok()?);
            }
        }
        Some(pages)
    }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
#[expect(clippy::arithmetic_side_effects, reason = "addresses are made up here")]
mod tests;
