//! Formats text for users and for JSON.
//! Touches: its arguments.

use serde::Serializer;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns a name or message from another source without characters that move the cursor or change
/// the text direction.
#[must_use]
pub(crate) fn printable(text: &str) -> String {
    if !text.contains(is_unsafe) {
        return text.to_owned();
    }
    let mut printable = String::new();
    for letter in text.chars() {
        match is_unsafe(letter) {
            true => printable.push_str(&escape(letter)),
            false => printable.push(letter),
        }
    }
    printable
}

fn escape(letter: char) -> String {
    match letter.is_control() {
        true => letter.escape_debug().to_string(),
        false => letter.escape_unicode().to_string(),
    }
}

/// Control characters, line and paragraph separators, and the marks that change the direction of
/// text.
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Formats folders as a list in a sentence: `a, b or c`.
#[must_use]
pub(crate) fn alternatives(folders: &[PathBuf]) -> String {
    let names: Vec<String> = folders
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns a path as text. In a path that is not valid text, the bytes that are not ASCII are
/// escaped, so that two paths never look alike.
#[must_use]
pub(crate) fn escaped_path(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => path.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}

/// Serializes a path with [`escaped_path`], because JSON is text.
///
/// # Errors
/// When the serializer fails.
pub(crate) fn serialize_path<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&escaped_path(path))
}

/// Serializes an optional path with [`escaped_path`].
///
/// # Errors
/// When the serializer fails.
pub(crate) fn serialize_some_path<S: Serializer>(
    path: &Option<PathBuf>,
    out: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serialize_path(path, out),
        None => out.serialize_none(),
    }
}

/// Formats rows as columns, each as wide as its widest cell; the last column is not padded.
#[must_use]
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        // Trailing blanks are removed below, so the last column needs no padding.
        let last = N.saturating_sub(1);
        for (column, (width, cell)) in widths.iter().zip(row).enumerate() {
            text.push_str(cell);
            if column != last {
                let blanks = width.saturating_sub(cell.chars().count()).saturating_add(2);
                text.extend(std::iter::repeat_n(' ', blanks));
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_name_cannot_turn_the_line_round() {
        assert_eq!(
            printable("a\u{202e}gnp\u{2069}\u{200f}"),
            "a\\u{202e}gnp\\u{2069}\\u{200f}"
        );
        assert_eq!(printable("a\u{1b}\n"), "a\\u{1b}\\n");
        assert_eq!(printable("schön 日本"), "schön 日本");
    }

    #[test]
    fn a_path_that_is_no_text_is_escaped_and_one_that_is_stays() {
        let of = |bytes: &[u8]| escaped_path(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(of("/models/schön \\ 1".as_bytes()), "/models/schön \\ 1");
        assert_eq!(of(b"/m/\xff\\"), "/m/\\xff\\\\");
        assert_ne!(of(b"/m/\xff"), of(b"/m/\xfe"));
    }
}
