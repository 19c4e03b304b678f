//! The page of one slice: its facts, its history and its processes.
//! Touches: its arguments.

use super::slices::history;
use crate::commands::top::app::App;
use crate::commands::top::look::{age, amount, fit, fit_right, percent, used_of_limit};
use crate::commands::top::rows::{ProcessRow, SliceRow};
use gpuslice_config::words::units::Bytes;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// The number of lines above the table.
pub(super) const ABOUT: u16 = 5;

/// Returns the facts about the slice.
pub(super) fn about(app: &App, area: Rect) -> Vec<Line<'static>> {
    let (look, width) = (app.look, usize::from(area.width));
    let Some(row) = app.opened() else {
        return vec![Line::styled(
            "The slice has ended (Esc goes back)",
            look.warm(),
        )];
    };
    let full = row.used.and_then(|used| percent(used, row.limit?));
    let mut amounts = vec![
        Span::styled(row.name.clone(), look.title()),
        Span::raw(format!("  {}", used_of_limit(row.used, row.limit))),
    ];
    if let Some(full) = full {
        let text = format!("  {full}%");
        amounts.push(Span::styled(text, look.of_percent(Some(full))));
    }
    if row.headroom > 0 {
        let text = format!("  headroom {}", amount(Some(row.headroom)));
        amounts.push(Span::raw(text));
    }
    let pid = row.pid.map_or("-".to_owned(), |pid| pid.to_string());
    let about = format!(
        "GPU {}  fence {}  user {}  pid {pid}  age {}  refused {}",
        row.gpu,
        row.fence,
        row.user,
        age(row.age),
        refusals(row)
    );
    let told = match &row.error {
        Some(error) => Line::styled(fit(error, width, look), look.bad()),
        None => Line::raw(fit(&format!("command {}", row.command), width, look)),
    };
    vec![
        Line::from(amounts),
        Line::raw(fit(&about, width, look)),
        told,
        Line::from(history(look, row, app.history.of(row), width)),
        Line::default(),
    ]
}

fn refusals(row: &SliceRow) -> String {
    match row.refusals {
        None => "?".to_owned(),
        Some(0) => "never".to_owned(),
        Some(count) => {
            let times = match count {
                1 => "once".to_owned(),
                count => format!("{count} times"),
            };
            let worst = Bytes::new(row.worst_short_by);
            format!("{times}, at worst {worst} short")
        }
    }
}

/// The widths of the columns; the last one takes the rest.
const PID: usize = 8;
const NAME: usize = 16;
const AMOUNT: usize = 11;

/// Returns the lines of the table of processes, with its heading.
pub(super) fn table(app: &App, area: Rect) -> Vec<Line<'static>> {
    let Some(row) = app.opened() else {
        return Vec::new();
    };
    let (look, width) = (app.look, usize::from(area.width));
    let line = |cells: [&str; 5]| {
        let [pid, name, used, driver, kinds] = cells;
        let left = format!(
            "{} {} {} {}  ",
            fit_right(pid, PID, look),
            fit(name, NAME, look),
            fit_right(used, AMOUNT, look),
            fit_right(driver, AMOUNT, look)
        );
        let rest = width.saturating_sub(Span::raw(&left).width());
        format!("{left}{}", fit(kinds, rest, look))
    };
    let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let heading = line(["PID", "NAME", "USED", "BY NVML", "BY KIND"]);
    let mut lines = vec![Line::styled(heading, style)];
    let shown = row.processes.iter().skip(app.first).take(app.height);
    lines.extend(shown.map(|one: &ProcessRow| {
        let (pid, used) = (one.pid.to_string(), amount(one.used));
        let driver = one
            .driver_used
            .map_or("-".to_owned(), |used| amount(Some(used)));
        let text = line([&pid, &one.name, &used, &driver, &one.kinds]);
        match one.used {
            Some(_) => Line::raw(text),
            None => Line::styled(text, look.bad()),
        }
    }));
    if row.processes.is_empty() {
        lines.push(Line::styled(
            "No process of the slice holds memory",
            look.dim(),
        ));
    }
    lines
}
