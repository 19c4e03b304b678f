//! The readers of a process's files in /proc, for fuzzers.
//! Touches: its arguments.

use super::facts::Facts;
use super::maps::FileId;

/// Reads the name, the id in the innermost pid namespace, the parent and the user from the text of
/// `/proc/PID/status`.
pub fn status(text: &[u8]) -> Option<(String, Option<u32>, u32, u32)> {
    let facts = Facts::in_lines(|take| {
        let mut lines = text.split(|byte| *byte == b'\n');
        let _ = lines.any(|line| take(line).is_break());
        Some(())
    })?;
    Some((facts.name, facts.own_number, facts.parent, facts.user))
}

/// Whether two lines of `/proc/PID/maps` map one file.
pub fn map_one_file(one: &[u8], other: &[u8]) -> bool {
    let file = FileId::in_line(one);
    file.is_some() && file == FileId::in_line(other)
}
