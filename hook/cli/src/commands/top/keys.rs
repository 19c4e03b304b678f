//! The keys of `gpuslice top`.
//! Touches: the state.

use super::app::{App, Effect, Page};
use super::sort::By;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The keys, for the help and for the man page: each with its purpose.
pub(super) const KEYS: [(&str, &str); 14] = [
    ("Up Down j k", "select a slice"),
    ("PgUp PgDn", "one page up or down"),
    ("Home End g G", "the first or the last slice"),
    ("Enter", "the processes of the selected slice"),
    ("u p n r a", "sort by used, percent, name, refusals, age"),
    ("", "the same key again reverses the order"),
    ("/", "show only slices whose name, user, command"),
    ("", "or pid contains a text; Esc ends it"),
    ("w", "all warnings"),
    ("Space", "pause and continue"),
    ("+ -", "refresh less or more often"),
    ("? h", "this help"),
    ("Esc", "go back; on the first page, quit"),
    ("q ^C", "quit"),
];

/// The longest filter.
const LONGEST_FILTER: usize = 64;

impl App {
    /// Changes the state as the key asks for, and returns what is left to do.
    pub(super) fn press(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Effect::Quit,
                KeyCode::Char('z') => Effect::Suspend,
                _ => Effect::None,
            };
        }
        if self.is_filtering {
            self.type_filter(key.code);
            return Effect::None;
        }
        if self.has_help {
            self.has_help = false;
            return match key.code {
                KeyCode::Char('q') => Effect::Quit,
                _ => Effect::None,
            };
        }
        match key.code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char(' ') => {
                self.is_paused = !self.is_paused;
                return self.refreshes();
            }
            KeyCode::Char('+' | '=') => {
                self.interval = self.interval.longer();
                return self.refreshes();
            }
            KeyCode::Char('-') => {
                self.interval = self.interval.shorter();
                return self.refreshes();
            }
            code => return self.walk(code),
        }
        Effect::None
    }

    fn refreshes(&self) -> Effect {
        Effect::Refresh((!self.is_paused).then_some(self.interval.duration()))
    }

    /// The keys that move on a page or change it.
    fn walk(&mut self, code: KeyCode) -> Effect {
        let page = isize::try_from(self.height).unwrap_or(isize::MAX);
        match (code, &self.page) {
            (KeyCode::Up | KeyCode::Char('k'), _) => self.go(-1),
            (KeyCode::Down | KeyCode::Char('j'), _) => self.go(1),
            (KeyCode::PageUp, _) => self.go(page.saturating_neg()),
            (KeyCode::PageDown, _) => self.go(page),
            (KeyCode::Home | KeyCode::Char('g'), _) => self.go(isize::MIN),
            (KeyCode::End | KeyCode::Char('G'), _) => self.go(isize::MAX),
            (KeyCode::Esc, Page::Slices) if !self.filter.is_empty() => self.filter.clear(),
            (KeyCode::Esc, Page::Slices) => return Effect::Quit,
            (KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace, Page::Processes(_))
            | (KeyCode::Esc | KeyCode::Char('w'), Page::Warnings) => self.open(Page::Slices),
            (KeyCode::Char('w'), _) => self.open(Page::Warnings),
            (KeyCode::Enter, Page::Slices) => {
                if let Some(key) = self.pointed().map(|row| row.key.clone()) {
                    self.open(Page::Processes(key));
                }
            }
            (KeyCode::Char('/'), Page::Slices) => self.is_filtering = true,
            (KeyCode::Char(letter), Page::Slices) => self.sort_by(letter),
            _ => {}
        }
        self.settle();
        Effect::None
    }

    fn sort_by(&mut self, letter: char) {
        let mut all = By::ALL.into_iter();
        if let Some((by, _, _)) = all.find(|(_, key, _)| *key == letter) {
            self.sort = self.sort.after(by);
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < LONGEST_FILTER => {
                self.filter.push(letter);
            }
            _ => {}
        }
        self.settle();
    }
}
