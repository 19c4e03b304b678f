//! Draws the state on the screen.
//! Touches: the frame.
//! Law: a drawing depends on the state and the frame's size alone.

mod cards;
mod columns;
mod help;
mod lines;
mod processes;
mod slices;

use super::app::{App, Page};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use std::time::Instant;

/// The smallest screen on which something can be drawn.
const SMALLEST: (u16, u16) = (40, 8);

/// The parts of the screen, from top to bottom.
struct Areas {
    head: Rect,
    cards: Rect,
    /// The lines above the table that say what it shows.
    about: Rect,
    table: Rect,
    warnings: Rect,
    foot: Rect,
}

impl Areas {
    fn of(app: &App, area: Rect) -> Areas {
        let is_on_slices = app.page == Page::Slices;
        let height = |lines: usize, most: u16| u16::try_from(lines).unwrap_or(most).min(most);
        let cards = app.rows.as_ref().map_or(0, |rows| rows.cards.len());
        let cards = match is_on_slices {
            true => height(cards, (area.height / 3).max(1)),
            false => 0,
        };
        let about = match app.page {
            Page::Slices => 0,
            Page::Processes(_) => processes::ABOUT,
            Page::Warnings => 1,
        };
        let warnings = match app.page {
            Page::Warnings => 0,
            _ => height(app.warnings().len(), (area.height / 8).clamp(1, 3)),
        };
        let parts = [
            Constraint::Length(1),
            Constraint::Length(cards),
            Constraint::Length(about),
            Constraint::Fill(1),
            Constraint::Length(warnings),
            Constraint::Length(1),
        ];
        let [head, cards, about, table, warnings, foot] = Layout::vertical(parts).areas(area);
        Areas {
            head,
            cards,
            about,
            table,
            warnings,
            foot,
        }
    }
}

/// Returns the number of lines that the table has on a screen of this size, without its heading.
pub(super) fn table_height(app: &App, area: Rect) -> usize {
    let heading = u16::from(app.page != Page::Warnings);
    let table = Areas::of(app, area).table;
    usize::from(table.height.saturating_sub(heading))
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, now: Instant) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    let (width, height) = SMALLEST;
    if area.width < width || area.height < height {
        let text = format!("gpuslice top needs {width} x {height} characters");
        put(buffer, area, 0, vec![Line::raw(text)]);
        return;
    }
    let areas = Areas::of(app, area);
    put(
        buffer,
        areas.head,
        0,
        vec![lines::head(app, area.width, now)],
    );
    put(buffer, areas.cards, 0, cards::cards(app, areas.cards));
    put(
        buffer,
        areas.warnings,
        0,
        lines::warnings(app, areas.warnings),
    );
    put(buffer, areas.foot, 0, vec![lines::foot(app, area.width)]);
    let table = match app.page {
        Page::Slices => slices::table(app, areas.table),
        Page::Processes(_) => {
            put(buffer, areas.about, 0, processes::about(app, areas.about));
            processes::table(app, areas.table)
        }
        Page::Warnings => {
            put(buffer, areas.about, 0, vec![lines::all_warnings(app)]);
            lines::warning_table(app, areas.table)
        }
    };
    put(buffer, areas.table, 0, table);
    if app.has_help {
        help::draw(buffer, app, area);
    }
}

/// Puts lines into a part of the screen, from one of its lines on.
fn put(buffer: &mut Buffer, area: Rect, from: u16, lines: Vec<Line<'static>>) {
    let places = area.rows().skip(usize::from(from));
    for (place, line) in places.zip(lines) {
        buffer.set_line(place.x, place.y, &line, place.width);
    }
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
