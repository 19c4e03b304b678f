//! The help: the keys and the meaning of the columns.
//! Touches: its arguments.

use crate::commands::top::app::App;
use crate::commands::top::keys::KEYS;
use crate::commands::top::look::fit;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

const MEANINGS: [&str; 5] = [
    "HISTORY has one character for each refresh, up to the limit;",
    "  a refresh with a refused request stands out.",
    "REFUSED 5 +2: five requests, two of them lately.",
    "A GPU's bar: in slices, then in use outside slices, then free.",
    "TO GIVE: what the GPU has for another slice.",
];

const WIDTH: u16 = 68;

/// Draws the help over the middle of the screen.
pub(super) fn draw(buffer: &mut Buffer, app: &App, area: Rect) {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (key, purpose) in KEYS {
        lines.push(Line::from(vec![
            Span::styled(fit(key, 14, app.look), app.look.title()),
            Span::raw(purpose),
        ]));
    }
    lines.push(Line::default());
    lines.extend(MEANINGS.map(Line::raw));
    let height = u16::try_from(lines.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let (width, height) = (WIDTH.min(area.width), height.min(area.height));
    let place = Rect {
        x: area.width.saturating_sub(width) / 2,
        y: area.height.saturating_sub(height) / 2,
        width,
        height,
    };
    let look = app.look;
    let side = if look.ascii { "|" } else { "│" };
    let inner = usize::from(width).saturating_sub(4);
    let last = height.saturating_sub(1);
    let mut lines = lines.into_iter();
    for (number, row) in place.rows().enumerate() {
        let line = match number {
            0 => edge(app, width, "┌┐", " gpuslice top: keys "),
            number if number == usize::from(last) => edge(app, width, "└┘", ""),
            _ => {
                let mut line = lines.next().unwrap_or_default();
                let missing = inner.saturating_sub(line.width());
                line.spans.insert(0, Span::raw(format!("{side} ")));
                line.push_span(Span::raw(" ".repeat(missing)));
                line.push_span(Span::raw(format!(" {side}")));
                line
            }
        };
        // The page below keeps neither text nor style here.
        buffer.set_style(row, Style::reset());
        buffer.set_line(row.x, row.y, &line, row.width);
    }
}

/// Returns the first or the last line of the frame.
fn edge(app: &App, width: u16, corners: &str, title: &'static str) -> Line<'static> {
    let (mut corners, line) = match app.look.ascii {
        true => ("++".chars(), "-"),
        false => (corners.chars(), "─"),
    };
    let mut corner = || corners.next().map_or(String::new(), |one| one.to_string());
    let (left, right) = (corner(), corner());
    let rest = usize::from(width)
        .saturating_sub(title.len())
        .saturating_sub(2);
    let style = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![
        Span::raw(left),
        Span::styled(title, style),
        Span::raw(format!("{}{right}", line.repeat(rest))),
    ])
}
