//! The first line, the last line and the warnings.
//! Touches: its arguments.

use crate::commands::top::app::{App, Page};
use crate::commands::top::look::fit;
use crate::commands::top::sort::By;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use std::time::Instant;

/// Returns the first line: the host, the time and the counts.
pub(super) fn head(app: &App, width: u16, now: Instant) -> Line<'static> {
    let look = app.look;
    let mut left = vec![
        Span::styled("gpuslice top", look.title()),
        Span::raw(format!(
            "  {}  {}  every {}",
            app.host, app.clock, app.interval
        )),
    ];
    if let Some(delay) = app.delay(now) {
        let text = format!("  {} s old", delay.as_secs());
        left.push(Span::styled(text, look.bad()));
    }
    if app.is_paused {
        let style = look.warm().add_modifier(Modifier::REVERSED);
        left.push(Span::raw("  "));
        left.push(Span::styled(" PAUSED ", style));
    }
    let right = counts(app);
    let width_of =
        |spans: &[Span<'_>]| spans.iter().map(Span::width).fold(0, usize::saturating_add);
    let taken = width_of(&left).saturating_add(width_of(&right));
    let between = usize::from(width).saturating_sub(taken);
    if between == 0 {
        return Line::from(left);
    }
    left.push(Span::raw(" ".repeat(between)));
    left.extend(right);
    Line::from(left)
}

fn counts(app: &App) -> Vec<Span<'static>> {
    let Some(rows) = &app.rows else {
        return Vec::new();
    };
    let mut names: Vec<&str> = rows.slices.iter().map(|row| row.key.as_str()).collect();
    names.dedup_by_key(|key| key.rsplit_once(' ').map_or(*key, |(slice, _)| slice));
    let count = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let mut spans = vec![Span::raw(count(names.len(), "slice"))];
    if !rows.warnings.is_empty() {
        spans.push(Span::raw("  "));
        let text = count(rows.warnings.len(), "warning");
        spans.push(Span::styled(text, app.look.bad()));
    }
    spans
}

/// Returns the last line: the keys, or the filter while it is typed.
pub(super) fn foot(app: &App, width: u16) -> Line<'static> {
    let look = app.look;
    if app.is_filtering {
        return Line::from(vec![
            Span::styled("filter: ", look.title()),
            Span::raw(app.filter.clone()),
            Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
            Span::styled("  Enter keeps it, Esc clears it", look.dim()),
        ]);
    }
    let by = app.sort.by.name();
    let letters: String = By::ALL.iter().map(|(_, key, _)| *key).collect();
    let sort = format!("sort: {by}");
    let keys: Vec<(&str, &str)> = match app.page {
        Page::Slices => vec![
            ("q", "quit"),
            ("?", "help"),
            (&letters, &sort),
            ("/", "filter"),
            ("Enter", "processes"),
            ("Space", "pause"),
            ("+-", "interval"),
            ("w", "warnings"),
        ],
        Page::Processes(_) | Page::Warnings => vec![
            ("q", "quit"),
            ("Esc", "back"),
            ("?", "help"),
            ("Space", "pause"),
            ("+-", "interval"),
        ],
    };
    let mut spans = Vec::new();
    let mut taken = 0usize;
    for (key, purpose) in keys {
        let purpose = format!(" {purpose}  ");
        let end = taken
            .saturating_add(key.len())
            .saturating_add(purpose.len());
        if end > usize::from(width).saturating_add(2) {
            break;
        }
        taken = end;
        spans.push(Span::styled(key.to_owned(), look.title()));
        spans.push(Span::raw(purpose));
    }
    Line::from(spans)
}

/// Returns the first warnings. The last line says how many more there are.
pub(super) fn warnings(app: &App, area: Rect) -> Vec<Line<'static>> {
    let (all, most) = (app.warnings(), usize::from(area.height));
    let shown = match all.len() <= most {
        true => all.len(),
        false => most.saturating_sub(1),
    };
    let line = |text: &String| warning(app, text, area.width);
    let mut lines: Vec<Line<'static>> = all.iter().take(shown).map(line).collect();
    let more = all.len().saturating_sub(shown);
    if more > 0 {
        let text = format!("! {more} warnings (w shows them)");
        let text = if shown > 0 {
            text.replace("warnings", "more warnings")
        } else {
            text
        };
        lines.push(Line::styled(text, app.look.bad()));
    }
    lines
}

fn warning(app: &App, text: &str, width: u16) -> Line<'static> {
    let width = usize::from(width).saturating_sub(2);
    Line::from(vec![
        Span::styled("! ", app.look.bad()),
        Span::raw(fit(text, width, app.look)),
    ])
}

/// Returns the line above the page of warnings.
pub(super) fn all_warnings(app: &App) -> Line<'static> {
    let text = match app.warnings().is_empty() {
        true => "No warnings",
        false => "Warnings",
    };
    Line::styled(text, app.look.title())
}

/// Returns the lines of the page of warnings, each warning whole.
pub(super) fn warning_table(app: &App, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width).saturating_sub(2);
    let shown = app.warnings().iter().skip(app.first);
    let lines = shown.flat_map(|text| {
        let mut marks = std::iter::once("! ").chain(std::iter::repeat("  "));
        let lines = wrapped(text, width).into_iter().map(move |line| {
            let mark = marks.next().unwrap_or_default();
            (mark, fit(&line, width, app.look))
        });
        lines.collect::<Vec<_>>()
    });
    let lines = lines.take(usize::from(area.height));
    let line = |(mark, text)| Line::from(vec![Span::styled(mark, app.look.bad()), Span::raw(text)]);
    lines.map(line).collect()
}

/// Breaks a text into lines between its words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else {
            break;
        };
        let needed = Span::raw(line.as_str())
            .width()
            .saturating_add(Span::raw(word).width());
        if line.is_empty() {
            line.push_str(word);
        } else if needed < width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
