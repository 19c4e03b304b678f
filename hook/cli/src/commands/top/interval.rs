//! The interval between refreshes.
//! Touches: its arguments.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An interval between the shortest and the longest that make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(Duration);

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(60);
/// The intervals that the keys choose from, in milliseconds.
const STEPS: [u64; 9] = [250, 500, 1000, 2000, 3000, 5000, 10_000, 30_000, 60_000];

impl Default for Interval {
    fn default() -> Interval {
        Interval(Duration::from_secs(1))
    }
}

impl Interval {
    pub(super) fn duration(self) -> Duration {
        self.0
    }

    /// Returns the next longer interval.
    pub(super) fn longer(self) -> Interval {
        let mut steps = STEPS.into_iter().map(Duration::from_millis);
        Interval(steps.find(|step| *step > self.0).unwrap_or(LONGEST))
    }

    /// Returns the next shorter interval.
    pub(super) fn shorter(self) -> Interval {
        let mut steps = STEPS.into_iter().rev().map(Duration::from_millis);
        Interval(steps.find(|step| *step < self.0).unwrap_or(SHORTEST))
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} s", self.0.as_secs_f64())
    }
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Interval, String> {
        let number: Option<f64> = text.trim_end_matches('s').trim_end().parse().ok();
        let interval = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
        let interval = interval.filter(|interval| (SHORTEST..=LONGEST).contains(interval));
        interval
            .map(Interval)
            .ok_or_else(|| "an interval is a number of seconds from 0.25 to 60".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        let of = |text: &str| text.parse::<Interval>().map(Interval::duration).ok();
        assert_eq!(of("2"), Some(Duration::from_secs(2)));
        assert_eq!(of("0.5s"), Some(Duration::from_millis(500)));
        for wrong in ["", "0", "0.1", "61", "-1", "NaN", "inf", "1m", "s"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn keys_walk_the_steps_and_stop_at_the_ends() {
        let mut interval: Interval = "1.5".parse().unwrap();
        assert_eq!(interval.longer().to_string(), "2 s");
        assert_eq!(interval.shorter().to_string(), "1 s");
        for _ in 0..20 {
            interval = interval.longer();
        }
        assert_eq!(interval.to_string(), "60 s");
        for _ in 0..20 {
            interval = interval.shorter();
        }
        assert_eq!(interval.to_string(), "0.25 s");
    }
}
