//! Cells of a table: texts of a known width on a terminal, bars, amounts, ages.
//! Touches: its arguments.

use super::screen::Screen;
use gpuslice_config::words::units::Bytes;
use unicode_width::UnicodeWidthStr;

/// Returns the columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text that is wider than so many columns, and marks the cut.
pub(crate) fn cut(screen: &Screen, text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mark = if screen.unicode { "…" } else { "~" };
    match most.checked_sub(1) {
        None => String::new(),
        Some(rest) => start(text, rest) + mark,
    }
}

/// Returns the start of a text that takes at most so many columns. Whole texts are measured, because
/// a character can change the width of the one before it (an emoji and its variation selector).
pub(crate) fn start(text: &str, most: usize) -> String {
    let mut kept = String::new();
    for letter in text.chars() {
        let mut longer = kept.clone();
        longer.push(letter);
        if width(&longer) > most {
            break;
        }
        kept = longer;
    }
    kept
}

/// Pads a text with blanks after it.
pub(crate) fn left(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(blanks))
}

/// Pads a text with blanks before it.
pub(crate) fn right(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(width(text));
    format!("{}{text}", " ".repeat(blanks))
}

/// The bar of a slice: how much of its limit is used. It is precise to an eighth of a column where
/// the terminal has such letters.
pub(crate) fn bar(screen: &Screen, used: u64, limit: u64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = share(used, limit, columns.saturating_mul(8));
    if !screen.unicode {
        let full = eighths.saturating_add(4) / 8;
        return filled("#", full) + &filled("-", columns.saturating_sub(full));
    }
    let (full, part) = (eighths / 8, eighths % 8);
    let part = PARTS.get(part).copied().unwrap_or_default();
    let bar = filled("█", full) + part;
    let rest = columns.saturating_sub(width(&bar));
    bar + &filled("░", rest)
}

/// The bar of a card: what slices hold, what else is used, and what is free. A part that is not
/// empty has at least one column.
pub(crate) fn card_bar(
    screen: &Screen,
    in_slices: u64,
    outside: u64,
    total: u64,
    columns: usize,
) -> String {
    let [own, other, free] = match screen.unicode {
        true => ["█", "▒", "░"],
        false => ["#", "+", "-"],
    };
    let cells = |part: u64| match part {
        0 => 0,
        _ => share(part, total, columns).max(1),
    };
    let own_cells = cells(in_slices).min(columns);
    let other_cells = cells(outside).min(columns.saturating_sub(own_cells));
    let rest = columns
        .saturating_sub(own_cells)
        .saturating_sub(other_cells);
    filled(own, own_cells) + &filled(other, other_cells) + &filled(free, rest)
}

fn filled(letter: &str, count: usize) -> String {
    letter.repeat(count)
}

/// Returns `of` times `part / whole`, rounded, and at most `of`.
fn share(part: u64, whole: u64, of: usize) -> usize {
    let (part, whole) = (u128::from(part), u128::from(whole));
    let scaled = part.saturating_mul(of as u128).saturating_add(whole / 2);
    let share = scaled.checked_div(whole).unwrap_or_default();
    usize::try_from(share).unwrap_or(of).min(of)
}

/// Returns the percentage of a limit that is used: `95%`.
pub(crate) fn percent(used: u64, limit: u64) -> String {
    let (used, limit) = (u128::from(used), u128::from(limit));
    match used.saturating_mul(100).checked_div(limit) {
        Some(percent) => format!("{}%", percent.min(999)),
        None => String::new(),
    }
}

/// The unit of an amount and of all amounts beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    bytes: u64,
    name: &'static str,
}

impl Unit {
    /// Returns the unit in which people read this amount.
    pub(crate) fn of(amount: u64) -> Unit {
        let (bytes, name) = match amount {
            gib if gib >= 1 << 30 => (1 << 30, "GiB"),
            mib if mib >= 1 << 20 => (1 << 20, "MiB"),
            kib if kib >= 1 << 10 => (1 << 10, "KiB"),
            _ => (1, "B"),
        };
        Unit { bytes, name }
    }

    /// Returns an amount in this unit, without the unit.
    pub(crate) fn number(self, amount: u64) -> String {
        if self.bytes == 1 {
            return amount.to_string();
        }
        let scaled = u128::from(amount).saturating_mul(100);
        let half = u128::from(self.bytes / 2);
        let hundredths = scaled
            .saturating_add(half)
            .checked_div(self.bytes.into())
            .unwrap_or_default();
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    }

    /// Returns the unit's name.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }
}

/// Returns an amount with its unit.
pub(crate) fn amount(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

/// Returns a duration as people read it: `42s`, `5m12`, `3h04`, `12d03h`.
pub(crate) fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCII: Screen = Screen {
        width: None,
        height: None,
        colour: false,
        unicode: false,
    };
    const UNICODE: Screen = Screen {
        unicode: true,
        ..ASCII
    };
    const GIB: u64 = 1 << 30;

    #[test]
    fn a_wide_letter_takes_two_columns_and_is_never_halved() {
        assert_eq!(width("日本"), 4);
        assert_eq!(cut(&UNICODE, "日本語", 6), "日本語");
        assert_eq!(cut(&UNICODE, "日本語", 5), "日本…");
        assert_eq!(cut(&UNICODE, "日本語", 4), "日…");
        assert_eq!(cut(&ASCII, "abcdef", 4), "abc~");
        assert_eq!(cut(&ASCII, "abcdef", 0), "");
        assert_eq!(left("日", 4) + "|", "日  |");
        assert_eq!(right("7", 3), "  7");
    }

    #[test]
    fn a_bar_is_full_at_the_limit_and_stays_full_beyond_it() {
        assert_eq!(bar(&UNICODE, 6 * GIB, 12 * GIB, 5), "██▌░░");
        assert_eq!(bar(&ASCII, 6 * GIB, 12 * GIB, 4), "##--");
        assert_eq!(bar(&UNICODE, 13 * GIB, 12 * GIB, 3), "███");
        assert_eq!(bar(&UNICODE, 0, 12 * GIB, 3), "░░░");
        assert_eq!(bar(&UNICODE, 1, 0, 3), "░░░");
        for used in 0..=97 {
            assert_eq!(width(&bar(&UNICODE, used, 97, 10)), 10);
            assert_eq!(width(&bar(&ASCII, used, 97, 10)), 10);
        }
    }

    #[test]
    fn a_card_shows_also_a_small_part_and_never_more_than_its_width() {
        assert_eq!(card_bar(&ASCII, 12 * GIB, GIB, 24 * GIB, 10), "#####+----");
        assert_eq!(card_bar(&ASCII, 24 * GIB, 1, 24 * GIB, 4), "####");
        assert_eq!(card_bar(&UNICODE, 1, 1, 24 * GIB, 4), "█▒░░");
    }

    #[test]
    fn amounts_beside_each_other_have_one_unit() {
        let unit = Unit::of(12 * GIB);
        assert_eq!(
            (unit.number(GIB / 4).as_str(), unit.name()),
            ("0.25", "GiB")
        );
        assert_eq!(unit.number(12 * GIB), "12.00");
        assert_eq!(Unit::of(700).number(700), "700");
        assert_eq!(percent(GIB, 3 * GIB), "33%");
        assert_eq!(percent(1, 0), "");
    }

    #[test]
    fn an_age_has_two_units() {
        let shown = [42, 312, 11_040, 1_047_600].map(age);
        assert_eq!(shown, ["42s", "5m12", "3h04", "12d03h"]);
    }
}
