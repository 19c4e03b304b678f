//! Formats text for users and for JSON.
//! Touches: its arguments.

use serde::Serializer;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// Returns a path as text. In a path that is not valid UTF-8, the bytes that are not ASCII are
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

/// Formats a duration with its two largest units: `3 h 04 min`.
#[must_use]
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {:02} s", seconds % 60),
        (0, ..) => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{days} d {:02} h", hours % 24),
    }
}

/// Formats rows as columns, each as wide as its widest cell; the last column is not padded.
#[must_use]
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    columns(rows)
}

/// Like [`aligned`], for rows whose number of cells is not known before.
#[must_use]
pub(crate) fn columns<R: AsRef<[String]>>(rows: &[R]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        let row = row.as_ref();
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let row = row.as_ref();
        // Padding after the last cell would be cut off again.
        let last = row.len().saturating_sub(1);
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

/// Wraps text to lines of at most `width` characters, and indents all lines but the first. Line
/// ends in the text stay, for example those of a list.
#[must_use]
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut given = text.lines();
    let mut lines = vec![String::new()];
    for word in given.next().map(words).unwrap_or_default() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(&word);
        } else if line.chars().count().saturating_add(word.chars().count()) < width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines.extend(given.map(|line| format!("  {}", line.trim_start())));
    lines
}

/// Splits text into parts that stay on one line: words, and pairs such as `GPU 0`.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            Some(before) if before.ends_with("GPU") && word.starts_with(is_digit) => {
                before.push(' ');
                before.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn is_digit(letter: char) -> bool {
    letter.is_ascii_digit()
}

/// Parses a whole number of seconds, at least 1.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| "not a whole number of seconds, at least 1 (try 10)".to_owned())
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
    fn a_duration_has_two_units() {
        let shown = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!([0, 59, 61].map(shown), ["0 s", "59 s", "1 min 01 s"]);
        assert_eq!([3600, 11_040].map(shown), ["1 h 00 min", "3 h 04 min"]);
        assert_eq!([86_399, 180_000].map(shown), ["23 h 59 min", "2 d 02 h"]);
    }

    #[test]
    fn a_path_that_is_no_text_is_escaped_and_one_that_is_stays() {
        let of = |bytes: &[u8]| escaped_path(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(of("/models/schön \\ 1".as_bytes()), "/models/schön \\ 1");
        assert_eq!(of(b"/m/\xff\\"), "/m/\\xff\\\\");
        assert_ne!(of(b"/m/\xff"), of(b"/m/\xfe"));
    }

    #[test]
    fn a_list_keeps_its_lines() {
        let text = "there is no GPU-1 here; there are:\n  0 GPU-2  a card, 24.00 GiB\n  1 GPU-3";
        let lines = [
            "there is no",
            "  GPU-1 here;",
            "  there are:",
            "  0 GPU-2  a card, 24.00 GiB",
            "  1 GPU-3",
        ];
        assert_eq!(wrapped(text, 14), lines);
    }

    #[test]
    fn a_gpu_keeps_its_number() {
        let lines = ["more than", "  GPU 10", "  has"];
        assert_eq!(wrapped("more than GPU 10 has", 9), lines);
        assert_eq!(wrapped("", 12), [""]);
    }
}
