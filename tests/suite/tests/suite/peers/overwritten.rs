//! A ledger whose bytes are overwritten while processes use it. From then on the slice is refused
//! memory, and its limit is never lifted.
//! Touches: the same as the parent module; ledgers, which it overwrites in place.

use super::CONTEXT;
use gpuslice_suite::compile;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const LIMIT: u64 = 8 * GIB;

/// The offsets of the words in a ledger for one device: see `config/src/ledger/protocol/layout.rs`.
const EXTENT: u64 = 16;
const USED: u64 = 4096;
const NODES: u64 = USED + 2 * 8 * 512;

/// Writes to a ledger in place, as a stray pointer or `dd conv=notrunc` does.
fn overwrite(ledger: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(ledger).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn random(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

/// Two processes hold 3 GiB each when the ledger changes.
struct Damaged {
    slice: Counted,
    first: Worker,
    second: Worker,
}

impl Damaged {
    fn by(at: u64, bytes: &[u8]) -> Damaged {
        let slice = Counted::new("rtx3090", LIMIT);
        let (mut first, mut second) = (slice.worker(), slice.worker());
        first.must(&format!("alloc 0 {}", 3 * GIB));
        second.must(&format!("alloc 0 {}", 3 * GIB));
        assert_eq!(second.free(), 2 * GIB - 2 * CONTEXT);
        overwrite(slice.ledger(), at, bytes);
        Damaged {
            slice,
            first,
            second,
        }
    }
}

/// 8 bytes of zeros lifted the limit: a process that held 5 GiB of 8 GiB saw 8 GiB as free.
#[test]
fn zeros_in_a_running_slices_ledger_do_not_lift_its_limit() {
    for (what, at, length) in [
        ("the extent", EXTENT, 8),
        ("the first line", 0, 64),
        ("the used bytes", USED, 16),
        ("the heads", NODES, 80),
        ("all slots", USED, 512 * 120),
        ("the whole file", 0, 164 << 10),
    ] {
        let zeros = vec![0; length];
        let Damaged {
            slice,
            mut first,
            mut second,
        } = Damaged::by(at, &zeros);
        let (told, total) = (first.free(), LIMIT);
        assert_eq!(told, 0, "{what}");
        assert_eq!(first.nvml(), [0, total, total], "{what}");
        let two = format!("alloc 1 {}", 2 * GIB);
        assert_eq!(first.code(&two), OUT_OF_MEMORY, "{what}");
        // Every other process of the slice is refused, too, and so is a new one.
        assert_eq!(second.code(&two), OUT_OF_MEMORY, "{what}");
        assert_eq!(second.free(), 0, "{what}");
        let mut late = slice.idle();
        assert_eq!(late.code("start 0"), OUT_OF_MEMORY, "{what}");
        // No process ends, and allocated memory can be freed.
        first.must("free 0");
        second.must("free 0");
        assert_eq!(slice.held(), 2 * CONTEXT, "{what}");
        assert_eq!(first.code(&two), OUT_OF_MEMORY, "{what}");
    }
}

#[test]
fn random_bytes_in_a_running_slices_ledger_do_not_lift_its_limit() {
    for (what, at, length) in [
        ("the header", 0, 4096),
        ("the used bytes", USED, 4096),
        ("the heads", NODES, 4096),
        ("the whole file", 0, 164 << 10),
    ] {
        let Damaged {
            slice,
            mut first,
            mut second,
        } = Damaged::by(at, &random(length));
        let two = format!("alloc 1 {}", 2 * GIB);
        for worker in [&mut first, &mut second] {
            assert_eq!(worker.free(), 0, "{what}");
            assert_eq!(worker.code(&two), OUT_OF_MEMORY, "{what}");
            worker.must("free 0");
        }
        assert_eq!(slice.held(), 2 * CONTEXT, "{what}");
        let mut late = slice.idle();
        assert_eq!(late.code("start 0"), OUT_OF_MEMORY, "{what}");
    }
}

/// A process that is alone in its slice takes a shorter way than two processes do.
#[test]
fn one_process_whose_word_was_zeroed_gets_nothing_more() {
    for at in [EXTENT, USED, NODES] {
        let slice = Counted::new("rtx3090", LIMIT);
        let mut worker = slice.worker();
        worker.must(&format!("alloc 0 {}", 5 * GIB));
        overwrite(slice.ledger(), at, &[0; 8]);
        assert_eq!(worker.code(&format!("alloc 1 {}", 5 * GIB)), OUT_OF_MEMORY);
        assert_eq!(worker.free(), 0, "{at}");
        worker.must("free 0");
        assert_eq!(worker.code("alloc 0 1048576"), OUT_OF_MEMORY, "{at}");
    }
}

#[test]
fn a_process_says_once_that_its_ledger_was_overwritten() {
    let slice = Counted::new("rtx3090", LIMIT);
    let log = slice.machine().folder().join("log");
    let run = slice.run(compile::worker());
    let run = run
        .env("GPUSLICE_LOG", "warn")
        .env("GPUSLICE_LOG_FILE", &log);
    let mut worker = Worker::start(run);
    worker.must("start 0");
    overwrite(slice.ledger(), 0, &[0; 64]);
    for _ in 0..5 {
        assert_eq!(worker.free(), 0);
    }
    let said = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("overwritten"), "{said}");
}

/// A slice that only counts goes on, with the driver's numbers.
#[test]
fn an_overwritten_ledger_refuses_nothing_where_nothing_is_enforced() {
    let keys = serde_json::json!({"memory": LIMIT, "enforce": false});
    let slice = Counted::with("rtx3090", &keys);
    let mut worker = slice.worker();
    overwrite(slice.ledger(), 0, &[0; 64]);
    worker.must(&format!("alloc 0 {}", 9 * GIB));
    worker.must("free 0");
    assert!(worker.free() > 7 * GIB);
}
