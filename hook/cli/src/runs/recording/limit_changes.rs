//! The limits of a run over time, as `gpuslice resize` has changed them.
//! Touches: its arguments.

use super::RunStart;
use serde::{Deserialize, Serialize};

/// The most changes that are kept. A run that is resized all the time keeps every second one.
const MOST: usize = 512;

/// The limits from one time on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitChange {
    /// The milliseconds since the run started.
    pub(crate) at: u64,
    /// The limit of each device.
    pub(crate) limits: Vec<u64>,
}

impl LimitChange {
    /// The line of a change in a history file.
    #[must_use]
    pub(crate) fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// Reads a change's line; None if it is not the line of a change with so many devices.
    #[must_use]
    pub(crate) fn read(line: &str, devices: usize) -> Option<LimitChange> {
        let change: LimitChange = serde_json::from_str(line).ok()?;
        (change.limits.len() == devices).then_some(change)
    }
}

/// The changes, in the order of time. A run that was not resized has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitChanges(Vec<LimitChange>);

impl LimitChanges {
    /// The changes.
    #[must_use]
    pub(crate) fn all(&self) -> &[LimitChange] {
        &self.0
    }

    /// Adds what has changed at a time, and returns it. The first change follows one for the start.
    pub(crate) fn add(&mut self, at: u64, before: Vec<u64>, after: Vec<u64>) -> Vec<LimitChange> {
        if before == after {
            return Vec::new();
        }
        let start = LimitChange {
            at: 0,
            limits: before,
        };
        let start = Some(start).filter(|_| self.0.is_empty());
        let change = LimitChange { at, limits: after };
        let changes: Vec<LimitChange> = start.into_iter().chain([change]).collect();
        changes.iter().for_each(|change| self.push(change.clone()));
        changes
    }

    /// Adds a change. The first one is the start, with the limits at the start.
    pub(crate) fn push(&mut self, change: LimitChange) {
        self.0.push(change);
        if self.0.len() <= MOST {
            return;
        }
        let last = self.0.pop();
        let mut place = 0usize;
        self.0.retain(|_| {
            place = place.wrapping_add(1);
            place % 2 == 1
        });
        self.0.extend(last);
    }
}

/// The limits of a run's devices.
#[must_use]
pub(crate) fn limits_of(run: &RunStart) -> Vec<u64> {
    run.devices.iter().map(|device| device.limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: u64) -> LimitChange {
        LimitChange {
            at,
            limits: vec![at, 1],
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = change(7).line();
        assert_eq!(line, "{\"at\":7,\"limits\":[7,1]}\n");
        assert_eq!(LimitChange::read(&line, 2), Some(change(7)));
        assert_eq!(LimitChange::read(&line, 1), None);
        assert_eq!(LimitChange::read("[7,1,0]", 2), None);
    }

    #[test]
    fn of_many_changes_the_first_and_the_last_are_kept() {
        let mut changes = LimitChanges::default();
        (0..10_000).for_each(|at| changes.push(change(at)));
        assert!(changes.all().len() <= MOST);
        assert_eq!(changes.all().first(), Some(&change(0)));
        assert_eq!(changes.all().last(), Some(&change(9_999)));
        assert!(changes.all().is_sorted_by_key(|change| change.at));
    }
}
