//! The columns of the table of slices, and the width that each has on a screen.
//! Touches: its arguments.

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Gpu,
    Used,
    Percent,
    Bar,
    History,
    Refused,
    Fence,
    User,
    Age,
    Command,
}

impl Column {
    /// Returns the column's heading.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Column::Name => "NAME",
            Column::Gpu => "GPU",
            Column::Used => "USED / LIMIT",
            Column::Percent => "%",
            Column::Bar => "BAR",
            Column::History => "HISTORY",
            Column::Refused => "REFUSED",
            Column::Fence => "FENCE",
            Column::User => "USER",
            Column::Age => "AGE",
            Column::Command => "COMMAND",
        }
    }

    /// Whether the column has numbers, which are aligned at their right.
    pub(super) fn is_right(self) -> bool {
        matches!(
            self,
            Column::Used | Column::Percent | Column::Refused | Column::Age
        )
    }
}

/// The columns in their order on the screen, each with its least width.
const ORDER: [(Column, usize); 11] = [
    (Column::Name, 8),
    (Column::Gpu, 3),
    (Column::Used, 18),
    (Column::Percent, 4),
    (Column::Bar, 6),
    (Column::History, 8),
    (Column::Refused, 7),
    (Column::Fence, 7),
    (Column::User, 6),
    (Column::Age, 6),
    (Column::Command, 10),
];

/// The order in which columns get a place.
const IMPORTANCE: [Column; 11] = [
    Column::Name,
    Column::Used,
    Column::Percent,
    Column::Refused,
    Column::History,
    Column::Bar,
    Column::Age,
    Column::Gpu,
    Column::User,
    Column::Command,
    Column::Fence,
];

/// What is left after all columns have a place widens these, up to a width, in this order.
const WIDENED: [(Column, usize); 6] = [
    (Column::Name, 16),
    (Column::Command, 24),
    (Column::History, 20),
    (Column::Bar, 12),
    (Column::Name, 24),
    (Column::History, 40),
];

/// Returns the columns that a screen of this width shows, each with its width. `longest` is the
/// width of the longest name.
pub(super) fn columns(width: usize, longest: usize, has_gpu: bool) -> Vec<(Column, usize)> {
    let least = |column: Column| {
        let found = ORDER.iter().find(|(one, _)| *one == column);
        found.map_or(0, |(_, least)| *least)
    };
    let mut chosen: Vec<Column> = Vec::new();
    let mut left = width.saturating_add(1);
    for column in IMPORTANCE {
        let taken = least(column).saturating_add(1);
        if (column == Column::Gpu && !has_gpu) || taken > left {
            continue;
        }
        left = left.saturating_sub(taken);
        chosen.push(column);
    }
    let is_chosen = |(column, _): &(Column, usize)| chosen.contains(column);
    let mut shown: Vec<(Column, usize)> = ORDER.into_iter().filter(is_chosen).collect();
    for (column, most) in WIDENED {
        let most = match column {
            Column::Name => most.min(longest),
            _ => most,
        };
        if let Some((_, width)) = shown.iter_mut().find(|(one, _)| *one == column) {
            let more = most.saturating_sub(*width).min(left);
            *width = width.saturating_add(more);
            left = left.saturating_sub(more);
        }
    }
    if let Some((_, width)) = shown.last_mut().filter(|(one, _)| *one == Column::Command) {
        *width = width.saturating_add(left);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_and_the_important_ones_come_first() {
        for width in 40..300 {
            let shown = columns(width, 60, true);
            let gaps = shown.len() - 1;
            let sum: usize = shown.iter().map(|(_, width)| width).sum();
            assert!(sum + gaps <= width, "{width}: {shown:?}");
            let has = |column| shown.iter().any(|(one, _)| *one == column);
            assert!(has(Column::Name) && has(Column::Used) && has(Column::Refused));
        }
        let has = |width, column| {
            columns(width, 8, false)
                .iter()
                .any(|(one, _)| *one == column)
        };
        assert!(has(80, Column::History) && has(80, Column::User) && !has(80, Column::Command));
        assert!(
            ORDER
                .iter()
                .all(|(column, _)| has(120, *column) || *column == Column::Gpu)
        );
    }
}
