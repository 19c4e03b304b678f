//! Shows progress on a terminal.
//! Touches: the terminal, if standard error is one.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// A progress bar that counts bytes or files.
pub(super) struct Progress {
    bar: ProgressBar,
}

const TEMPLATE: &str =
    "{msg} {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}";

const FILES: &str = "{msg} {human_pos} files, {elapsed}";

impl Progress {
    /// Creates a bar that ends at `total` bytes.
    pub(super) fn new(what: &'static str, total: u64) -> Progress {
        Progress::with(what, Some(total), TEMPLATE)
    }

    /// Creates a counter of files, whose number is not known.
    pub(super) fn of_files(what: &'static str) -> Progress {
        Progress::with(what, None, FILES)
    }

    fn with(what: &'static str, total: Option<u64>, template: &str) -> Progress {
        let target = match stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(total, target).with_message(what);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// Advances the bar by this many bytes or files.
    pub(super) fn advance(&self, count: u64) {
        self.bar.inc(count);
    }
}

impl Drop for Progress {
    /// Clears the bar, so that the next output takes its place.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
