//! Colours and characters: what the terminal can show, and how amounts are written on it.
//! Touches: its arguments.

use super::history::Sample;
use crate::commands::status::show::cells::{self, Unit};
use crate::commands::status::show::screen::Screen;
use gpuslice_config::words::units::Bytes;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Only ASCII characters.
    pub(super) ascii: bool,
    /// Colours. Without them, only bold, dim and reversed text is used.
    pub(super) colour: bool,
}

const BLOCKS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII_LEVELS: [&str; 8] = ["_", ".", ":", "-", "=", "+", "*", "#"];

impl Look {
    /// Determines the look from the locale and NO_COLOR.
    pub(super) fn of_stdout() -> Look {
        let screen = Screen::of_stdout();
        Look {
            ascii: !screen.unicode,
            colour: screen.colour,
        }
    }

    fn coloured(self, colour: Color) -> Style {
        match self.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// The style of what needs attention at once.
    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The style of what may need attention soon.
    pub(super) fn warm(self) -> Style {
        self.coloured(Color::Yellow)
    }

    /// The style of what is as it should be.
    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    /// The style of keys and headings.
    pub(super) fn title(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// The style of what matters less.
    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The style of a number of 100.
    pub(super) fn of_percent(self, percent: Option<u64>) -> Style {
        match percent {
            Some(95..) => self.bad(),
            Some(80..) => self.warm(),
            _ => self.good(),
        }
    }

    /// Returns a bar of several parts of `whole`, each with its style and its characters (Unicode,
    /// ASCII). The rest of the bar is empty.
    pub(super) fn bar(
        self,
        width: usize,
        whole: u64,
        parts: &[(u64, [&str; 2], Style)],
    ) -> Vec<Span<'static>> {
        let (mut sum, mut shown) = (0u64, 0usize);
        let mut spans = Vec::new();
        for (part, [unicode, ascii], style) in parts {
            sum = sum.saturating_add(*part);
            let end = share(sum, whole, width).min(width);
            // A part that is not zero is visible.
            let end = match *part {
                0 => end,
                _ => end.max(shown.saturating_add(1)).min(width),
            };
            let character = if self.ascii { ascii } else { unicode };
            let cells = end.saturating_sub(shown);
            spans.push(Span::styled(character.repeat(cells), *style));
            shown = shown.saturating_add(cells);
        }
        let empty = if self.ascii { "-" } else { "░" };
        let rest = empty.repeat(width.saturating_sub(shown));
        spans.push(Span::styled(rest, self.dim()));
        spans
    }

    /// Returns a strip of samples, `width` characters wide, the newest at the right. A sample in
    /// which a request was refused stands out.
    pub(super) fn strip(
        self,
        width: usize,
        whole: u64,
        samples: impl Iterator<Item = Sample>,
    ) -> Vec<Span<'static>> {
        let levels = if self.ascii { ASCII_LEVELS } else { BLOCKS };
        let mut spans: Vec<Span<'static>> =
            samples.map(|one| self.level(whole, one, levels)).collect();
        let missing = width.saturating_sub(spans.len());
        spans.insert(0, Span::raw(" ".repeat(missing)));
        spans
    }

    fn level(self, whole: u64, sample: Sample, levels: [&'static str; 8]) -> Span<'static> {
        let Some(used) = sample.used else {
            return Span::raw(" ");
        };
        let top = levels.len().saturating_sub(1);
        let character = levels.get(share(used, whole, top).min(top)).unwrap_or(&" ");
        match sample.refused {
            0 => Span::styled(*character, self.of_percent(percent(used, whole))),
            _ if self.colour => Span::styled(*character, self.bad()),
            _ => Span::styled(*character, Style::new().add_modifier(Modifier::REVERSED)),
        }
    }
}

/// Returns the part of `width` that `part` has of `whole`, rounded.
fn share(part: u64, whole: u64, width: usize) -> usize {
    let scaled = u128::from(part).saturating_mul(width as u128);
    let half = u128::from(whole) >> 1;
    let cells = scaled.saturating_add(half).checked_div(u128::from(whole));
    cells
        .and_then(|cells| usize::try_from(cells).ok())
        .unwrap_or(0)
}

/// Returns the part of `whole` in percent, rounded down: 100 only if it is full.
pub(super) fn percent(part: u64, whole: u64) -> Option<u64> {
    let hundredfold = u128::from(part).saturating_mul(100);
    let percent = hundredfold.checked_div(u128::from(whole))?;
    u64::try_from(percent).ok()
}

/// Formats the memory in use and its limit: `11.38 / 12.00 GiB`.
pub(super) fn used_of_limit(used: Option<u64>, limit: Option<u64>) -> String {
    let unit = Unit::of(limit.or(used).unwrap_or_default());
    let number = |bytes: Option<u64>, unknown: &str| {
        bytes.map_or(unknown.to_owned(), |bytes| unit.number(bytes))
    };
    let (used, limit) = (number(used, "?"), number(limit, "none"));
    format!("{used} / {limit} {}", unit.name())
}

/// Formats an amount that may be unknown.
pub(super) fn amount(bytes: Option<u64>) -> String {
    bytes.map_or("?".to_owned(), |bytes| Bytes::new(bytes).to_string())
}

/// Formats an age that may be unknown.
pub(super) fn age(seconds: Option<u64>) -> String {
    seconds.map_or("-".to_owned(), cells::age)
}

/// Cuts a text to a width, with a mark where something is missing, and pads it to that width.
pub(super) fn fit(text: &str, width: usize, look: Look) -> String {
    let text = match look.ascii {
        true => &text.replace(|letter: char| !letter.is_ascii(), "?"),
        false => text,
    };
    match width.checked_sub(1) {
        Some(rest) if cells::width(text) > width => {
            let mark = if look.ascii { "~" } else { "…" };
            cells::left(&cells::start(text, rest), rest) + mark
        }
        None => String::new(),
        Some(_) => cells::left(text, width),
    }
}

/// Cuts a name in its middle, because the names of slices often differ at their ends.
pub(super) fn shorten(name: &str, width: usize, look: Look) -> String {
    if Span::raw(name).width() <= width || width < 8 {
        return name.to_owned();
    }
    let start = fit(name, width.saturating_add(1) / 2, look);
    let left = width.saturating_sub(Span::raw(&start).width());
    let mut end = String::new();
    for letter in name.chars().rev() {
        let longer = format!("{letter}{end}");
        if Span::raw(&longer).width() > left {
            break;
        }
        end = longer;
    }
    format!("{start}{end}")
}

/// Pads a text at its left.
pub(super) fn fit_right(text: &str, width: usize, look: Look) -> String {
    let text = fit(text, width, look);
    let text = text.trim_end();
    let missing = width.saturating_sub(Span::raw(text).width());
    format!("{}{text}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Look = Look {
        ascii: false,
        colour: false,
    };
    const ASCII: Look = Look {
        ascii: true,
        colour: false,
    };

    fn text(spans: &[Span<'_>]) -> String {
        spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn a_bar_shows_each_part_that_is_not_zero() {
        let parts = [(1, ["█", "#"], Style::new()), (1, ["▒", "+"], Style::new())];
        assert_eq!(text(&PLAIN.bar(10, 1000, &parts)), "█▒░░░░░░░░");
        assert_eq!(text(&ASCII.bar(4, 2, &parts)), "##++");
        assert_eq!(text(&ASCII.bar(4, 0, &[])), "----");
        assert_eq!(
            text(&ASCII.bar(4, 1, &[(9, ["█", "#"], Style::new())])),
            "####"
        );
    }

    #[test]
    fn a_strip_ends_with_the_newest_sample() {
        let samples = [Some(0), None, Some(50), Some(100)].map(|used| Sample { used, refused: 0 });
        assert_eq!(text(&PLAIN.strip(6, 100, samples.into_iter())), "  ▁ ▅█");
        assert_eq!(text(&ASCII.strip(6, 100, samples.into_iter())), "  _ =#");
    }

    #[test]
    fn a_long_name_keeps_its_start_and_its_end() {
        assert_eq!(shorten("llama-70b-replica-12", 12, PLAIN), "llama…ica-12");
        assert_eq!(shorten("llama", 12, PLAIN), "llama");
        assert_eq!(
            shorten("日本語モデル-日本語モデル", 12, PLAIN),
            "日本 …モデル"
        );
    }

    #[test]
    fn amounts_and_ages_are_short() {
        let gib = |count: u64| Some(count << 30);
        assert_eq!(used_of_limit(gib(3), gib(12)), "3.00 / 12.00 GiB");
        assert_eq!(used_of_limit(None, gib(12)), "? / 12.00 GiB");
        assert_eq!(used_of_limit(gib(3), None), "3.00 / none GiB");
        assert_eq!(used_of_limit(Some(1 << 20), gib(1)), "0.00 / 1.00 GiB");
        assert_eq!([Some(59), None].map(age), ["59s", "-"]);
        assert_eq!(percent(999, 1000), Some(99));
        assert_eq!(percent(1, 0), None);
    }

    /// A variation selector makes the character before it wider.
    #[test]
    fn an_emoji_is_not_cut_in_two() {
        let look = Look {
            ascii: false,
            colour: true,
        };
        assert_eq!(fit("🕯\u{fe0f}", 2, look), "🕯\u{fe0f}");
        assert_eq!(fit("🕯\u{fe0f}x", 3, look), "🕯\u{fe0f}x");
        assert_eq!(fit("ab🕯\u{fe0f}x", 4, look), "ab🕯…");
        assert_eq!(fit("👩\u{200d}🔬ab", 4, look), "👩\u{200d}🔬ab");
    }

    proptest! {
        #[test]
        fn a_fitted_text_has_exactly_its_width(name in "\\PC{0,24}", width in 0usize..20, ascii: bool) {
            let look = Look { ascii, colour: true };
            prop_assert_eq!(Span::raw(fit(&name, width, look)).width(), width);
            prop_assert_eq!(Span::raw(fit_right(&name, width, look)).width(), width);
            prop_assert!(!ascii || fit(&name, width, look).is_ascii());
        }

        #[test]
        fn a_bar_has_exactly_its_width(width in 0usize..50, whole: u64, one: u64, two: u64) {
            let parts = [(one, ["█", "#"], Style::new()), (two, ["▒", "+"], Style::new())];
            prop_assert_eq!(text(&ASCII.bar(width, whole, &parts)).len(), width);
        }
    }
}
