//! Decides which devices new claims should avoid, from the guard's report: with hysteresis.
//! Touches: its arguments.
//! Law: a cause has to last, and stays in force long after it has ended. So the ResourceSlices change
//! at most twice in [`HOLD`] for each cause, however the guard's report goes up and down.

use gpuslice_host::machine::guard::GuardState;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A cause that was seen at so many looks in a row is in force. The guard also reports bursts of
/// milliseconds.
const ONSET: u32 = 4;

/// A cause stays in force for this long after it was last seen.
pub const HOLD: Duration = Duration::from_secs(300);

/// A report that is older than this many seconds says nothing: the guard writes every five.
const FRESH: u64 = 30;

/// The level from which the host is short of memory: less than its reserve is available.
const SHORT: u64 = 2;

/// A cause of pressure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The host is short of memory, and so are all devices that share it.
    Host,
    /// Processes hold memory of this device that their slices do not count. Its name in the cluster.
    Beyond(String),
}

/// The causes that a report of the guard has. `now` is in seconds since 1970.
#[must_use]
pub fn causes(state: Option<&GuardState>, now: u64) -> BTreeSet<Cause> {
    let fresh = state.filter(|state| now.abs_diff(state.seen) <= FRESH);
    let Some(state) = fresh else {
        return BTreeSet::new();
    };
    let beyond = state.beyond.keys();
    let beyond = beyond.map(|device| Cause::Beyond(device.to_ascii_lowercase()));
    let host = (state.level >= SHORT).then_some(Cause::Host);
    host.into_iter().chain(beyond).collect()
}

/// The causes in a log line.
#[must_use]
pub fn shown(causes: &BTreeSet<Cause>) -> String {
    let texts: Vec<String> = causes
        .iter()
        .map(|cause| match cause {
            Cause::Host => "the host is short of memory".to_owned(),
            Cause::Beyond(device) => {
                format!("processes hold memory of {device} that no slice counts")
            }
        })
        .collect();
    match texts.is_empty() {
        true => "no device is under pressure any more".to_owned(),
        false => texts.join("; "),
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The looks in a row.
    looks: u32,
    last: Instant,
    is_in_force: bool,
}

/// The causes of the last minutes.
#[derive(Debug, Default)]
pub struct Pressure(BTreeMap<Cause, Seen>);

impl Pressure {
    /// Adds the causes of a look, and returns those that are in force. A look comes each second.
    pub fn look(&mut self, causes: BTreeSet<Cause>, now: Instant) -> BTreeSet<Cause> {
        for (cause, seen) in &mut self.0 {
            if !causes.contains(cause) {
                seen.looks = 0;
            }
        }
        for cause in causes {
            let seen = self.0.entry(cause).or_insert(Seen {
                looks: 0,
                last: now,
                is_in_force: false,
            });
            (seen.looks, seen.last) = (seen.looks.saturating_add(1), now);
            seen.is_in_force |= seen.looks >= ONSET;
        }
        self.0
            .retain(|_, seen| now.saturating_duration_since(seen.last) < HOLD);
        let in_force = self.0.iter().filter(|(_, seen)| seen.is_in_force);
        in_force.map(|(cause, _)| cause.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(level: u64, seen: u64, beyond: &[&str]) -> GuardState {
        GuardState {
            schema: 1,
            seen,
            level,
            beyond: beyond.iter().map(|one| ((*one).to_owned(), 1)).collect(),
            ..GuardState::default()
        }
    }

    #[test]
    fn only_a_guard_that_works_reports_pressure() {
        let device = Cause::Beyond("gpu-1".to_owned());
        assert_eq!(causes(None, 100), BTreeSet::new());
        assert_eq!(
            causes(Some(&state(4, 69, &["GPU-1"])), 100),
            BTreeSet::new()
        );
        assert_eq!(causes(Some(&state(1, 100, &[])), 100), BTreeSet::new());
        let both = BTreeSet::from([Cause::Host, device]);
        assert_eq!(causes(Some(&state(2, 95, &["GPU-1"])), 100), both);
    }

    /// The seconds at which the causes in force change, for a cause that is there in these seconds.
    fn changes(length: u64, is_there: impl Fn(u64) -> bool) -> Vec<u64> {
        let (start, mut pressure) = (Instant::now(), Pressure::default());
        let mut last = BTreeSet::new();
        let changed = (0..length).filter(|second| {
            let causes = is_there(*second).then_some(Cause::Host);
            let now = start.checked_add(Duration::from_secs(*second)).unwrap();
            let in_force = pressure.look(causes.into_iter().collect(), now);
            std::mem::replace(&mut last, in_force.clone()) != in_force
        });
        changed.collect()
    }

    #[test]
    fn pressure_starts_at_the_fourth_look_and_ends_five_minutes_after_its_cause() {
        assert_eq!(
            changes(1000, |second| (100..200).contains(&second)),
            [103, 499]
        );
        // A burst is no pressure.
        assert!(changes(1000, |second| second % 10 < 3).is_empty());
        assert!(changes(1000, |second| second % 3 == 0).is_empty());
    }

    #[test]
    fn pressure_that_comes_and_goes_changes_nothing_meanwhile() {
        // Ten seconds in each minute, for ten hours.
        let hours = changes(36_000, |second| second < 35_000 && second % 60 < 10);
        assert_eq!(hours, [3, 35_289]);
        // The worst case: it comes back as soon as it has ended.
        let worst = changes(36_000, |second| second % 310 < 5);
        assert!(worst.len() <= 2 * 36_000 / 300 + 1, "{}", worst.len());
    }
}
