//! The order of the slices in the table.
//! Touches: its arguments.

use super::look::percent;
use super::rows::SliceRow;
use std::cmp::Reverse;

/// A column by which slices can be sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum By {
    /// The memory in use.
    #[default]
    Used,
    /// Its share of the limit.
    Percent,
    /// The name.
    Name,
    /// The refused requests.
    Refusals,
    /// The time since the start.
    Age,
}

impl By {
    /// The columns, each with its key and name.
    pub(super) const ALL: [(By, char, &'static str); 5] = [
        (By::Used, 'u', "used"),
        (By::Percent, 'p', "percent"),
        (By::Name, 'n', "name"),
        (By::Refusals, 'r', "refusals"),
        (By::Age, 'a', "age"),
    ];

    /// Returns the column's name.
    pub(super) fn name(self) -> &'static str {
        let mut all = By::ALL.into_iter();
        all.find(|(by, _, _)| *by == self)
            .map_or("", |(_, _, name)| name)
    }
}

/// An order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort {
    /// The column.
    pub(super) by: By,
    /// Whether the usual order is reversed. Numbers usually start with the largest.
    pub(super) is_reversed: bool,
}

impl Sort {
    /// Returns the order after the key of a column: the same column again reverses it.
    pub(super) fn after(self, by: By) -> Sort {
        Sort {
            by,
            is_reversed: self.by == by && !self.is_reversed,
        }
    }

    /// Sorts the slices. Slices that are equal stay in the order of their names.
    pub(super) fn apply(self, rows: &mut [&SliceRow]) {
        rows.sort_by(|one, other| (&one.name, &one.key).cmp(&(&other.name, &other.key)));
        let share = |row: &SliceRow| percent(row.used?.saturating_mul(100), row.limit?);
        match self.by {
            By::Used => rows.sort_by_key(|row| Reverse(row.used)),
            By::Percent => rows.sort_by_key(|row| Reverse(share(row))),
            By::Name => {}
            By::Refusals => rows.sort_by_key(|row| Reverse(row.refusals)),
            By::Age => rows.sort_by_key(|row| Reverse(row.age)),
        }
        if self.is_reversed {
            rows.reverse();
        }
    }
}
