//! Keeps the last samples of each slice, for its history strip and its new refusals.
//! Touches: its arguments.

use super::rows::{Rows, SliceRow};
use std::collections::{BTreeMap, VecDeque};

/// The most samples that are kept: more than a wide terminal can show.
const KEPT: usize = 512;
/// The number of refreshes for which a refusal is marked as new.
const NEW: usize = 60;

/// One refresh of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// The memory in use.
    pub(super) used: Option<u64>,
    /// The requests refused since the sample before.
    pub(super) refused: u64,
}

/// The samples of one slice, the newest last.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    samples: VecDeque<Sample>,
    refusals: Option<u64>,
}

impl Samples {
    /// Returns the last `count` samples, the newest last.
    pub(super) fn last(&self, count: usize) -> impl Iterator<Item = Sample> + '_ {
        let before = self.samples.len().saturating_sub(count);
        self.samples.iter().skip(before).copied()
    }

    /// Returns the number of requests refused recently.
    pub(super) fn new_refusals(&self) -> u64 {
        let refused = self.last(NEW).map(|sample| sample.refused);
        refused.fold(0, u64::saturating_add)
    }

    fn add(&mut self, row: &SliceRow) {
        let before = self.refusals.or(row.refusals);
        let refused = row
            .refusals
            .zip(before)
            .map_or(0, |(now, before)| now.saturating_sub(before));
        self.refusals = row.refusals.or(self.refusals);
        if self.samples.len() >= KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            used: row.used,
            refused,
        });
    }
}

/// The samples of every slice.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    slices: BTreeMap<String, Samples>,
}

impl History {
    /// Adds a refresh, and forgets the slices that have ended.
    pub(super) fn add(&mut self, rows: &Rows) {
        let mut before = std::mem::take(&mut self.slices);
        for row in &rows.slices {
            let mut samples = before.remove(&row.key).unwrap_or_default();
            samples.add(row);
            self.slices.insert(row.key.clone(), samples);
        }
    }

    /// Returns the samples of a slice.
    pub(super) fn of(&self, row: &SliceRow) -> Option<&Samples> {
        self.slices.get(&row.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(refusals: u64) -> Rows {
        let row = SliceRow {
            key: "one".to_owned(),
            used: Some(refusals),
            refusals: Some(refusals),
            ..SliceRow::default()
        };
        Rows {
            slices: vec![row],
            ..Rows::default()
        }
    }

    #[test]
    fn only_refusals_after_the_first_refresh_are_new_and_only_for_a_while() {
        let mut history = History::default();
        let new = |history: &History| history.of(&rows(0).slices[0]).unwrap().new_refusals();
        history.add(&rows(3));
        assert_eq!(new(&history), 0);
        history.add(&rows(5));
        history.add(&rows(6));
        assert_eq!(new(&history), 3);
        for _ in 0..NEW {
            history.add(&rows(6));
        }
        assert_eq!(new(&history), 0);
    }

    #[test]
    fn samples_are_bounded_and_end_with_the_slice() {
        let mut history = History::default();
        for count in 0..2000 {
            history.add(&rows(count));
        }
        let samples = history.of(&rows(0).slices[0]).unwrap();
        assert_eq!(samples.last(usize::MAX).count(), KEPT);
        assert_eq!(samples.last(1).next().unwrap().used, Some(1999));
        history.add(&Rows::default());
        assert!(history.of(&rows(0).slices[0]).is_none());
    }
}
