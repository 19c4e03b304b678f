//! A reader for the JSON of slice files: strict, without allocation, without a panic.
//! Touches: its arguments.
//!
//! The shim reads slice files inside other people's processes, where it may neither allocate
//! nor panic; `serde_json` does both. The host's side writes them with `serde_json`, and a property
//! test checks that both readers agree.

use thiserror::Error;

/// An error in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JsonError {
    /// The text ends early.
    #[error("unexpected end of the file")]
    Truncated,
    /// This character was expected, and another one was found.
    #[error("expected '{0}'")]
    Expected(char),
    /// Not a whole number from 0 to 18446744073709551615.
    #[error("expected a whole number of bytes, without quotes, decimal point or sign")]
    Number,
    /// Neither `true` nor `false`.
    #[error("expected true or false")]
    Boolean,
    /// A string with an escape or a control character.
    #[error("a string here has no escapes and no control characters")]
    Escape,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// More text after the value.
    #[error("unexpected text after the end")]
    Trailing,
}

/// A position in a JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning.
    #[must_use]
    pub const fn new(text: &'a [u8]) -> Reader<'a> {
        Reader { text, at: 0 }
    }

    /// The current line, from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        let read = self.text.get(..self.at).unwrap_or(self.text);
        let newlines = read.iter().filter(|byte| **byte == b'\n').count();
        u32::try_from(newlines).map_or(u32::MAX, |count| count.saturating_add(1))
    }

    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at = self.at.saturating_add(1);
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at = self.at.saturating_add(1);
        }
        found
    }

    fn expect(&mut self, wanted: u8) -> Result<(), JsonError> {
        match self.take(wanted) {
            true => Ok(()),
            false if self.peek().is_none() => Err(JsonError::Truncated),
            false => Err(JsonError::Expected(char::from(wanted))),
        }
    }

    /// Enters an object.
    ///
    /// # Errors
    /// When the next character is not `{`.
    pub fn object(&mut self) -> Result<(), JsonError> {
        self.expect(b'{')
    }

    /// The next key of the object, or None at its end. `first` is true before the first key.
    ///
    /// # Errors
    /// When the text is not an object's.
    pub fn key(&mut self, first: &mut bool) -> Result<Option<&'a str>, JsonError> {
        if !self.more(b'}', first)? {
            return Ok(None);
        }
        let key = self.string()?;
        self.expect(b':')?;
        Ok(Some(key))
    }

    /// Enters an array.
    ///
    /// # Errors
    /// When the next character is not `[`.
    pub fn array(&mut self) -> Result<(), JsonError> {
        self.expect(b'[')
    }

    /// Whether the array has another element. `first` is true before the first element.
    ///
    /// # Errors
    /// When the text is not an array's.
    pub fn element(&mut self, first: &mut bool) -> Result<bool, JsonError> {
        self.more(b']', first)
    }

    fn more(&mut self, end: u8, first: &mut bool) -> Result<bool, JsonError> {
        if self.take(end) {
            return Ok(false);
        }
        if !core::mem::replace(first, false) {
            self.expect(b',')?;
        }
        Ok(true)
    }

    /// A string without escapes: no value in a slice file needs one.
    ///
    /// # Errors
    /// When the next value is not such a string.
    pub fn string(&mut self) -> Result<&'a str, JsonError> {
        self.expect(b'"')?;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let stop = rest
            .iter()
            .position(|byte| *byte == b'"' || *byte == b'\\' || *byte < 0x20)
            .ok_or(JsonError::Truncated)?;
        let (inside, tail) = rest.split_at_checked(stop).ok_or(JsonError::Truncated)?;
        if tail.first() != Some(&b'"') {
            return Err(JsonError::Escape);
        }
        let string = core::str::from_utf8(inside).map_err(|_| JsonError::Utf8)?;
        self.at = self.at.saturating_add(stop).saturating_add(1);
        Ok(string)
    }

    /// A whole number.
    ///
    /// # Errors
    /// When the text here is not one, or does not fit 64 bits.
    pub fn number(&mut self) -> Result<u64, JsonError> {
        self.peek().ok_or(JsonError::Truncated)?;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let digits = rest
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at_checked(digits).ok_or(JsonError::Number)?;
        // JSON has no leading zeros; a point or an exponent is not whole.
        let leading_zero = number.len() > 1 && number.first() == Some(&b'0');
        if leading_zero || matches!(tail.first(), Some(b'.' | b'e' | b'E')) {
            return Err(JsonError::Number);
        }
        self.at = self.at.saturating_add(digits);
        core::str::from_utf8(number)
            .ok()
            .and_then(|number| number.parse().ok())
            .ok_or(JsonError::Number)
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// When the next value is neither.
    pub fn boolean(&mut self) -> Result<bool, JsonError> {
        self.peek().ok_or(JsonError::Truncated)?;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (word, truth) = if rest.starts_with(b"true") {
            ("true", true)
        } else if rest.starts_with(b"false") {
            ("false", false)
        } else {
            return Err(JsonError::Boolean);
        };
        self.at = self.at.saturating_add(word.len());
        Ok(truth)
    }

    /// The end of the text.
    ///
    /// # Errors
    /// When there is more.
    pub fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(JsonError::Trailing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_has_no_escape_and_no_control_character() {
        let string = |text: &'static str| Reader::new(text.as_bytes()).string();
        assert_eq!(string("\"a b~\""), Ok("a b~"));
        for text in [
            "\"a\\u0041\"",
            "\"a\tb\"",
            "\"a\nb\"",
            "\"a\u{1f}b\"",
            "\"\0\"",
        ] {
            assert_eq!(string(text), Err(JsonError::Escape), "{text:?}");
        }
        assert_eq!(string("\"a"), Err(JsonError::Truncated));
    }

    #[test]
    fn a_number_is_whole_and_has_no_leading_zero() {
        let number = |text: &'static str| Reader::new(text.as_bytes()).number();
        for (text, value) in [("0", 0), ("10,", 10), ("18446744073709551615", u64::MAX)] {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for text in [
            "01",
            "00",
            "1.0",
            "1e3",
            "1E3",
            "-1",
            "x",
            "18446744073709551616",
        ] {
            assert_eq!(number(text), Err(JsonError::Number), "{text}");
        }
        assert_eq!(number(" "), Err(JsonError::Truncated));
    }
}
