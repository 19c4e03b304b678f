//! The terminal on standard output: its width, and whether it shows colours.
//! Touches: standard output, by querying it; the environment.

use nix::libc;
use std::io::IsTerminal;

/// The width of output that no terminal shows.
const PIPED: usize = 100;
/// The narrowest and the widest text that is formatted.
const NARROWEST: usize = 40;
const WIDEST: usize = 116;

/// Returns the number of characters that a line of standard output may have.
pub(crate) fn width() -> usize {
    columns().map_or(PIPED, |columns| columns.clamp(NARROWEST, WIDEST))
}

/// Returns the columns of the terminal on standard output.
fn columns() -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes a `winsize`, which lives as long as the call.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    // A terminal that does not know its size says 0.
    (status == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Whether standard output shows colours: it is a terminal, and NO_COLOR is not set.
pub(crate) fn shows_colour() -> bool {
    std::io::stdout().is_terminal() && allows_colour()
}

/// Whether the environment allows colours (<https://no-color.org>).
pub(crate) fn allows_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A colour that stands for a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// Success.
    Green,
    /// Failure.
    Red,
    /// Neither.
    Yellow,
}

/// Returns a word in bold and in a colour, if `shown`.
pub(crate) fn coloured(word: &str, colour: Colour, shown: bool) -> String {
    let code = match colour {
        Colour::Green => 32,
        Colour::Red => 31,
        Colour::Yellow => 33,
    };
    match shown {
        true => format!("\x1b[1;{code}m{word}\x1b[0m"),
        false => word.to_owned(),
    }
}
