//! The state of `gpuslice top`: what is shown, and how events change it.
//! Touches: its arguments.
//! Law: no input or output happens here. Tests drive the state with events alone.

use super::history::History;
use super::interval::Interval;
use super::look::Look;
use super::rows::{Rows, SliceRow};
use super::sort::Sort;
use std::time::{Duration, Instant};

/// The page that fills the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    /// The GPUs and the table of slices.
    #[default]
    Slices,
    /// The processes of the slice with this key.
    Processes(String),
    /// All warnings.
    Warnings,
}

/// What the caller has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing but drawing.
    None,
    /// End the program.
    Quit,
    /// Stop the program, as the shell's job control asks for.
    Suspend,
    /// Refresh with this interval; None while paused.
    Refresh(Option<Duration>),
}

/// The state.
#[derive(Clone, Debug)]
pub(super) struct App {
    /// The terminal's abilities.
    pub(super) look: Look,
    /// The host's name.
    pub(super) host: String,
    /// The time of day, as text.
    pub(super) clock: String,
    /// The interval between refreshes.
    pub(super) interval: Interval,
    /// Whether refreshes are paused.
    pub(super) is_paused: bool,
    /// The last refresh; None before the first.
    pub(super) rows: Option<Rows>,
    /// The time of the last refresh.
    pub(super) refreshed: Option<Instant>,
    /// Samples of the slices.
    pub(super) history: History,
    /// The page.
    pub(super) page: Page,
    /// Whether the help covers the page.
    pub(super) has_help: bool,
    /// The order of the table.
    pub(super) sort: Sort,
    /// Only slices that contain this text are shown.
    pub(super) filter: String,
    /// Whether keys go into the filter.
    pub(super) is_filtering: bool,
    /// The key of the selected slice; None until the selection is moved. It then is the first line.
    pub(super) selected: Option<String>,
    /// The first line that is shown of a table longer than the screen.
    pub(super) first: usize,
    /// The number of lines that the table has on the screen.
    pub(super) height: usize,
}

impl App {
    /// Creates the state before the first refresh.
    pub(super) fn new(look: Look, host: String, interval: Interval) -> App {
        App {
            look,
            host,
            clock: String::new(),
            interval,
            is_paused: false,
            rows: None,
            refreshed: None,
            history: History::default(),
            page: Page::default(),
            has_help: false,
            sort: Sort::default(),
            filter: String::new(),
            is_filtering: false,
            selected: None,
            first: 0,
            height: 1,
        }
    }

    /// Takes the rows of a refresh. A paused display keeps what it shows.
    pub(super) fn refresh(&mut self, rows: Rows, now: Instant) {
        self.refreshed = Some(now);
        if self.is_paused && self.rows.is_some() {
            return;
        }
        self.history.add(&rows);
        self.rows = Some(rows);
        self.settle();
    }

    /// Returns the age of the last refresh if it is late: the driver or the machine is slow.
    pub(super) fn delay(&self, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.refreshed?);
        let patience = self
            .interval
            .duration()
            .saturating_add(Duration::from_secs(2));
        Some(age).filter(|age| *age > patience && !self.is_paused)
    }

    /// Takes the height that the table has on the screen.
    pub(super) fn resize(&mut self, height: usize) {
        self.height = height.max(1);
        self.settle();
    }

    /// Returns the slices that the filter leaves, in their order.
    pub(super) fn shown(&self) -> Vec<&SliceRow> {
        let all = self.rows.iter().flat_map(|rows| &rows.slices);
        let mut shown: Vec<&SliceRow> = all.filter(|row| self.is_match(row)).collect();
        self.sort.apply(&mut shown);
        shown
    }

    /// Returns the slice whose processes are shown; None if it has ended.
    pub(super) fn opened(&self) -> Option<&SliceRow> {
        let Page::Processes(key) = &self.page else {
            return None;
        };
        self.rows
            .as_ref()?
            .slices
            .iter()
            .find(|row| row.key == *key)
    }

    /// Returns the warnings.
    pub(super) fn warnings(&self) -> &[String] {
        self.rows.as_ref().map_or(&[], |rows| &rows.warnings)
    }

    fn is_match(&self, row: &SliceRow) -> bool {
        let wanted = self.filter.to_lowercase();
        let pid = row.pid.map(|pid| pid.to_string()).unwrap_or_default();
        [&row.name, &row.user, &row.command, &pid]
            .iter()
            .any(|text| text.to_lowercase().contains(&wanted))
    }

    /// Returns the place of the selected slice in the table.
    pub(super) fn cursor(&self) -> usize {
        let mut shown = self.shown().into_iter();
        let selected = self.selected.as_ref();
        shown
            .position(|row| Some(&row.key) == selected)
            .unwrap_or(0)
    }

    /// Returns the number of lines of the page's table.
    fn lines(&self) -> usize {
        match &self.page {
            Page::Slices => self.shown().len(),
            Page::Processes(_) => self.opened().map_or(0, |row| row.processes.len()),
            Page::Warnings => self.warnings().len(),
        }
    }

    /// Moves the selection, or the lines of a page without one.
    pub(super) fn go(&mut self, by: isize) {
        match self.page {
            Page::Slices => {
                let last = self.lines().saturating_sub(1);
                self.select(self.cursor().saturating_add_signed(by).min(last));
            }
            Page::Processes(_) | Page::Warnings => {
                self.first = self.first.saturating_add_signed(by);
                self.settle();
            }
        }
    }

    /// Returns the selected slice.
    pub(super) fn pointed(&self) -> Option<&SliceRow> {
        self.shown().get(self.cursor()).copied()
    }

    /// Selects a line of the table.
    pub(super) fn select(&mut self, place: usize) {
        self.selected = self.shown().get(place).map(|row| row.key.clone());
        self.settle();
    }

    /// Opens a page at its first line.
    pub(super) fn open(&mut self, page: Page) {
        self.page = page;
        self.first = 0;
        self.settle();
    }

    /// Keeps the selection on the screen.
    pub(super) fn settle(&mut self) {
        let lines = self.lines();
        if self.page == Page::Slices {
            let cursor = self.cursor();
            let least = cursor.saturating_add(1).saturating_sub(self.height);
            self.first = self.first.clamp(least.min(cursor), cursor);
        }
        self.first = self.first.min(lines.saturating_sub(self.height));
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
