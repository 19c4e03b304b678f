//! Edits JSON and leaves the rest of the text unchanged: its order, its numbers, its spaces.
//! Touches: its arguments.
//! Law: JSON stays JSON; a text that is not JSON is refused, unchanged.

use std::ops::Range;

/// Why a text cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// It is not JSON: the position of the first wrong byte.
    NotJson(usize),
    /// It is nested deeper than any real configuration.
    TooDeep,
    /// The member occurs twice or in another spelling, and readers differ in which they use.
    Twice,
    /// A value at this byte is of another type than the change needs.
    OtherType(usize),
}

impl std::fmt::Display for JsonError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JsonError::NotJson(at) => write!(out, "not JSON at byte {at}"),
            JsonError::TooDeep => out.write_str("nested too deep to be read"),
            JsonError::Twice => out.write_str("a key occurs twice, or in two spellings"),
            JsonError::OtherType(at) => write!(out, "an unexpected type at byte {at}"),
        }
    }
}

impl std::error::Error for JsonError {}

/// One `"key": value` of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The position of its key, with the quotes.
    pub key: Range<usize>,
    /// The position of its value.
    pub value: Range<usize>,
}

/// The changed text.
pub type Changed = Result<String, JsonError>;

/// The nesting limit of serde_json.
const DEEPEST: u32 = 128;

/// The position of the one value in the text.
///
/// # Errors
/// When the text is not JSON.
pub fn root(text: &str) -> Result<Range<usize>, JsonError> {
    let mut scanner = Scanner::at(text, 0);
    let value = scanner.value(0)?;
    scanner.space();
    match scanner.peek() {
        None => Ok(value),
        Some(_) => Err(JsonError::NotJson(scanner.at)),
    }
}

/// The members of the object at `object`.
///
/// # Errors
/// When it is not an object.
pub fn members(text: &str, object: &Range<usize>) -> Result<Vec<Member>, JsonError> {
    let mut scanner = Scanner::at(text, object.start);
    if scanner.peek() != Some(b'{') {
        return Err(JsonError::OtherType(object.start));
    }
    let mut found = Vec::new();
    scanner.object(0, &mut |member| found.push(member))?;
    Ok(found)
}

/// The elements of the array at `array`.
///
/// # Errors
/// When it is not an array.
pub fn elements(text: &str, array: &Range<usize>) -> Result<Vec<Range<usize>>, JsonError> {
    let mut scanner = Scanner::at(text, array.start);
    if scanner.peek() != Some(b'[') {
        return Err(JsonError::OtherType(array.start));
    }
    let mut found = Vec::new();
    scanner.array(0, &mut |element| found.push(element))?;
    Ok(found)
}

/// The member of that name. Keys are compared as written: a key with escapes is a different key.
///
/// # Errors
/// When `object` is not an object, or has two members of that name.
pub fn member(text: &str, object: &Range<usize>, key: &str) -> Result<Option<Member>, JsonError> {
    let quoted = quoted(key);
    let mut same = members(text, object)?;
    same.retain(|member| text.get(member.key.clone()) == Some(&quoted));
    let first = same.pop();
    match same.is_empty() {
        true => Ok(first),
        false => Err(JsonError::Twice),
    }
}

/// The text of a string without escapes; `None` for another value.
#[must_use]
pub fn plain<'a>(text: &'a str, value: &Range<usize>) -> Option<&'a str> {
    let inner = text.get(value.clone())?;
    let inner = inner.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('\\')).then_some(inner)
}

/// Sets a member of the object at `object`. An existing member of that name is replaced; a new one
/// is added at the end.
///
/// # Errors
/// As [`member`].
pub fn set(text: &str, object: &Range<usize>, key: &str, value: &str) -> Changed {
    let there = members(text, object)?;
    if let Some(old) = member(text, object, key)? {
        return Ok(spliced(text, &old.value, value));
    }
    let colon = match margin(text, object).contains('\n') {
        true => ": ",
        false => ":",
    };
    let new = format!("{}{colon}{value}", quoted(key));
    let spans = there.iter().map(|it| it.key.start..it.value.end).collect();
    Ok(appended(text, object, spans, &new))
}

/// Appends an element to the array at `array`.
///
/// # Errors
/// When it is not an array.
pub fn push(text: &str, array: &Range<usize>, element: &str) -> Changed {
    let there = elements(text, array)?;
    Ok(appended(text, array, there, element))
}

/// Removes the member of that name from the object at `object`, if it exists.
///
/// # Errors
/// As [`member`].
pub fn remove(text: &str, object: &Range<usize>, key: &str) -> Changed {
    let Some(gone) = member(text, object, key)? else {
        return Ok(text.to_owned());
    };
    let there = members(text, object)?;
    let before = there.iter().rfind(|other| other.key.start < gone.key.start);
    let after = there.iter().find(|other| other.key.start > gone.key.start);
    let cut = match (before, after) {
        (_, Some(after)) => gone.key.start..after.key.start,
        (Some(before), None) => before.value.end..gone.value.end,
        (None, None) => object.start.saturating_add(1)..object.end.saturating_sub(1),
    };
    Ok(spliced(text, &cut, ""))
}

/// `text` as a JSON string.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// The text between the bracket and the first entry of the object or array at `of`. A new entry
/// gets the same text, so that it looks like the others.
#[must_use]
pub fn margin<'a>(text: &'a str, of: &Range<usize>) -> &'a str {
    let inner = text.get(of.start.saturating_add(1)..of.end);
    let inner = inner.unwrap_or_default();
    let entry = inner.trim_start();
    let space = inner.len().saturating_sub(entry.len());
    inner.get(..space).unwrap_or_default()
}

fn appended(text: &str, of: &Range<usize>, there: Vec<Range<usize>>, new: &str) -> String {
    match there.last() {
        Some(last) => {
            let new = format!(",{}{new}", margin(text, of));
            spliced(text, &(last.end..last.end), &new)
        }
        None => {
            let inner = of.start.saturating_add(1)..of.end.saturating_sub(1);
            spliced(text, &inner, new)
        }
    }
}

fn spliced(text: &str, cut: &Range<usize>, new: &str) -> String {
    let head = text.get(..cut.start).unwrap_or_default();
    let tail = text.get(cut.end..).unwrap_or_default();
    format!("{head}{new}{tail}")
}

/// Scans strictly from a position on.
struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn at(text: &str, at: usize) -> Scanner<'_> {
        let bytes = text.as_bytes();
        Scanner { bytes, at }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.step();
        }
    }

    fn wrong<T>(&self) -> Result<T, JsonError> {
        Err(JsonError::NotJson(self.at))
    }

    fn take(&mut self, wanted: u8) -> Result<(), JsonError> {
        match self.peek() {
            Some(byte) if byte == wanted => {
                self.step();
                Ok(())
            }
            _ => self.wrong(),
        }
    }

    fn value(&mut self, depth: u32) -> Result<Range<usize>, JsonError> {
        self.space();
        let start = self.at;
        match self.peek() {
            Some(b'{') => self.object(depth, &mut |_| {})?,
            Some(b'[') => self.array(depth, &mut |_| {})?,
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        }
        Ok(start..self.at)
    }

    fn object(&mut self, depth: u32, found: &mut dyn FnMut(Member)) -> Result<(), JsonError> {
        self.list(depth, b'{', b'}', &mut |scanner, depth| {
            scanner.space();
            let start = scanner.at;
            scanner.string()?;
            let key = start..scanner.at;
            scanner.space();
            scanner.take(b':')?;
            let value = scanner.value(depth)?;
            found(Member { key, value });
            Ok(())
        })
    }

    fn array(&mut self, depth: u32, found: &mut dyn FnMut(Range<usize>)) -> Result<(), JsonError> {
        self.list(depth, b'[', b']', &mut |scanner, depth| {
            found(scanner.value(depth)?);
            Ok(())
        })
    }

    fn list(
        &mut self,
        depth: u32,
        open: u8,
        close: u8,
        entry: &mut dyn FnMut(&mut Self, u32) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        if depth >= DEEPEST {
            return Err(JsonError::TooDeep);
        }
        self.take(open)?;
        self.space();
        if self.peek() == Some(close) {
            self.step();
            return Ok(());
        }
        loop {
            entry(self, depth.saturating_add(1))?;
            self.space();
            match self.peek() {
                Some(b',') => self.step(),
                _ => return self.take(close),
            }
        }
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.take(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.step();
                    return Ok(());
                }
                Some(b'\\') => {
                    self.step();
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.step(),
                        Some(b'u') => {
                            self.step();
                            for _ in 0..4 {
                                match self.peek() {
                                    Some(digit) if digit.is_ascii_hexdigit() => self.step(),
                                    _ => return self.wrong(),
                                }
                            }
                        }
                        _ => return self.wrong(),
                    }
                }
                Some(0..=0x1f) | None => return self.wrong(),
                Some(_) => self.step(),
            }
        }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.step();
        }
        match self.peek() {
            Some(b'0') => self.step(),
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.step();
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.step();
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.step();
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.step();
        }
        match self.at == start {
            true => self.wrong(),
            false => Ok(()),
        }
    }

    fn word(&mut self) -> Result<(), JsonError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let words = ["true", "false", "null"];
        let Some(word) = words.iter().find(|it| rest.starts_with(it.as_bytes())) else {
            return self.wrong();
        };
        self.at = self.at.saturating_add(word.len());
        Ok(())
    }
}

#[cfg(test)]
#[path = "json_edit_tests.rs"]
mod tests;
