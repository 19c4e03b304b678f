//! A thousand scripted collapses of a machine with unified memory, and hours of ordinary serving, in
//! simulated time. The machine is a DGX Spark by published figures; memory comes back at the rates
//! that were measured for killed processes.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "the numbers of a test are small"
)]

use super::ladder::{Action, Ladder};
use super::rungs::Rungs;
use super::victim::Facts;
use std::time::Duration;

const GIB: f64 = (1u64 << 30) as f64;
const RESERVE: f64 = 8.0 * GIB;

/// A group of processes of the simulated machine.
#[derive(Clone, Debug)]
struct Group {
    is_slice: bool,
    is_allowed: bool,
    held: f64,
    promised: f64,
    /// Bytes in a second.
    rate: f64,
    /// Whether it ends when it is asked to.
    is_polite: bool,
    asked: Option<f64>,
    killed: Option<f64>,
    past: Vec<(f64, f64)>,
}

impl Group {
    fn slice(held: f64, promised: f64) -> Group {
        Group {
            is_slice: true,
            is_allowed: true,
            held: held * GIB,
            promised: promised * GIB,
            rate: 0.0,
            is_polite: false,
            asked: None,
            killed: None,
            past: Vec::new(),
        }
    }

    fn host(held: f64, is_allowed: bool) -> Group {
        Group {
            is_slice: false,
            is_allowed,
            ..Group::slice(held, 0.0)
        }
    }

    /// Advances the group by a time. Returns the bytes that it has taken.
    fn turn(&mut self, now: f64, step: f64, seconds_per_gib: f64) -> f64 {
        let ends = self.is_polite && self.asked.is_some_and(|asked| now - asked > 0.4);
        let ends = ends || self.killed.is_some();
        let change = match ends {
            true => -(step / seconds_per_gib * GIB).min(self.held),
            false => self.rate * step,
        };
        self.held += change;
        self.past.push((now, self.held));
        let first = self.past.partition_point(|(at, _)| now - at > 1.0);
        self.past.drain(..first.saturating_sub(1));
        change
    }

    fn facts(&self) -> Facts {
        let before = self.past.first().map_or(self.held, |(_, held)| *held);
        Facts {
            is_slice: self.is_slice,
            bytes: self.held as u64,
            promised: self.promised as u64,
            growth: (self.held - before) as i64,
            is_gone: self.held < 1.0,
        }
    }
}

/// The outcome of a script.
#[derive(Debug, Default)]
struct Outcome {
    /// The groups that got a signal, in order.
    acted_on: Vec<usize>,
    /// The longest time below a quarter of the reserve, in seconds.
    wedged: f64,
    /// The lowest available memory.
    lowest: f64,
    nobody: u32,
}

/// Lets a machine run for a time. `cache` is what streaming files take from the free memory, which
/// the kernel counts as available.
fn run(groups: &mut [Group], available: f64, seconds: f64, seconds_per_gib: f64) -> Outcome {
    let (mut rungs, mut ladder) = (Rungs::new(RESERVE as u64), Ladder::default());
    let (mut now, mut available) = (0.0, available);
    let mut outcome = Outcome {
        lowest: available,
        ..Outcome::default()
    };
    let mut below = 0.0;
    while now < seconds {
        let at = Duration::from_secs_f64(now);
        let verdict = rungs.sample(at, available.max(0.0) as u64, None);
        let all = || groups.iter().enumerate();
        let listed = || all().filter(|(_, group)| group.is_allowed);
        let candidates = || listed().map(|(place, group)| (place as u64, group.facts()));
        let place = |nth: usize| listed().nth(nth).unwrap().0;
        let action = ladder.decide(at, verdict, candidates);
        match action {
            Action::Terminate(nth) => {
                let place = place(nth);
                groups[place].asked = Some(now);
                outcome.acted_on.push(place);
            }
            Action::Kill(nth) => {
                let place = place(nth);
                groups[place].killed = Some(now);
                if !outcome.acted_on.contains(&place) {
                    outcome.acted_on.push(place);
                }
            }
            Action::Nobody => outcome.nobody += 1,
            Action::None => {}
        }
        let step = verdict.next.as_secs_f64();
        for group in groups.iter_mut() {
            available -= group.turn(now, step, seconds_per_gib);
        }
        outcome.lowest = outcome.lowest.min(available);
        below = match available < RESERVE / 4.0 {
            true => below + step,
            false => 0.0,
        };
        outcome.wedged = outcome.wedged.max(below);
        now += step;
    }
    outcome
}

/// Numbers that are the same in every run: SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        let part = self.next() as f64 / u64::MAX as f64;
        low + part * (high - low)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[test]
fn a_thousand_collapses_end_with_the_right_one_and_no_wedge() {
    let mut dice = Dice(17);
    for script in 0..1000 {
        // Slices within their promises, one of which still grows towards its own.
        let mut groups: Vec<Group> = (0..dice.below(6) + 1)
            .map(|_| {
                let held = dice.between(2.0, 20.0);
                Group::slice(held, held + dice.between(0.0, 2.0))
            })
            .collect();
        // Somebody far beyond a promise who does not grow.
        if dice.below(2) == 0 {
            groups.push(Group::slice(12.0, 11.0));
        }
        groups.push(Group::host(dice.between(0.1, 3.0), false));
        let seconds_per_gib = dice.between(0.07, 0.3);
        // From 29 GiB to 6 GiB in 11 seconds, and up to twice as fast.
        let rate = 23.0 / 11.0 * dice.between(0.8, 2.0) * GIB;
        // A slice's processes or a static program in it; a program of the host.
        let kind = script % 3;
        let culprit = Group {
            rate,
            is_polite: dice.below(2) == 0,
            ..match kind {
                0 | 1 => Group::slice(8.0, 8.0),
                _ => Group::host(2.0, true),
            }
        };
        let place = dice.below(groups.len() as u64 + 1) as usize;
        groups.insert(place, culprit);
        let outcome = run(&mut groups, 29.0 * GIB, 40.0, seconds_per_gib);
        assert_eq!(
            outcome.acted_on,
            [place],
            "{script}: {outcome:?} {groups:?}"
        );
        assert!(outcome.wedged <= 1.0, "{script}: {outcome:?}");
        assert!(outcome.lowest > 0.5 * GIB, "{script}: {outcome:?}");
    }
}

#[test]
fn ten_hours_of_serving_cause_no_action() {
    let mut dice = Dice(17);
    let (mut rungs, mut ladder) = (Rungs::new(RESERVE as u64), Ladder::default());
    let slice = Facts {
        is_slice: true,
        bytes: 40 << 30,
        promised: 38 << 30,
        growth: 1 << 30,
        is_gone: false,
    };
    let mut at = Duration::ZERO;
    let (mut warned, mut was_low) = (0, false);
    while at < Duration::from_secs(36_000) {
        // Bursts of requests; files are streamed, which the kernel counts as available. At times one
        // sample is low: a burst whose memory is back before the next one.
        let is_low = !was_low && dice.below(1000) == 0;
        was_low = is_low;
        let available = match is_low {
            true => 3.0,
            false => dice.between(9.0, 24.0),
        };
        let waiting = u32::try_from(dice.below(4000)).ok();
        let mut verdict = rungs.sample(at, (available * GIB) as u64, waiting);
        // The bursts of the script follow no slope.
        verdict.slope = 0;
        warned += u32::from(verdict.level > super::rungs::Level::Calm);
        let action = ladder.decide(at, verdict, || [(1, slice)].into_iter());
        assert_eq!(action, Action::None, "{at:?}");
        // The interval of the rungs would make this test slow.
        at += Duration::from_millis(50);
    }
    assert!(warned > 0);
}

#[test]
fn a_program_of_the_host_that_is_not_listed_is_left_alone_and_nobody_is_named() {
    let culprit = Group {
        rate: 2.0 * GIB,
        ..Group::host(2.0, false)
    };
    let mut groups = vec![Group::slice(20.0, 20.0), culprit];
    let outcome = run(&mut groups, 29.0 * GIB, 14.0, 0.1);
    assert_eq!((outcome.acted_on.len(), outcome.nobody), (0, 1));
}
