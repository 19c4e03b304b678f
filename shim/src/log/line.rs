//! One line of the log, in a buffer on the stack.
//! Touches: its arguments.

use gpuslice_config::words::shown::Shown;
use gpuslice_config::words::units::Bytes;

/// A part of a line. An amount is formatted only if the line is written.
#[derive(Clone, Copy)]
pub(crate) enum Piece<'a> {
    Str(&'a str),
    /// A text from outside the library.
    Raw(&'a [u8]),
    Dec(u64),
    /// An amount of memory: `64.00 MiB`.
    Size(Bytes),
    /// An amount of memory that the line compares with another one.
    SizeBeside(Bytes, Bytes),
}

/// The longest line.
pub(super) const LINE: usize = 512;

/// A line. What does not fit is left out.
pub(super) struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Line {
    pub(super) const fn new() -> Line {
        Line {
            bytes: [0; LINE],
            length: 0,
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length = self.length.saturating_add(1);
        }
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        // Control characters in a path or a name must not break the line.
        for byte in text {
            self.push(if byte.is_ascii_control() { b'?' } else { *byte });
        }
    }

    pub(super) fn decimal(&mut self, number: u64) {
        let mut digits = [0u8; 20];
        let (mut rest, mut count) = (number, 0usize);
        for digit in digits.iter_mut().rev() {
            *digit = b'0'.saturating_add((rest % 10) as u8);
            rest /= 10;
            count = count.saturating_add(1);
            if rest == 0 {
                break;
            }
        }
        let start = digits.len().saturating_sub(count);
        self.text(digits.get(start..).unwrap_or_default());
    }

    fn size(&mut self, shown: Shown) {
        self.decimal(shown.whole);
        if let Some(hundredths) = shown.hundredths {
            self.text(b".");
            self.decimal(u64::from(hundredths / 10));
            self.decimal(u64::from(hundredths % 10));
        }
        self.text(b" ");
        self.text(shown.unit.as_bytes());
    }

    /// Writes a name as `logfmt` reads it: with quotes where it has blanks.
    pub(super) fn name(&mut self, name: &[u8]) {
        let is_quoted = name.contains(&b' ') || name.contains(&b'=');
        let quote: &[u8] = if is_quoted { b"\"" } else { b"" };
        self.text(quote);
        self.text(name);
        self.text(quote);
    }

    pub(super) fn piece(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Str(text) => self.text(text.as_bytes()),
            Piece::Raw(text) => self.text(text),
            Piece::Dec(number) => self.decimal(*number),
            Piece::Size(bytes) => self.size(bytes.shown()),
            Piece::SizeBeside(bytes, other) => self.size(bytes.beside(*other).shown()),
        }
    }

    /// Ends the line, and returns it.
    pub(super) fn ended(&mut self) -> &[u8] {
        self.length = self.length.min(LINE.saturating_sub(1));
        self.push(b'\n');
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
