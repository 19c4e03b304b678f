//! Prints the errors that clap reports, under this program's name as all other messages.
//! Touches: standard error.

use crate::base::terminal;
use std::io::{self, IsTerminal, Write};

/// How clap begins its messages.
const CLAPS: &str = "error: ";

/// Prints a usage error of `program` on standard error.
pub(crate) fn tell(program: &str, error: &clap::Error) {
    let shows_colour = io::stderr().is_terminal() && terminal::allows_colour();
    let text = error.render();
    let text = named(
        program,
        match shows_colour {
            true => text.ansi().to_string(),
            false => text.to_string(),
        },
    );
    // If standard error cannot be written either, the message is lost.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Replaces clap's word in front of the message. The help that stands for a missing command has
/// none.
fn named(program: &str, text: String) -> String {
    let (before, rest) = match text.find(CLAPS.trim_end()) {
        // Only codes for colours may stand in front of the word.
        Some(at) if text.starts_with(['e', '\x1b']) && at < 16 => text.split_at(at),
        _ => return text,
    };
    let rest = rest.strip_prefix(CLAPS.trim_end()).unwrap_or(rest);
    // `error:`, the end of the colour, a blank.
    let (colour, rest) = rest.split_once(' ').unwrap_or(("", rest));
    format!("{before}{program}:{colour} {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_name_stands_where_clap_says_error() {
        let named = |text: &str| named("gpuslice", text.to_owned());
        assert_eq!(named("error: a\n\nerror: b"), "gpuslice: a\n\nerror: b");
        assert_eq!(
            named("\x1b[1m\x1b[31merror:\x1b[0m a"),
            "\x1b[1m\x1b[31mgpuslice:\x1b[0m a"
        );
        assert_eq!(named("Runs programs\nerror: "), "Runs programs\nerror: ");
        assert_eq!(named(""), "");
    }
}
