//! Keeps earlier readings, from which growth rates and the plot are calculated.
//! Touches: its arguments.

use super::gather::{Growth, ProcessReport, Report};
use super::parts::{PARTS, parts};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The period over which growth is measured.
const WINDOW: Duration = Duration::from_secs(60);

/// The most moments in a plot. If there are more, every second one is dropped.
const MOMENTS: usize = 2000;

/// A process at one moment.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Duration,
    device: Option<u64>,
    host: Option<u64>,
    kept: Option<u64>,
}

/// All slices together at one moment, by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// The time since the first moment.
    pub(super) at: Duration,
    /// The bytes of each part.
    pub(super) parts: [u64; PARTS.len()],
}

/// The earlier readings.
#[derive(Debug)]
pub(super) struct History {
    processes: BTreeMap<u32, VecDeque<Seen>>,
    /// The moments of the plot.
    pub(super) moments: Vec<Moment>,
    /// The plot keeps every n-th moment; this is n.
    every: usize,
    skipped: usize,
}

impl History {
    /// Creates an empty history.
    pub(super) fn new() -> History {
        History {
            processes: BTreeMap::new(),
            moments: Vec::new(),
            every: 1,
            skipped: 0,
        }
    }

    /// Records a report, and adds the growth rates of its processes to it.
    pub(super) fn add(&mut self, at: Duration, report: &mut Report) {
        let here: Vec<u32> = report
            .slices
            .iter()
            .flat_map(|slice| slice.processes.iter().map(|one| one.pid))
            .collect();
        self.processes.retain(|pid, _| here.contains(pid));
        for one in report
            .slices
            .iter_mut()
            .flat_map(|slice| &mut slice.processes)
        {
            one.growth_per_minute = self.grown(at, one);
        }
        self.skipped = self.skipped.saturating_add(1);
        if self.skipped >= self.every {
            self.skipped = 0;
            let parts = parts(report);
            self.moments.push(Moment { at, parts });
        }
        if self.moments.len() >= MOMENTS {
            let mut keep = false;
            self.moments.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = self.every.saturating_mul(2);
        }
    }

    fn grown(&mut self, at: Duration, one: &ProcessReport) -> Option<Growth> {
        let now = Seen {
            at,
            device: one.on_device(),
            host: one.on_host(),
            kept: one.host.and_then(|host| host.kept),
        };
        let seen = self.processes.entry(one.pid).or_default();
        seen.push_back(now);
        while seen
            .front()
            .is_some_and(|first| at.saturating_sub(first.at) > WINDOW)
        {
            seen.pop_front();
        }
        let first = seen.front()?;
        let over = at.saturating_sub(first.at);
        let milliseconds = i128::try_from(over.as_millis()).ok().filter(|it| *it > 0)?;
        let speed = |now: u64, then: u64| {
            let grown = i128::from(now).saturating_sub(i128::from(then));
            let minute = grown.saturating_mul(60_000).checked_div(milliseconds);
            i64::try_from(minute.unwrap_or(0)).unwrap_or(i64::MAX)
        };
        let grown = |now: Option<u64>, then: Option<u64>| {
            let both = now.zip(then);
            both.map(|(now, then)| speed(now, then))
        };
        Some(Growth {
            device: grown(now.device, first.device),
            host: grown(now.host, first.host),
            kept: grown(now.kept, first.kept),
            over_seconds: over.as_secs(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::report::gather::SliceReport;
    use crate::commands::report::host::HostUse;

    fn report(live: u64, kept: u64) -> Report {
        let host = HostUse {
            live,
            kept: Some(kept),
            ..HostUse::default()
        };
        let one = ProcessReport {
            pid: 7,
            host: Some(host),
            ..ProcessReport::default()
        };
        Report {
            slices: vec![SliceReport {
                processes: vec![one],
                ..SliceReport::default()
            }],
            machine: None,
        }
    }

    fn growth(report: &Report) -> Option<Growth> {
        report.slices[0].processes[0].growth_per_minute
    }

    #[test]
    fn growth_is_measured_over_the_last_minute() {
        let mut history = History::new();
        let mut add = |seconds: u64, live: u64, kept: u64| {
            let mut report = report(live, kept);
            history.add(Duration::from_secs(seconds), &mut report);
            growth(&report)
        };
        assert_eq!(add(0, 100, 50), None);
        let expected = |host, kept, over_seconds| Growth {
            device: None,
            host: Some(host),
            kept: Some(kept),
            over_seconds,
        };
        assert_eq!(add(30, 130, 40), Some(expected(40, -20, 30)));
        assert_eq!(add(60, 100, 50), Some(expected(0, 0, 60)));
        // The first reading is older than a minute by now.
        assert_eq!(add(90, 160, 40), Some(expected(30, 0, 60)));
    }

    #[test]
    fn a_process_that_is_gone_is_forgotten() {
        let mut history = History::new();
        history.add(Duration::ZERO, &mut report(1, 1));
        history.add(Duration::from_secs(1), &mut Report::default());
        let mut again = report(9, 9);
        history.add(Duration::from_secs(2), &mut again);
        assert_eq!(growth(&again), None);
    }

    #[test]
    fn a_long_watch_keeps_a_bounded_number_of_moments_from_first_to_last() {
        let mut history = History::new();
        for second in 0..20_000u64 {
            history.add(Duration::from_secs(second), &mut Report::default());
        }
        assert!(history.moments.len() < MOMENTS);
        let last = history.moments.last().unwrap().at.as_secs();
        assert!(last > 19_000, "{last}");
    }
}
