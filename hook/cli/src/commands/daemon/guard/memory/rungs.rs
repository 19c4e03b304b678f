//! Decides how short of memory the host is, from samples of its available memory.
//! Touches: its arguments.
//! Law: it allocates nothing, and its decision depends on the samples only.
//!
//! The thresholds are parts of the reserve R, the memory that a host needs to stay reachable. The
//! slope counts too, because a collapse on unified memory takes seconds. Memory pressure (PSI) only
//! warns: without swap it stays low until the kernel's own OOM killer acts, and streaming page cache
//! raises it.

use std::time::Duration;

/// The host's shortage of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// There is enough.
    #[default]
    Calm,
    /// Less than twice the reserve is available, or processes wait for memory.
    Warn,
    /// Less than the reserve is available, or less than twice the reserve that is used up within four
    /// seconds. With `act`, caches of the kernel and of the driver are dropped. The preload refuses
    /// allocations by itself.
    Short,
    /// Less than half of the reserve is available: a process is asked to end.
    Terminate,
    /// Less than a quarter of the reserve is available, or less than half and it will last less than
    /// three seconds: a process is killed.
    Kill,
}

impl Level {
    /// The level as a word, in metrics and events.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Level::Calm => "calm",
            Level::Warn => "warn",
            Level::Short => "short",
            Level::Terminate => "terminate",
            Level::Kill => "kill",
        }
    }
}

/// The verdict on a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// The host's shortage of memory.
    pub(crate) level: Level,
    /// The bytes by which the available memory shrinks in a second; negative if it grows.
    pub(crate) slope: i64,
    /// Whether only the memory pressure warns.
    pub(crate) is_pressure: bool,
    /// The time until the next sample.
    pub(crate) next: Duration,
}

/// The interval of samples while there is enough memory.
pub(crate) const SLOW: Duration = Duration::from_millis(250);
/// The interval near the reserve, where a machine may stay for days.
const STEADY: Duration = Duration::from_millis(50);
/// The interval while the memory shrinks and will not last long.
const NEAR: Duration = Duration::from_millis(10);
/// The interval below the reserve.
const BELOW: Duration = Duration::from_millis(5);
/// A shorter shortage is a burst, and causes no signal.
const SURE: Duration = Duration::from_millis(10);
/// The time over which the slope is measured.
const SPAN: Duration = Duration::from_millis(200);
/// With memory for fewer seconds than this, allocations would fail before an operator could act.
const SOON: u64 = 4;
/// With memory for fewer seconds than this, there is no time for a process to end by itself.
const TOO_SOON: u64 = 3;
/// With memory for fewer seconds than this, samples are taken often.
const NEAR_SOON: u64 = 10;
/// The share of ten seconds in which some processes waited for memory, in hundredths of a percent.
const WAITING: u32 = 1000;
/// The samples that are kept: more than [`SPAN`] holds.
const KEPT: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: Duration,
    available: u64,
}

/// The samples of a host.
#[derive(Clone, Debug)]
pub(crate) struct Rungs {
    reserve: u64,
    kept: [Sample; KEPT],
    taken: usize,
    /// The first of the consecutive samples that called for a signal.
    low_since: Option<Duration>,
}

impl Rungs {
    /// The samples of a host with this reserve.
    pub(crate) fn new(reserve: u64) -> Rungs {
        Rungs {
            reserve,
            kept: [Sample::default(); KEPT],
            taken: 0,
            low_since: None,
        }
    }

    /// Adds a sample; `at` is the time since a fixed moment. `waiting` is the memory pressure, in hundredths of
    /// a percent.
    pub(crate) fn sample(&mut self, at: Duration, available: u64, waiting: Option<u32>) -> Verdict {
        let slope = self.slope(at, available);
        self.keep(Sample { at, available });
        let left = |seconds: u64| match u64::try_from(slope) {
            Ok(slope) if slope > 0 => available < slope.saturating_mul(seconds),
            _ => false,
        };
        let (half, quarter) = (self.reserve / 2, self.reserve / 4);
        self.low_since = (available < half).then(|| self.low_since.unwrap_or(at));
        let low_for = self.low_since.map(|since| at.saturating_sub(since));
        let is_sure = low_for.is_some_and(|low_for| low_for >= SURE);
        let level = if is_sure && (available < quarter || left(TOO_SOON)) {
            Level::Kill
        } else if is_sure {
            Level::Terminate
        } else if available < self.reserve || (left(SOON) && self.is_near(available)) {
            Level::Short
        } else if self.is_near(available) || waiting.is_some_and(|waiting| waiting >= WAITING) {
            Level::Warn
        } else {
            Level::Calm
        };
        let next = if available < self.reserve {
            BELOW
        } else if left(NEAR_SOON) {
            NEAR
        } else if self.is_near(available) {
            STEADY
        } else {
            SLOW
        };
        Verdict {
            level,
            slope,
            // Processes may wait for other reasons than memory of the host.
            is_pressure: level == Level::Warn && !self.is_near(available),
            next,
        }
    }

    fn is_near(&self, available: u64) -> bool {
        available < self.reserve.saturating_mul(2)
    }

    fn keep(&mut self, sample: Sample) {
        let place = self.taken % KEPT;
        if let Some(kept) = self.kept.get_mut(place) {
            *kept = sample;
        }
        self.taken = self.taken.saturating_add(1);
    }

    /// The slope since the newest sample that is at least [`SPAN`] old, or since the oldest one.
    fn slope(&self, at: Duration, available: u64) -> i64 {
        let count = self.taken.min(KEPT);
        let newest_first = (1..=count).filter_map(|back| {
            let place = self.taken.checked_sub(back)? % KEPT;
            self.kept.get(place)
        });
        let mut base = None;
        for sample in newest_first {
            base = Some(sample);
            if at.saturating_sub(sample.at) >= SPAN {
                break;
            }
        }
        let Some(base) = base else { return 0 };
        let micros = at.saturating_sub(base.at).as_micros().max(1);
        let fell = i128::from(base.available).saturating_sub(i128::from(available));
        let micros = i128::try_from(micros).unwrap_or(i128::MAX);
        let slope = fell.saturating_mul(1_000_000).checked_div(micros);
        let limit = i128::from(i64::MAX);
        let slope = slope.unwrap_or(0).clamp(limit.saturating_neg(), limit);
        i64::try_from(slope).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const R: u64 = 8 * GIB;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_host_at_rest_is_asked_four_times_a_second() {
        let mut rungs = Rungs::new(R);
        for turn in 0..100 {
            let verdict = rungs.sample(ms(turn * 250), 100 * GIB, Some(0));
            assert_eq!((verdict.level, verdict.next), (Level::Calm, SLOW));
        }
    }

    #[test]
    fn pressure_warns_and_never_does_more() {
        let mut rungs = Rungs::new(R);
        let verdict = rungs.sample(ms(0), 100 * GIB, Some(10_000));
        assert_eq!(verdict.level, Level::Warn);
    }

    #[test]
    fn a_burst_of_five_milliseconds_sends_no_signal() {
        let mut rungs = Rungs::new(R);
        rungs.sample(ms(0), 9 * GIB, None);
        let low = rungs.sample(ms(10), GIB, None);
        assert_eq!((low.level, low.next), (Level::Short, BELOW));
        assert_eq!(rungs.sample(ms(20), 9 * GIB, None).level, Level::Warn);
        assert_eq!(rungs.sample(ms(30), GIB, None).level, Level::Short);
        assert_eq!(rungs.sample(ms(35), GIB, None).level, Level::Short);
        assert_eq!(rungs.sample(ms(40), GIB, None).level, Level::Kill);
    }

    #[test]
    fn little_memory_that_does_not_shrink_asks_a_process_to_end() {
        let mut rungs = Rungs::new(R);
        for turn in 0..100 {
            rungs.sample(ms(turn * 5), 3 * GIB, None);
        }
        assert_eq!(rungs.sample(ms(500), 3 * GIB, None).level, Level::Terminate);
    }

    #[test]
    fn a_fast_collapse_is_short_before_the_reserve_is_touched() {
        let mut rungs = Rungs::new(R);
        // 4 GiB in a second, from 20 GiB.
        let mut seen = Vec::new();
        for turn in 0..500u64 {
            let available = 20 * GIB - turn * (4 * GIB) / 100;
            let verdict = rungs.sample(ms(turn * 10), available, None);
            if seen.last().is_none_or(|(level, _)| *level != verdict.level) {
                seen.push((verdict.level, available));
            }
        }
        let levels: Vec<Level> = seen.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [Level::Calm, Level::Short, Level::Kill], "{seen:?}");
        assert!(seen[1].1 > 15 * GIB && seen[2].1 > 3 * GIB, "{seen:?}");
    }

    #[test]
    fn a_clock_that_stands_still_and_extreme_numbers_are_no_error() {
        let mut rungs = Rungs::new(u64::MAX);
        for available in [0, u64::MAX, 0, 1] {
            let _ = rungs.sample(ms(0), available, None);
        }
        let mut rungs = Rungs::new(0);
        assert_eq!(rungs.sample(ms(0), 0, None).level, Level::Calm);
    }
}
