//! The watching thread allocates nothing: an allocator counts.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "the numbers of a test are small"
)]

use super::candidate::{Begin, Candidate};
use super::rungs::Rungs;
use super::watch::{Host, State, Watch, What};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

thread_local! {
    /// The allocations of this thread, and what it has given back.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const GIB: u64 = 1 << 30;

#[test]
fn from_calm_to_a_signal_nothing_is_allocated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meminfo");
    let file = File::create(&path).unwrap();
    let set = |available: u64| {
        let (total, available) = ((100 * GIB) >> 10, available >> 10);
        let text = format!(
            "MemTotal: {total:>12} kB\nMemFree: {available:>12} kB\nMemAvailable: {available:>12} kB\n"
        );
        file.write_all_at(text.as_bytes(), 0).unwrap();
    };
    set(50 * GIB);
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let candidate = |pid| {
        let begin = Begin {
            name: "llama".to_owned(),
            is_slice: true,
            promised: GIB,
            device: 5 * GIB,
            allowance: 0,
            pids: vec![pid],
        };
        Candidate::open(begin, Some(&path), |_| true).unwrap()
    };
    let (notes_in, notes) = sync_channel(64);
    let (fresh_in, fresh) = sync_channel(1);
    let (spent, spent_out) = sync_channel(4);
    let mut watch = Watch {
        host: Host::open(&path).unwrap(),
        rungs: Rungs::new(8 * GIB),
        acts: true,
        fresh,
        spent,
        notes: notes_in,
    };
    let mut state = State::new();
    let mut at = Duration::ZERO;
    let mut turns = |available: u64, count: u32| {
        set(available);
        let before = COUNT.with(Cell::get);
        for _ in 0..count {
            at += watch.turn(&mut state, at).next;
        }
        COUNT.with(Cell::get) - before
    };
    let mut counted = Vec::new();
    for available in [50, 15, 7, 50] {
        fresh_in.send(vec![candidate(child.id())]).unwrap();
        counted.push(turns(available * GIB, 40));
    }
    counted.push(turns(GIB, 10));
    assert_eq!(counted, [0; 5]);
    let told: Vec<What> = notes.try_iter().map(|note| note.what).collect();
    let pid = child.id();
    let acted = told.iter().filter(
        |what| matches!(what, What::Acted { killed: true, pid: acted, .. } if *acted == pid),
    );
    assert_eq!(acted.count(), 1, "{told:?}");
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // The surveying thread drops what the watching thread no longer uses.
    assert_eq!(spent_out.try_iter().count(), 4);
}
