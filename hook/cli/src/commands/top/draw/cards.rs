//! One line for each GPU: its bar, and its memory in slices, outside slices and left to give.
//! Touches: its arguments.

use crate::commands::top::app::App;
use crate::commands::top::look::{amount, fit, fit_right};
use crate::commands::top::rows::CardRow;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// The width of an amount: `1023.99 GiB`.
const AMOUNT: usize = 10;
/// The least and the greatest width of a bar.
const BAR: (usize, usize) = (8, 60);

/// The width of everything but the label, with the narrowest bar.
const LEAST: usize = 67;

/// Returns the lines of the GPUs. The last line says how many more there are.
pub(super) fn cards(app: &App, area: Rect) -> Vec<Line<'static>> {
    let all = app.rows.as_ref().map_or(&[][..], |rows| &rows.cards);
    let most = usize::from(area.height);
    let shown = match all.len() <= most {
        true => all.len(),
        false => most.saturating_sub(1),
    };
    let longest = all.iter().map(|card| Span::raw(&card.label).width()).max();
    let width = usize::from(area.width);
    let label = longest.unwrap_or(0).min(width.saturating_sub(LEAST));
    let line = |card: &CardRow| card_line(app, card, label, width);
    let mut lines: Vec<Line<'static>> = all.iter().take(shown).map(line).collect();
    let more = all.len().saturating_sub(shown);
    if more > 0 {
        lines.push(Line::styled(
            format!("    and {more} more GPUs"),
            app.look.dim(),
        ));
    }
    lines
}

fn card_line(app: &App, card: &CardRow, label: usize, width: usize) -> Line<'static> {
    let look = app.look;
    let number = |bytes: Option<u64>| fit_right(&amount(bytes), AMOUNT, look);
    let mut facts = vec![
        Span::styled(number(Some(card.in_slices)), look.good()),
        Span::styled(" slices", look.dim()),
        Span::styled(number(card.outside), look.warm()),
        Span::styled(" outside", look.dim()),
        Span::raw(number(card.left_to_give)),
        Span::styled(" to give", look.dim()),
    ];
    let taken = |facts: &[Span<'_>]| {
        let widths = facts.iter().map(Span::width);
        widths.fold(label.saturating_add(6), usize::saturating_add)
    };
    let with_total = taken(&facts).saturating_add(AMOUNT).saturating_add(3);
    if with_total.saturating_add(BAR.0) <= width {
        facts.push(Span::styled(" of", look.dim()));
        facts.push(Span::raw(number(card.total)));
    }
    let bar = width.saturating_sub(taken(&facts)).min(BAR.1);
    let mut spans = vec![
        Span::styled("GPU ", look.title()),
        Span::styled(fit(&card.label, label, look), look.title()),
    ];
    if let Some(total) = card.total.filter(|_| bar >= BAR.0) {
        let parts = [
            (card.in_slices, ["█", "#"], look.good()),
            (card.outside.unwrap_or(0), ["▒", "+"], look.warm()),
        ];
        spans.push(Span::raw(" "));
        spans.extend(look.bar(bar, total, &parts));
    }
    spans.push(Span::raw(" "));
    spans.extend(facts);
    Line::from(spans)
}
