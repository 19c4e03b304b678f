//! The line of each GPU: index, name, bar, used and total, outside of slices, left to give.
//! Touches: its arguments.

use super::cells::{self, Unit, card_bar, cut, left, right, width};
use super::screen::{Ink, Screen};
use crate::base::text;
use crate::commands::status::driver::Machine;
use crate::commands::status::model::CardStatus;

/// A layout: the first that fits is used.
#[derive(Clone, Copy, Debug)]
struct Layout {
    bar: usize,
    /// Whether the vendor is left out of the name.
    short_name: bool,
    /// The most columns of the name.
    name: usize,
    /// Whether the words beside the amounts are short.
    short_words: bool,
    outside: bool,
}

const WIDEST: Layout = Layout {
    bar: 20,
    short_name: false,
    name: usize::MAX,
    short_words: false,
    outside: true,
};

const LAYOUTS: [Layout; 10] = {
    let short_name = Layout {
        short_name: true,
        ..WIDEST
    };
    let small_bar = Layout {
        bar: 10,
        ..short_name
    };
    let short_words = Layout {
        short_words: true,
        ..small_bar
    };
    let name = Layout {
        name: 20,
        ..short_words
    };
    let short = Layout { name: 16, ..name };
    let shorter = Layout { name: 12, ..name };
    let shortest = Layout { name: 8, ..name };
    let no_bar = Layout { bar: 0, ..shortest };
    let last = Layout {
        outside: false,
        ..no_bar
    };
    [
        WIDEST,
        short_name,
        small_bar,
        short_words,
        name,
        short,
        shorter,
        shortest,
        no_bar,
        last,
    ]
};

/// The cells of a card's line, before they are aligned.
struct Cells {
    label: String,
    name: String,
    used: String,
    outside: String,
    left: String,
}

/// The lines of all cards, aligned with each other.
pub(super) struct CardLines {
    layout: Layout,
    widths: [usize; 5],
}

impl CardLines {
    pub(super) fn of(cards: &[&CardStatus], screen: &Screen) -> CardLines {
        let lines = |layout: Layout| {
            let mut widths = [0; 5];
            for card in cards {
                let cells = Cells::of(card, layout, screen);
                let all = cells.all();
                for (known, cell) in widths.iter_mut().zip(all) {
                    *known = width(cell).max(*known);
                }
            }
            CardLines { layout, widths }
        };
        let fits = |lines: &CardLines| screen.width.is_none_or(|most| lines.width() <= most);
        let mut all = LAYOUTS.into_iter().map(lines);
        let last = LAYOUTS.last().copied().unwrap_or(WIDEST);
        all.find(fits).unwrap_or_else(|| lines(last))
    }

    fn width(&self) -> usize {
        let bar = Some(self.layout.bar).filter(|bar| *bar > 0);
        let cells = self.widths.iter().copied().filter(|width| *width > 0);
        let columns = cells.chain(bar);
        let sum = columns.fold(0usize, |sum, width| {
            sum.saturating_add(width).saturating_add(2)
        });
        sum.saturating_sub(2)
    }

    pub(super) fn line(&self, card: &CardStatus, screen: &Screen) -> String {
        let cells = Cells::of(card, self.layout, screen);
        let [label, name, used, outside, _] = self.widths;
        let (in_slices, total) = (card.in_slices, card.total.unwrap_or_default());
        let others = card.outside_slices.unwrap_or_default();
        let bar = card_bar(screen, in_slices, others, total, self.layout.bar);
        let given_twice = card.total.is_some_and(|total| card.limits_sum > total);
        let ink = match (card.left_to_give, given_twice) {
            (_, true) => Ink::Yellow,
            _ => Ink::Green,
        };
        let mut parts = vec![
            screen.paint(Ink::Bold, &left(&cells.label, label)),
            screen.paint(Ink::Bold, &left(&cells.name, name)),
        ];
        if self.layout.bar > 0 {
            parts.push(screen.paint(ink, &bar));
        }
        parts.push(right(&cells.used, used));
        if outside > 0 {
            parts.push(right(&cells.outside, outside));
        }
        parts.push(cells.left.clone());
        let line = parts.join("  ");
        match screen.width {
            // A terminal too narrow for the last layout: colours would be cut in the middle.
            Some(most) if self.width() > most => {
                let plain = Screen {
                    colour: false,
                    ..*screen
                };
                cut(
                    screen,
                    self.line_without_limit(card, &plain).trim_end(),
                    most,
                )
            }
            _ => line.trim_end().to_owned(),
        }
    }

    fn line_without_limit(&self, card: &CardStatus, screen: &Screen) -> String {
        let unlimited = Screen {
            width: None,
            ..*screen
        };
        self.line(card, &unlimited)
    }
}

impl Cells {
    fn of(card: &CardStatus, layout: Layout, screen: &Screen) -> Cells {
        let name = text::printable(&card.name);
        let name = match name.strip_prefix("NVIDIA ") {
            Some(short) if layout.short_name => short,
            _ => &name,
        };
        let mut name = cut(screen, name, layout.name);
        if card.machine != Machine::Real {
            name.push_str(match layout.short_words {
                true => " (sim)",
                false => " (simulated)",
            });
        }
        let unit = Unit::of(card.total.or(card.used).unwrap_or_default());
        let number = |amount: Option<u64>| amount.map_or("?".to_owned(), |it| unit.number(it));
        let used = format!(
            "{} / {} {}",
            number(card.used),
            number(card.total),
            unit.name()
        );
        let outside = card.outside_slices.filter(|_| layout.outside);
        let outside = outside.map_or(String::new(), |outside| {
            match (layout.short_words, outside) {
                (true, _) => format!("{} outside", unit.number(outside)),
                (false, _) => format!("{} outside slices", cells::amount(outside)),
            }
        });
        let left = card
            .left_to_give
            .map_or(String::new(), |left| match layout.short_words {
                true => format!("{} left", unit.number(left)),
                false => format!("{} left to give", cells::amount(left)),
            });
        let unified = match (card.unified, layout.short_words) {
            (true, false) => "  (unified memory)",
            _ => "",
        };
        Cells {
            label: format!("GPU {}", card.index),
            name,
            used,
            outside,
            left: left + unified,
        }
    }

    fn all(&self) -> [&str; 5] {
        [
            &self.label,
            &self.name,
            &self.used,
            &self.outside,
            &self.left,
        ]
    }
}
