//! A line of text in a fixed buffer, for a moment at which nothing may be allocated.
//! Touches: standard error.

use std::fmt;

/// The most bytes of a line.
const LONGEST: usize = 512;

/// A line. What does not fit is cut off.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Line {
    /// An empty line.
    pub(crate) const fn new() -> Line {
        Line {
            bytes: [0; LONGEST],
            length: 0,
        }
    }

    /// The text so far.
    pub(crate) fn text(&self) -> &str {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Writes the line to standard error, with one system call.
    pub(crate) fn tell(&self) {
        // SAFETY: the buffer is this long. Standard error may be closed: then nobody wants the line.
        let _ =
            unsafe { libc::write(libc::STDERR_FILENO, self.bytes.as_ptr().cast(), self.length) };
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST.saturating_sub(self.length);
        let part = text
            .get(..text.floor_char_boundary(room))
            .unwrap_or_default();
        let end = self.length.saturating_add(part.len());
        if let Some(into) = self.bytes.get_mut(self.length..end) {
            into.copy_from_slice(part.as_bytes());
            self.length = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let mut line = Line::new();
        write!(line, "{}日本", "a".repeat(511)).unwrap();
        assert_eq!(line.text().len(), 511);
        write!(line, "b").unwrap();
        assert!(line.text().ends_with("ab"));
    }
}
