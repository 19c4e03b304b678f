//! The table of slices.
//! Touches: its arguments.

use super::columns::{Column, columns};
use crate::commands::top::app::App;
use crate::commands::top::history::Samples;
use crate::commands::top::look::{Look, age, fit, fit_right, percent, shorten, used_of_limit};
use crate::commands::top::rows::SliceRow;
use crate::commands::top::sort::By;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// The text where no slice is shown.
const NONE: &str = "No slices are running. Start one: gpuslice run --memory 8GiB -- COMMAND";

/// Returns the lines of the table, with its heading.
pub(super) fn table(app: &App, area: Rect) -> Vec<Line<'static>> {
    let (width, shown) = (usize::from(area.width), app.shown());
    let longest = shown.iter().map(|row| Span::raw(&row.name).width()).max();
    let cards = app.rows.as_ref().map_or(0, |rows| rows.cards.len());
    let columns = columns(width, longest.unwrap_or(0), cards > 1);
    let mut lines = vec![heading(app, &columns)];
    let whole = match (&app.rows, app.filter.is_empty()) {
        (None, _) => Some("Reading the slices ...".to_owned()),
        (Some(rows), true) if rows.slices.is_empty() => Some(NONE.to_owned()),
        (Some(_), false) if shown.is_empty() => Some(format!(
            "No slice contains \"{}\" (Esc shows all)",
            app.filter
        )),
        _ => None,
    };
    lines.extend(whole.map(|text| Line::styled(fit(&text, width, app.look), app.look.dim())));
    let cursor = app.cursor();
    let rows = shown.iter().enumerate().skip(app.first).take(app.height);
    lines.extend(rows.map(|(place, row)| {
        let line = row_line(app, row, &columns);
        match place == cursor {
            true => selected(line),
            false => line,
        }
    }));
    lines
}

/// Marks the name of the selected slice. The other cells keep their colours.
fn selected(mut line: Line<'static>) -> Line<'static> {
    if let Some(name) = line.spans.first_mut() {
        name.style = name.style.add_modifier(Modifier::REVERSED);
    }
    line
}

fn heading(app: &App, columns: &[(Column, usize)]) -> Line<'static> {
    let look = app.look;
    let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let sorted = match app.sort.by {
        By::Used => Column::Used,
        By::Percent => Column::Percent,
        By::Name => Column::Name,
        By::Refusals => Column::Refused,
        By::Age => Column::Age,
    };
    let falls = (app.sort.by == By::Name) == app.sort.is_reversed;
    let mark = match (falls, look.ascii) {
        (true, false) => "↓",
        (false, false) => "↑",
        (true, true) => "v",
        (false, true) => "^",
    };
    let mut spans = Vec::new();
    for (column, width) in columns {
        let mut text = column.heading().to_owned();
        if *column == sorted {
            text = format!("{text}{mark}");
        }
        let text = match column.is_right() {
            true => fit_right(&text, *width, look),
            false => fit(&text, *width, look),
        };
        spans.push(Span::styled(text, style));
        spans.push(Span::styled(" ", style));
    }
    spans.pop();
    Line::from(spans)
}

fn row_line(app: &App, row: &SliceRow, columns: &[(Column, usize)]) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (column, width) in columns {
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        spans.extend(cell(app, row, *column, *width));
    }
    Line::from(spans)
}

fn cell(app: &App, row: &SliceRow, column: Column, width: usize) -> Vec<Span<'static>> {
    let look = app.look;
    let (part, whole) = (row.used.unwrap_or(0), row.limit.unwrap_or(0));
    let full = row.used.and_then(|used| percent(used, row.limit?));
    let samples = app.history.of(row);
    let (text, style) = match column {
        Column::Name => (
            shorten(&row.name, width, look),
            Style::new().add_modifier(Modifier::BOLD),
        ),
        Column::Gpu => (row.gpu.clone(), Style::new()),
        Column::Used => (used_of_limit(row.used, row.limit), Style::new()),
        Column::Percent => {
            let text = full.map_or("-".to_owned(), |full| format!("{full}%"));
            (text, look.of_percent(full))
        }
        Column::Bar => {
            let parts = [(part, ["█", "#"], look.of_percent(full))];
            return look.bar(width, whole, &parts);
        }
        Column::History => return history(look, row, samples, width),
        Column::Refused => refused(look, row, samples, width),
        Column::Fence => (row.fence.to_owned(), Style::new()),
        Column::User => (row.user.clone(), Style::new()),
        Column::Age => (age(row.age), Style::new()),
        Column::Command => (row.command.clone(), look.dim()),
    };
    let text = match column.is_right() {
        true => fit_right(&text, width, look),
        false => fit(&text, width, look),
    };
    vec![Span::styled(text, style)]
}

/// Returns the history strip of a slice. Without a limit, its largest sample is the whole.
pub(super) fn history(
    look: Look,
    row: &SliceRow,
    samples: Option<&Samples>,
    width: usize,
) -> Vec<Span<'static>> {
    let last = || samples.into_iter().flat_map(|samples| samples.last(width));
    let largest = || last().filter_map(|sample| sample.used).max();
    let whole = row.limit.or_else(largest).unwrap_or(0);
    look.strip(width, whole, last())
}

/// Returns the number of refused requests; new ones are marked: `5 +2`.
fn refused(look: Look, row: &SliceRow, samples: Option<&Samples>, width: usize) -> (String, Style) {
    let new = samples.map_or(0, Samples::new_refusals);
    match (row.refusals, new) {
        (None, _) => ("?".to_owned(), look.dim()),
        (Some(0), _) => ("-".to_owned(), look.dim()),
        (Some(count), 0) => (count.to_string(), look.warm()),
        (Some(count), new) => {
            let both = format!("{count} +{new}");
            let text = if both.len() > width {
                format!("{count}!")
            } else {
                both
            };
            (text, look.bad().add_modifier(Modifier::REVERSED))
        }
    }
}
