//! The law while the limit changes all the time: after each of many random resizes of random programs,
//! all processes show one answer with the limit in force. What it calls free is granted, and one step
//! more is refused.
//! Touches: workers in a slice, on a simulated RTX 3090. `GPUSLICE_RESIZES` sets the number of
//! resizes (default: 100, which take a second; `make law` runs 10,000).

use super::law::{Act, LIMITS, PROCESSES, Play, Step, THINGS, THREADS, act};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{GRANULE, OUT_OF_MEMORY, Said, Worker};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::time::{Duration, Instant};

/// The longest time after which every process must show a new limit.
const VISIBLE: Duration = Duration::from_millis(50);

/// The resizes of one slice. Then all of its processes end, and the next slice begins.
const ROUNDS: usize = 100;

/// The largest limit. The card has 24 GiB.
const MOST: u64 = 16 * GIB;

/// The work between two resizes: 8 processes have up to 40 calls open.
fn work(of_pools: bool) -> impl Strategy<Value = Vec<Step>> {
    let acts = act().prop_filter("no pools", move |act: &Act| of_pools || !act.is_of_pools());
    let does = (0..PROCESSES, 0..THREADS, 0..THINGS, acts);
    let does =
        does.prop_map(|(process, thread, thing, act)| Step::Does(process, thread, thing, act));
    proptest::collection::vec(does, 1..40)
}

/// What was measured.
#[derive(Default)]
struct Measured {
    resizes: usize,
    refused: usize,
    answers: usize,
    /// From the change of the limit to the last process's answer.
    visible: Vec<Duration>,
    /// The longest time of one answer.
    slowest: Duration,
}

impl Measured {
    /// Asks all processes at once, and asserts that each answers with the limit in force, by CUDA and
    /// by NVML.
    fn all_show(&mut self, play: &mut Play, since: Instant) {
        let counted = play.slice.counted();
        let expected = Said {
            total: play.limit,
            free: play.limit.saturating_sub(counted),
        };
        let asked = Instant::now();
        let mut living: Vec<&mut Worker> = play.processes.iter_mut().flatten().collect();
        for worker in &mut living {
            worker.send(0, "info");
        }
        for worker in &mut living {
            let answer = worker.hear().unwrap_or_default();
            // A process without a context has no answer of CUDA.
            if let [_, _, code, free, total] = &answer[..]
                && code == "0"
            {
                let number = |word: &String| word.parse::<u64>().unwrap();
                let said = Said {
                    total: number(total),
                    free: number(free),
                };
                assert_eq!(said, expected);
                self.answers += 1;
            }
        }
        self.slowest = self.slowest.max(asked.elapsed());
        self.visible.push(since.elapsed());
        for worker in living {
            let Said { total, free } = expected;
            assert_eq!(worker.nvml(), [free, total, total - free]);
            self.answers += 1;
        }
    }

    fn print(&mut self, of_pools: bool) {
        self.visible.sort();
        let at = |part: usize| self.visible[(self.visible.len() - 1) * part / 1000];
        println!(
            "of pools: {of_pools}; {} resizes, {} refused because more was held; {} answers; all \
             processes show a limit after {:?} (median), {:?} (99 %), {:?} (longest)",
            self.resizes,
            self.refused,
            self.answers,
            at(500),
            at(990),
            at(1000),
        );
    }
}

/// Asserts that what is shown as free is granted, and one step more is not. A request that is refused
/// trims the process's pools, and is then tried again: with pools it may be granted.
fn free_is_granted_and_no_more(play: &mut Play, of_pools: bool) {
    let Some(worker) = play.processes.iter_mut().flatten().next() else {
        return;
    };
    // A graph keeps the memory that is freed, until it is trimmed.
    for line in ["synchronize", "free 0", "trim-graphs"] {
        worker.ask(line);
    }
    let answer = worker.ask("info");
    let [0, free, _] = answer[..] else {
        return;
    };
    let steps = free.cast_unsigned() / GRANULE;
    if !of_pools {
        let more = format!("alloc 0 {}", (steps + 1) * GRANULE);
        assert_eq!(worker.code(&more), OUT_OF_MEMORY);
    }
    if steps > 0 {
        worker.must(&format!("alloc 0 {}", steps * GRANULE));
        worker.must("free 0");
    }
}

fn resizes(of_pools: bool) {
    let asked = std::env::var("GPUSLICE_RESIZES").ok();
    let wanted = asked.and_then(|count| count.parse().ok()).unwrap_or(100);
    let mut runner = TestRunner::default();
    let mut measured = Measured::default();
    while measured.resizes < wanted {
        let mut play = Play::new();
        for round in 0..ROUNDS {
            let work = work(of_pools).new_tree(&mut runner).unwrap().current();
            work.iter().for_each(|step| play.step(step));
            // A process is killed now and then, as otherwise the card fills up.
            if round % 8 == 7 {
                play.step(&Step::Kill(round / 8 % PROCESSES));
            }
            // Every second resize comes while all threads are at work, and the others when the
            // processes wait, so that the time of their answers is measured and not that of their
            // work.
            if round % 2 == 0 {
                play.step(&Step::Look);
            }
            // Most sizes are above what is held at this moment, since others are refused.
            let drawn = LIMITS.new_tree(&mut runner).unwrap().current() * GRANULE;
            let held = play.slice.counted().next_multiple_of(GRANULE);
            let limit = match drawn % 5 {
                0 => drawn,
                _ => (held + drawn / 8 / GRANULE * GRANULE).min(MOST),
            };
            let since = Instant::now();
            play.step(&Step::Resize(limit));
            match play.limit == limit {
                true => measured.resizes += 1,
                false => measured.refused += 1,
            }
            if round % 2 == 0 {
                measured.all_show(&mut play, since);
                free_is_granted_and_no_more(&mut play, of_pools);
            } else {
                play.step(&Step::Look);
            }
        }
        play.end();
    }
    measured.print(of_pools);
    // `all_show` has asserted that each first answer shows the new limit. The slowest of eight processes
    // waits for a processor, and how long depends on what else runs.
    let visible = measured.visible[measured.visible.len() / 2];
    assert!(visible < VISIBLE, "{visible:?}");
}

#[test]
fn the_law_holds_whenever_the_limit_changes() {
    resizes(false);
}

#[test]
fn the_law_holds_whenever_the_limit_changes_with_pools() {
    resizes(true);
}
