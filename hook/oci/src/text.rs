//! Other people's words in our messages.
//! Touches: its arguments. Law: an annotation of a megabyte or of control characters is no message.

/// How much of a text is shown.
const SHOWN: usize = 80;

/// A text as it can be shown: one line, its beginning, nothing that a terminal would act on.
#[must_use]
pub(crate) fn shown(text: &str) -> String {
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
