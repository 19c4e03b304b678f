//! Kills many processes with SIGKILL while they allocate. The survivor's next answer is right at
//! once, no process hangs, and no memory stays held.
//! Touches: workers in a slice. `GPUSLICE_KILLS` sets how many are killed (default: 400).

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Worker};
use std::time::{Duration, Instant};

/// The size of a context on an RTX 3090.
const CONTEXT: u64 = 254 << 20;
const LIMIT: u64 = 20 * GIB;

fn kills() -> u32 {
    let asked = std::env::var("GPUSLICE_KILLS").ok();
    asked.and_then(|kills| kills.parse().ok()).unwrap_or(400)
}

/// A pseudo-random number, computed from `number`.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ (number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// Asserts that a survivor sees only the living processes once the kernel has released the dead
/// ones. Returns the time of its answer: on a busy machine one answer may wait for a processor, so
/// the times of all rounds are judged together.
fn is_clean(slice: &Counted, survivor: &mut Worker, living: usize, before: u64) -> Duration {
    slice.buried(living);
    let start = Instant::now();
    assert_eq!(survivor.free(), before);
    let took = start.elapsed();
    assert_eq!(slice.counted(), slice.held());
    took
}

/// Asserts that the answers came at once. A wait for dead processes would delay every answer.
fn at_once(answers: &[Duration]) {
    let sum: Duration = answers.iter().sum();
    let limit = Duration::from_millis(100) * u32::try_from(answers.len()).unwrap();
    assert!(sum < limit, "{} answers took {sum:?}", answers.len());
}

#[test]
fn the_next_answer_after_a_kill_is_right_at_once() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut survivor = slice.worker();
    survivor.must(&format!("alloc 0 {GIB}"));
    let before = survivor.free();
    assert_eq!(before, LIMIT - GIB - CONTEXT);
    let mut nursery = slice.idle();
    const BROOD: u32 = 4;
    let mut answers = Vec::new();
    for round in 0..kills() / BROOD {
        nursery.must(&format!("hatch {BROOD} {round}"));
        // The length of this sleep varies, so that processes are killed at any moment of their
        // work.
        std::thread::sleep(Duration::from_micros(mixed(round.into()) % 1500));
        nursery.must("cull");
        answers.push(is_clean(&slice, &mut survivor, 1, before));
    }
    at_once(&answers);
    survivor.must("free 0");
    assert_eq!(survivor.free(), LIMIT - CONTEXT);
}

#[test]
fn the_same_holds_in_a_slice_that_is_always_full() {
    let limit = 4 * GIB;
    let slice = Counted::new("rtx3090", limit);
    let mut survivor = slice.worker();
    survivor.must(&format!("alloc 0 {GIB}"));
    let before = survivor.free();
    let mut nursery = slice.idle();
    let mut answers = Vec::new();
    for round in 0..kills() / 8 {
        // Some processes find no room for their context, and end by themselves.
        nursery.ask(&format!("hatch 6 {round}"));
        // Here, too, processes are killed at any moment of their work.
        std::thread::sleep(Duration::from_micros(mixed(round.into()) % 1500));
        // A pool grows by 32 MiB, which is known only when the driver has added it. Each of the six
        // processes may exceed the limit by that much for a moment.
        let held = slice.held();
        assert!(held <= limit + 6 * (32 << 20), "{held} of {limit}");
        nursery.ask("cull");
        answers.push(is_clean(&slice, &mut survivor, 1, before));
    }
    at_once(&answers);
}

#[test]
fn those_that_live_on_allocate_while_others_are_killed() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut living: Vec<Worker> = (0..3).map(|_| slice.worker()).collect();
    let before = living[0].free();
    let mut nursery = slice.idle();
    let mut answers = Vec::new();
    for round in 0..kills() / 8 {
        nursery.must(&format!("hatch 2 {round}"));
        for worker in &mut living {
            for number in 0..10 {
                worker.send(1, &format!("alloc {number} 4194304"));
                worker.send(1, &format!("free {number}"));
                worker.send(2, "info");
            }
        }
        nursery.must("cull");
        for worker in &mut living {
            assert!(worker.settle(), "round {round}");
        }
        answers.push(is_clean(&slice, &mut living[0], 3, before));
    }
    at_once(&answers);
}

#[test]
fn when_all_are_killed_at_once_nothing_is_left() {
    let slice = Counted::new("rtx3090", LIMIT);
    for round in 0..kills() / 40 {
        let mut nurseries: Vec<Worker> = (0..3).map(|_| slice.idle()).collect();
        for nursery in &mut nurseries {
            nursery.must(&format!("hatch 3 {round}"));
        }
        for nursery in &mut nurseries {
            nursery.must("cull");
        }
        slice.buried(0);
        assert_eq!(slice.held(), 0, "round {round}");
        let mut next = slice.worker();
        assert_eq!(next.free(), LIMIT - CONTEXT, "round {round}");
    }
}
