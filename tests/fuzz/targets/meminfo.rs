//! Fuzzes the reader of /proc/meminfo, and the writer of a slice's. All pages of a machine have one
//! length, and the numbers of a page are those that it was written from.
//! Touches: its input.
#![no_main]

use gpuslice_config::answer::meminfo_text::{LENGTH, write, write_page};
use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::host::meminfo::parse;
use gpuslice_config::words::units::Bytes;

/// More than any machine has: 2^60 bytes.
const MOST: u64 = 1 << 60;

// The first 24 bytes of the input are the memory of a machine, and a slice's total and free memory.
// The rest is the text of a file.
libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let (numbers, file) = text.split_at(text.len().min(24));
    let number = |place: usize| {
        let bytes = numbers.get(place * 8..).and_then(|rest| rest.first_chunk());
        u64::from_le_bytes(bytes.copied().unwrap_or_default()) % MOST
    };
    pages(number(0), number(1), number(2));
    for text in [text, file] {
        let Some(host) = parse(text) else { continue };
        assert!(host.free <= host.total && host.available <= host.total);
        let machine = host.total.get().min(MOST);
        pages(machine, machine, host.available.get().min(machine));
    }
});

fn pages(machine: u64, total: u64, free: u64) {
    let total = total.min(machine);
    let free = free.min(total);
    let view = |total, free| MemoryView {
        total: Bytes::new(total),
        free: Bytes::new(free),
        used: Bytes::new(total - free),
    };
    let (mut first, mut second) = ([0; LENGTH], [0; LENGTH]);
    let machine = Bytes::new(machine);
    let empty = write_page(&view(0, 0), machine, &mut first).len();
    let page = write_page(&view(total, free), machine, &mut second);
    assert_eq!(page.len(), empty, "a reader sees the end of a longer text");
    assert!(page.len() < LENGTH);
    if total < 1024 {
        return;
    }
    let read = parse(page).expect("a page can be read");
    assert_eq!(read.total, Bytes::kib(total >> 10));
    assert_eq!(read.available, Bytes::mib(free >> 20));
    assert_eq!(read.free, read.available);
    let text = write(&view(total, free), &mut first);
    let read = parse(text).expect("a text can be read");
    assert_eq!(read.total, Bytes::kib(total >> 10));
    assert_eq!(read.available, Bytes::kib(free >> 10));
}
