//! Makes foreign text safe for our messages.
//! Touches: its arguments. Law: an annotation of a megabyte, or of control characters, never
//! reaches a message unchanged.

/// The number of characters that are shown of a text.
const SHOWN: usize = 80;

/// A displayable form of a text: one line, shortened, without characters that a terminal would
/// interpret.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut letters = text.chars();
    let start: String = letters.by_ref().take(SHOWN).collect();
    let more = if letters.next().is_some() { "..." } else { "" };
    format!("{}{more}", start.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_a_strange_one_escaped() {
        assert_eq!(shown("8 GiB"), "8 GiB");
        assert_eq!(shown("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(shown(&"ü".repeat(80)), "ü".repeat(80));
        assert_eq!(
            shown(&"x".repeat(1 << 20)),
            format!("{}...", "x".repeat(80))
        );
    }
}
