//! Shows the GPUs and slices to people: one line for each, and warnings below.
//! Touches: its arguments, the size of the terminal, the clock.
//!
//! Lines fit the terminal. `cards` and `rows` try their layouts in order, from the widest to the
//! narrowest, and take the first that fits. Where standard output is not a terminal, the widest is
//! taken and nothing is cut.

mod cards;
pub(crate) mod cells;
mod groups;
mod rows;
pub(crate) mod screen;

use super::model::SliceStatus;
use super::snapshot::Snapshot;
use super::warnings::Warning;
use cards::CardLines;
use groups::{Group, groups};
use rows::Rows;
use screen::{Ink, Screen};

/// Returns the overview.
pub(super) fn overview(now: &Snapshot, screen: &Screen, with_processes: bool) -> String {
    let mut text = body(now, screen, with_processes).join("\n");
    text.push('\n');
    let warnings = warning_lines(&now.warnings, screen);
    if !warnings.is_empty() {
        text.push('\n');
        text.push_str(&warnings.join("\n"));
        text.push('\n');
    }
    text
}

/// The lines of warnings on a terminal that also shows slices: one in so many of its lines.
const WARNINGS: usize = 3;

/// How to see the lines of the overview that do not fit.
const TOP: &str = "gpuslice top scrolls";

/// Returns the overview, or the details of chosen slices, under a headline with the time. It has at
/// most as many lines as the terminal, each at most as long as the terminal is wide.
pub(super) fn refreshed(
    now: &Snapshot,
    screen: &Screen,
    with_processes: bool,
    details: Option<String>,
) -> String {
    let headline = format!("gpuslice status  {}  every second", clock());
    let mut lines = head(&headline, screen);
    let most = most_lines(screen);
    let room = most.saturating_sub(lines.len());
    let (mut body, mut warnings) = match details {
        // Its warnings are among the details.
        Some(details) => (fitting(&details, screen), Vec::new()),
        None => (
            body(now, screen, with_processes),
            warning_lines(&now.warnings, screen),
        ),
    };
    shorten(&mut warnings, (room / WARNINGS).max(1), TOP, screen);
    if !warnings.is_empty() {
        warnings.insert(0, String::new());
    }
    shorten(&mut body, room.saturating_sub(warnings.len()), TOP, screen);
    lines.append(&mut body);
    lines.append(&mut warnings);
    lines.truncate(most);
    lines.join("\n") + "\n"
}

/// Returns a text under a headline. It has at most as many lines as the terminal, each at most as long
/// as the terminal is wide. `advice`: how to see the lines that do not fit.
pub(crate) fn page(headline: &str, text: &str, advice: &str, screen: &Screen) -> String {
    let mut lines = head(headline, screen);
    let mut body = fitting(text, screen);
    let most = most_lines(screen);
    shorten(&mut body, most.saturating_sub(lines.len()), advice, screen);
    lines.append(&mut body);
    lines.truncate(most);
    lines.join("\n") + "\n"
}

fn head(headline: &str, screen: &Screen) -> Vec<String> {
    let headline = format!("{headline}, ^C ends it");
    let headline = cells::cut(screen, &headline, screen.width.unwrap_or(usize::MAX));
    vec![screen.paint(Ink::Bold, &headline), String::new()]
}

/// The cursor stands below the last line, which must not scroll.
fn most_lines(screen: &Screen) -> usize {
    screen.height.unwrap_or(usize::MAX).saturating_sub(1)
}

fn fitting(text: &str, screen: &Screen) -> Vec<String> {
    let width = screen.width.unwrap_or(usize::MAX);
    let lines = text.lines().map(|line| cells::cut(screen, line, width));
    lines.collect()
}

/// Returns the local time of day.
pub(crate) fn clock() -> String {
    let mut parts = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: a null pointer is allowed.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    // SAFETY: both pointers are valid, and no other thread changes the environment.
    let done = unsafe { libc::localtime_r(&raw const now, parts.as_mut_ptr()) };
    if done.is_null() {
        return String::new();
    }
    // SAFETY: localtime_r has written all of it.
    let parts = unsafe { parts.assume_init() };
    let (hour, minute, second) = (parts.tm_hour, parts.tm_min, parts.tm_sec);
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// Returns the text that says how many lines are missing, in place of the last ones.
fn shorten(lines: &mut Vec<String>, most: usize, advice: &str, screen: &Screen) {
    if lines.len() <= most {
        return;
    }
    let missing = lines.len().saturating_sub(most.saturating_sub(1));
    lines.truncate(most.saturating_sub(1));
    if most > 0 {
        let more = format!("  {missing} more lines ({advice})");
        let more = cells::cut(screen, &more, screen.width.unwrap_or(usize::MAX));
        lines.push(screen.paint(Ink::Dim, &more));
    }
}

fn body(now: &Snapshot, screen: &Screen, with_processes: bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let groups = groups(now);
    let cards: Vec<_> = groups.iter().filter_map(|group| group.card).collect();
    let cards = CardLines::of(&cards, screen);
    let rows = Rows::of(&groups, screen);
    for group in &groups {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(heading(group, &cards, screen));
        if !group.shares.is_empty() {
            lines.push(rows.head(screen));
        }
        for share in &group.shares {
            lines.push(rows.line(share, screen));
            if with_processes {
                lines.extend(rows::processes(share, screen));
            }
        }
    }
    if now.slices.is_empty() {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push("no slices are running".to_owned());
    }
    lines
}

fn heading(group: &Group<'_>, cards: &CardLines, screen: &Screen) -> String {
    match group.card {
        Some(card) => cards.line(card, screen),
        None => {
            let name = cells::cut(screen, &group.name, screen.width.unwrap_or(usize::MAX));
            screen.paint(Ink::Bold, &name)
        }
    }
}

/// Returns the warnings, each on one line that starts with `!`. On a terminal they are wrapped.
fn warning_lines(warnings: &[Warning], screen: &Screen) -> Vec<String> {
    let mut lines = Vec::new();
    for warning in warnings {
        let text = format!("! {}", warning.line());
        for line in wrapped(&text, screen.width.unwrap_or(usize::MAX)) {
            lines.push(screen.paint(Ink::Yellow, &line));
        }
    }
    lines
}

/// Breaks a text between words, so that each line fits; further lines are indented.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let longer = match line.is_empty() {
            true => word.to_owned(),
            false => format!("{line} {word}"),
        };
        if cells::width(&longer) <= most || line.trim().is_empty() {
            line = longer;
        } else {
            lines.push(std::mem::take(&mut line));
            line = format!("  {word}");
        }
    }
    lines.push(line);
    lines
}

/// Returns the names of slices that are shown. Slices of one name are told apart by their process.
fn shown_name(slice: &SliceStatus, all: &[SliceStatus]) -> String {
    let name = match (slice.name.as_str(), slice.pid) {
        ("", Some(pid)) if slice.is_private => return format!("pid {pid}"),
        _ => super::model::shown_name(&slice.name, &slice.file),
    };
    let is_same = |other: &&SliceStatus| other.name == slice.name && other.user == slice.user;
    match (all.iter().filter(is_same).count(), slice.pid) {
        (2.., Some(pid)) => format!("{name} ({pid})"),
        _ => name,
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
