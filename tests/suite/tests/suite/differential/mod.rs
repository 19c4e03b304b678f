//! Random calls of the GPU's libraries, without a slice and in one: the same codes come back, and
//! the same bytes but for the numbers that a slice changes.
//! Touches: `client-random-calls`, on simulated machines of its own. `GPUSLICE_DIFFERENTIAL` sets
//! how many seconds the test takes (default: a fixed number of sequences, some 15 seconds);
//! `GPUSLICE_DIFFERENTIAL_SEED` sets the first seed.
//! Law: a difference that is meant has a line in `meant.rs` with its reason.

mod compare;
mod machines;
mod meant;
mod reduce;

use compare::Difference;
use machines::{MACHINES, Place};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of calls of a sequence.
const LENGTH: u64 = 40;
/// The sequences that one process runs, each in a child of its own.
const CHUNK: u64 = 50;
/// The chunks of a run that has no time set.
const CHUNKS: u64 = 42;
/// Differences that are found before the search ends.
const ENOUGH: usize = 4;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs one chunk, without a slice, in a slice as large as the card, and in a small one.
fn chunk(place: &Place, seed: u64) -> Vec<Difference> {
    let bare = place.bare(seed, CHUNK, LENGTH, &[]);
    let mut found = Vec::new();
    for size in [machines::Size::Whole, machines::Size::Small] {
        let sliced = place.sliced(size, seed, CHUNK, LENGTH, &[]);
        found.extend(compare::logs(place, size, &bare, &sliced));
    }
    found
}

#[test]
fn random_calls_get_the_drivers_own_answers_in_a_slice() {
    let start = variable("GPUSLICE_DIFFERENTIAL_SEED").unwrap_or(1);
    let time = variable("GPUSLICE_DIFFERENTIAL").map(Duration::from_secs);
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let found: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let work = || loop {
        let chunk_number = next.fetch_add(1, Ordering::Relaxed);
        let is_over = time.map_or(chunk_number >= CHUNKS, |time| began.elapsed() > time);
        if is_over || found.lock().unwrap().len() >= ENOUGH {
            return;
        }
        let machine = chunk_number as usize % MACHINES.len();
        let place = Place::new(MACHINES[machine]);
        let seed = start + chunk_number * CHUNK;
        // Of a chunk, one difference is enough: the others mostly have the same cause.
        if let Some(difference) = chunk(&place, seed).into_iter().next() {
            let report = reduce::report(MACHINES[machine], &difference, LENGTH);
            found.lock().unwrap().extend(report);
        }
    };
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let sequences = next.load(Ordering::Relaxed) * CHUNK;
    println!(
        "differential: some {sequences} sequences in {:?}",
        began.elapsed()
    );
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}
