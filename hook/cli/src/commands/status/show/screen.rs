//! What standard output can show: its width and height, colours, letters beyond ASCII.
//! Touches: standard output's terminal, the environment.

use std::env;
use std::io::{self, IsTerminal};

/// The properties of the place where the output is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Screen {
    /// The columns; None if lines may have any length.
    pub(crate) width: Option<usize>,
    /// The lines of a terminal.
    pub(crate) height: Option<usize>,
    /// Whether it shows colours.
    pub(crate) colour: bool,
    /// Whether it shows letters beyond ASCII.
    pub(crate) unicode: bool,
}

/// A colour or weight, as the number of its escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain = 0,
    Bold = 1,
    Dim = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Screen {
    /// Returns the properties of standard output. On a terminal, its size counts. Elsewhere lines
    /// are not cut, unless COLUMNS gives a width.
    pub(crate) fn of_stdout() -> Screen {
        let is_terminal = io::stdout().is_terminal();
        let columns = || variable("COLUMNS")?.parse().ok().filter(|width| *width > 0);
        let size = is_terminal.then(terminal_size).flatten();
        let dumb = variable("TERM").as_deref() == Some("dumb");
        Screen {
            width: match is_terminal {
                true => Some(size.map_or(USUAL.0, |(width, _)| width)),
                false => columns(),
            },
            height: is_terminal.then(|| size.map_or(USUAL.1, |(_, height)| height)),
            colour: is_terminal && variable("NO_COLOR").is_none() && !dumb,
            unicode: is_utf8(["LC_ALL", "LC_CTYPE", "LANG"].map(variable)),
        }
    }

    /// Returns a text in a colour.
    pub(crate) fn paint(&self, ink: Ink, text: &str) -> String {
        match self.colour && ink != Ink::Plain && !text.is_empty() {
            true => format!("\x1b[{}m{text}\x1b[0m", ink as u8),
            false => text.to_owned(),
        }
    }
}

/// The size of a terminal that does not report one.
const USUAL: (usize, usize) = (80, 24);

fn variable(name: &str) -> Option<String> {
    let value = env::var_os(name)?.to_string_lossy().into_owned();
    Some(value).filter(|value| !value.is_empty())
}

/// Whether the first locale that is set has the character set UTF-8.
fn is_utf8(locales: [Option<String>; 3]) -> bool {
    let first = locales.into_iter().flatten().next();
    first.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

fn terminal_size() -> Option<(usize, usize)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes a winsize, and `size` outlives the call.
    let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let is_known = done == 0 && size.ws_col > 0 && size.ws_row > 0;
    is_known.then(|| (size.ws_col.into(), size.ws_row.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_that_is_set_decides() {
        let utf8 = |all: [&str; 3]| {
            is_utf8(all.map(|one| Some(one.to_owned()).filter(|one| !one.is_empty())))
        };
        assert!(utf8(["", "", "en_US.UTF-8"]) && utf8(["", "C.utf8", "C"]));
        assert!(!utf8(["C", "", "en_US.UTF-8"]) && !utf8(["", "", ""]));
    }

    #[test]
    fn without_colour_a_text_stays_as_it_is() {
        let plain = Screen::default();
        let coloured = Screen {
            colour: true,
            ..plain
        };
        assert_eq!(plain.paint(Ink::Red, "x"), "x");
        assert_eq!(coloured.paint(Ink::Red, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(coloured.paint(Ink::Plain, "x"), "x");
    }
}
