//! Shows progress on a terminal.
//! Touches: the terminal, if standard error is one.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// A progress bar that counts bytes.
pub(super) struct Progress {
    bar: ProgressBar,
}

const TEMPLATE: &str =
    "{msg} {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}";

impl Progress {
    /// Creates a bar that ends at `total` bytes.
    pub(super) fn new(what: &'static str, total: u64) -> Progress {
        let target = match stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(total), target).with_message(what);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// Advances the bar by this many bytes.
    pub(super) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
}

impl Drop for Progress {
    /// Clears the bar, so that the next output takes its place.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
