//! Tests with heaps built word by word: valid chains are followed, invalid chains are rejected.

use super::*;
use crate::commands::report::allowance::spent;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const PAGE: u64 = 4096;

/// A process memory with these words; all other words are zero, and all of it is resident.
struct Made {
    page: u64,
    words: BTreeMap<u64, u64>,
    reads: usize,
    /// The processor time that one reading takes.
    cost: Duration,
}

impl Default for Made {
    fn default() -> Made {
        Made {
            page: PAGE,
            words: BTreeMap::new(),
            reads: 0,
            cost: Duration::ZERO,
        }
    }
}

impl Memory for Made {
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        let end = spent() + self.cost;
        while spent() < end {}
        buffer.fill(0);
        let end = at.saturating_add(buffer.len() as u64);
        for (place, word) in self.words.range(at..end) {
            let place = usize::try_from(place - at).unwrap();
            let bytes = word.to_ne_bytes();
            let room = &mut buffer[place..];
            let length = room.len().min(8);
            room[..length].copy_from_slice(&bytes[..length]);
        }
        Ok(buffer.len())
    }

    fn resident(&mut self, from: u64, to: u64) -> io::Result<u64> {
        Ok((to / self.page).saturating_sub(from / self.page))
    }

    fn page(&self) -> u64 {
        self.page
    }
}

impl Made {
    /// Writes chunks one after the other, each given as its length and whether it is in use.
    fn chunks(&mut self, mut at: u64, chunks: &[(u64, bool)]) -> u64 {
        let mut before = true;
        for (length, used) in chunks {
            self.words.insert(at + 8, length | u64::from(before));
            at += length;
            if !used {
                self.words.insert(at, *length);
            }
            before = *used;
        }
        at
    }
}

const START: u64 = 0x5555_0000_0000;

fn main_heap(chunks: &[(u64, bool)]) -> (Made, Area) {
    let mut made = Made::default();
    let end = made.chunks(START, chunks);
    let area = Area {
        start: START,
        end,
        main: true,
    };
    (made, area)
}

#[test]
fn whole_pages_of_free_chunks_are_kept_and_the_top_is_too() {
    let chunks = [
        (0x290, true),
        (0x5000, false),
        (0x1d70, true),
        (0x3000, true),
    ];
    let (mut made, area) = main_heap(&chunks);
    // The free pages: four whole pages in 0x290..0x5290, and all but the first page of the top
    // chunk 0x7000..0xa000.
    assert_eq!(
        kept(&mut made, &[area], &mut Allowance::share_of(1)),
        Some((4 + 2) * PAGE)
    );
}

#[test]
fn on_a_kernel_with_large_pages_whole_large_pages_count() {
    let chunks = [(0x290, true), (0x3_0000, false), (0xfd70, true)];
    let (mut made, area) = main_heap(&chunks);
    made.page = 64 << 10;
    // Of the free chunk 0x290..0x3_0290, the pages from 0x1_0000 to 0x3_0000 are whole; the top chunk
    // 0x3_0290..0x4_0000 has none.
    assert_eq!(
        kept(&mut made, &[area], &mut Allowance::share_of(1)),
        Some(2 * (64 << 10))
    );
}

#[test]
fn a_chain_that_does_not_end_with_the_heap_is_not_believed() {
    let (mut made, area) = main_heap(&[(0x290, true), (0x5000, false), (0x3d70, true)]);
    made.words.insert(START + 0x298, 0x4f00 | 1);
    assert_eq!(kept(&mut made, &[area], &mut Allowance::share_of(1)), None);
}

#[test]
fn an_arenas_heaps_are_found_where_they_begin() {
    let (first, second) = (0x7f00_0000_0000, 0x7f00_0400_0000);
    let mut made = Made::default();
    // The first heap contains the arena; the second one only refers to it.
    for (heap, previous) in [(first, 0), (second, first)] {
        made.words.insert(heap, first + 48);
        made.words.insert(heap + 8, previous);
        made.words.insert(heap + 16, 0x2_1000);
    }
    let used_up = made.chunks(first + 48 + 2208, &[(0x10_000, false), (0x1_0710, true)]);
    // A full heap ends with two fence chunks.
    made.words.insert(used_up + 8, 16 | 1);
    made.words.insert(used_up + 24, 1);
    assert_eq!(used_up + 32, first + 0x2_1000);
    made.chunks(second + 48, &[(0x2_0000, true), (0x1000 - 48, true)]);
    let area = Area {
        start: first - 0x10_000,
        end: second + 0x10_0000,
        main: false,
    };
    assert_eq!(
        kept(&mut made, &[area], &mut Allowance::share_of(1)),
        Some(15 * PAGE)
    );
}

proptest! {
    #[test]
    fn any_memory_is_read_to_an_end(
        words in prop::collection::btree_map((0u64..1 << 13).prop_map(|at| START + at * 8), any::<u64>(), 0..200),
        small in prop::collection::btree_map((0u64..1 << 13).prop_map(|at| START + at * 8), 0u64..1 << 17, 0..200),
        main in any::<bool>(),
    ) {
        let mut made = Made { words, ..Made::default() };
        made.words.extend(small);
        let area = Area { start: START, end: START + (1 << 16), main };
        let kept = kept(&mut made, &[area], &mut Allowance::share_of(1));
        prop_assert!(kept.is_none_or(|kept| kept <= 1 << 16));
        prop_assert!(made.reads <= 1 << 16, "{}", made.reads);
    }
}

#[test]
fn a_heap_whose_chain_breaks_at_its_end_costs_a_few_readings_of_it() {
    let mut made = Made::default();
    let start = HEAP * 7;
    // The first heap of an arena, full of chunks of the smallest size, with a broken end.
    for (place, word) in [(0, start + 32), (8, 0), (16, HEAP)] {
        made.words.insert(start + place, word);
    }
    for at in (start + 1024..start + (1 << 20)).step_by(16) {
        made.words.insert(at + 8, 16 | PREVIOUS_IN_USE);
    }
    let area = Area {
        start,
        end: start + HEAP,
        main: false,
    };
    let mut allowance = Allowance::share_of(1);
    assert_eq!(kept(&mut made, &[area], &mut allowance), None);
    let most = (HEAP * READINGS + READ) / LITTLE as u64;
    assert!((made.reads as u64) <= most, "{} of {most}", made.reads);
}

/// A program can have as many heaps as it likes, and a report reads those of all slices.
#[test]
fn heaps_without_end_are_read_no_longer_than_the_allowance() {
    let chunks = [(0x290, true), (0x5000, false), (0x1d70, true)];
    let (mut made, area) = main_heap(&chunks);
    made.cost = Duration::from_millis(5);
    // 20 ms for each of 50 slices.
    let mut allowance = Allowance::share_of(50);
    assert_eq!(kept(&mut made, &[area; 1000], &mut allowance), None);
    assert!(made.reads < 10, "{}", made.reads);
}
