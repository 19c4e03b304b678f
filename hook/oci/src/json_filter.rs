//! Reads JSON as a stream and keeps only the members that a reader needs. The length of the rest
//! does not matter.
//! Touches: its arguments.
//! Law: memory is bounded by the cap and nesting by [`DEPTH`], for every text. Kept text is copied
//! byte for byte, and a strict parser checks it; the rest is only skipped. A member that is kept has
//! one value: parsers disagree about which of two values counts.

use crate::text::shown;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;

/// The deepest nesting of arrays and objects: the limit of Go's decoder.
pub const DEPTH: usize = 10_000;

/// The longest name of a member, and the longest string of [`Keep::Starting`], as written.
const NAME: usize = 1 << 10;

/// The part of a value to keep. A value of another type is kept whole, so that the parser refuses
/// it.
#[derive(Debug)]
pub enum Keep {
    /// All of it.
    All,
    /// The listed members of an object, each with the part to keep.
    Members(&'static [(&'static str, Keep)]),
    /// The members of an object whose names start with one of the listed texts.
    Named(&'static [&'static str]),
    /// The given part of each element of an array.
    Elements(&'static Keep),
    /// The given part of each member of an object.
    Each(&'static Keep),
    /// The first element of an array.
    First,
    /// The strings of an array that start with one of the listed texts.
    Starting(&'static [&'static str]),
}

/// A member appears twice, with two values.
#[derive(Debug, thiserror::Error)]
#[error("{name} appears twice, as {one} and as {other} (remove one)", name = shown(name))]
pub struct Ambiguous {
    /// Its name.
    pub name: String,
    one: String,
    other: String,
}

impl Ambiguous {
    /// The cause of an error of [`reduce`], if it is this one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Ambiguous> {
        error.get_ref()?.downcast_ref()
    }
}

/// Copies the parts to keep of the one value in the text.
///
/// # Errors
/// When the text cannot be read, is not JSON as far as it is checked, has more than `cap` bytes
/// to keep, or is [`Ambiguous`] in a member to keep.
pub fn reduce(from: impl Read, keep: &Keep, cap: usize) -> io::Result<Vec<u8>> {
    let mut filter = Filter {
        from,
        block: [0; BLOCK],
        at: 0,
        end: 0,
        kept: Vec::with_capacity(FIRST),
        cap,
    };
    filter.value(keep)?;
    match filter.after_blanks()? {
        None => Ok(filter.kept),
        Some(_) => Err(malformed("unexpected data after the value")),
    }
}

/// The bytes that are read at a time.
const BLOCK: usize = 16 << 10;

/// The bytes that are kept of an ordinary configuration.
const FIRST: usize = 8 << 10;

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

struct Filter<R> {
    from: R,
    block: [u8; BLOCK],
    at: usize,
    end: usize,
    kept: Vec<u8>,
    cap: usize,
}

/// The open brackets: one bit each.
struct Open {
    bits: [u8; DEPTH / 8],
    depth: usize,
}

impl Open {
    fn push(&mut self, is_object: bool) -> io::Result<()> {
        let (byte, bit) = (self.depth / 8, 1u8 << (self.depth % 8));
        let too_deep = || malformed("it is nested too deep");
        let byte = self.bits.get_mut(byte).ok_or_else(too_deep)?;
        *byte = if is_object { *byte | bit } else { *byte & !bit };
        self.depth = self.depth.saturating_add(1);
        Ok(())
    }

    fn pop(&mut self, is_object: bool) -> io::Result<()> {
        let unmatched = || malformed("brackets do not match");
        let depth = self.depth.checked_sub(1).ok_or_else(unmatched)?;
        let (byte, bit) = (depth / 8, 1u8 << (depth % 8));
        let byte = self.bits.get(byte).copied().unwrap_or_default();
        self.depth = depth;
        match (byte & bit != 0) == is_object {
            true => Ok(()),
            false => Err(unmatched()),
        }
    }
}

impl<R: Read> Filter<R> {
    fn value(&mut self, keep: &Keep) -> io::Result<()> {
        match (keep, self.after_blanks()?) {
            (Keep::Members(names), Some(b'{')) => self.object(|name| {
                let known = names.iter().find(|(known, _)| known.as_bytes() == name);
                known.map(|(_, keep)| keep)
            }),
            (Keep::Named(starts), Some(b'{')) => self.object(|name| {
                let named = starts
                    .iter()
                    .any(|start| name.starts_with(start.as_bytes()));
                named.then_some(&Keep::All)
            }),
            (Keep::Each(keep), Some(b'{')) => self.object(|_| Some(*keep)),
            (Keep::Elements(keep), Some(b'[')) => self.array(|_| Some(*keep)),
            (Keep::First, Some(b'[')) => self.array(|index| (index == 0).then_some(&Keep::All)),
            (Keep::Starting(starts), Some(b'[')) => self.strings(starts),
            _ => self.whole(true),
        }
    }

    /// Reads an object; a member's name decides which part of it is kept.
    fn object(&mut self, keep: impl Fn(&[u8]) -> Option<&'static Keep>) -> io::Result<()>
    where
        R: Read,
    {
        self.bump();
        self.keep(b"{")?;
        let mut is_first = true;
        let mut seen = BTreeMap::<Vec<u8>, Range<usize>>::new();
        if self.after_blanks()? == Some(b'}') {
            self.bump();
            return self.keep(b"}");
        }
        loop {
            if self.after_blanks()? != Some(b'"') {
                return Err(malformed("a member has no name"));
            }
            let (raw, is_whole) = self.short_string()?;
            if self.after_blanks()? != Some(b':') {
                return Err(malformed("a member has no value"));
            }
            self.bump();
            let name = plain(&raw);
            match keep(&name) {
                Some(_) if !is_whole => return Err(malformed("the name of a member is too long")),
                Some(keep) => {
                    if !std::mem::take(&mut is_first) {
                        self.keep(b",")?;
                    }
                    self.keep(b"\"")?;
                    self.keep(&raw)?;
                    self.keep(b"\":")?;
                    let start = self.kept.len();
                    self.value(keep)?;
                    let value = start..self.kept.len();
                    if let Some(before) = seen.insert(name, value.clone()) {
                        self.agree(&raw, before, value)?;
                    }
                }
                None => self.skip()?,
            }
            if self.is_last(b'}')? {
                return self.keep(b"}");
            }
        }
    }

    /// Checks that a member that appears twice has the same value both times.
    fn agree(&self, raw: &[u8], one: Range<usize>, other: Range<usize>) -> io::Result<()> {
        let [one, other] = [one, other].map(|place| self.kept.get(place).unwrap_or_default());
        if one == other {
            return Ok(());
        }
        // Quotation marks need no escape, unlike control characters.
        let cut = |value: &[u8]| shown(&String::from_utf8_lossy(value)).replace("\\\"", "\"");
        let ambiguous = Ambiguous {
            name: String::from_utf8_lossy(&plain(raw)).into_owned(),
            one: cut(one),
            other: cut(other),
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, ambiguous))
    }

    /// Reads an array; an element's index decides which part of it is kept.
    fn array(&mut self, keep: impl Fn(usize) -> Option<&'static Keep>) -> io::Result<()> {
        self.bump();
        self.keep(b"[")?;
        if self.after_blanks()? == Some(b']') {
            self.bump();
            return self.keep(b"]");
        }
        let mut index = 0usize;
        loop {
            match keep(index) {
                Some(keep) => {
                    if index > 0 {
                        self.keep(b",")?;
                    }
                    self.value(keep)?;
                }
                None => self.skip()?,
            }
            index = index.saturating_add(1);
            if self.is_last(b']')? {
                return self.keep(b"]");
            }
        }
    }

    /// Reads an array of strings, and keeps those that start with one of the given texts. A string
    /// that is too long is kept as that text followed by a question mark.
    fn strings(&mut self, starts: &[&str]) -> io::Result<()> {
        self.bump();
        self.keep(b"[")?;
        if self.after_blanks()? == Some(b']') {
            self.bump();
            return self.keep(b"]");
        }
        let mut is_first = true;
        loop {
            if self.after_blanks()? == Some(b'"') {
                let (raw, is_whole) = self.short_string()?;
                let start = starts
                    .iter()
                    .find(|start| raw.starts_with(start.as_bytes()));
                if let Some(start) = start {
                    if !std::mem::take(&mut is_first) {
                        self.keep(b",")?;
                    }
                    self.keep(b"\"")?;
                    match is_whole {
                        true => self.keep(&raw)?,
                        false => {
                            self.keep(start.as_bytes())?;
                            self.keep(b"?")?;
                        }
                    }
                    self.keep(b"\"")?;
                }
            } else {
                self.skip()?;
            }
            if self.is_last(b']')? {
                return self.keep(b"]");
            }
        }
    }

    /// Whether the closing bracket follows, rather than a comma.
    fn is_last(&mut self, close: u8) -> io::Result<bool> {
        match self.after_blanks()? {
            Some(b',') => {
                self.bump();
                Ok(false)
            }
            Some(byte) if byte == close => {
                self.bump();
                Ok(true)
            }
            _ => Err(malformed("a comma or a closing bracket is missing")),
        }
    }

    fn skip(&mut self) -> io::Result<()> {
        self.after_blanks()?;
        self.whole(false)
    }

    /// Reads a value of any type, from its first byte on.
    fn whole(&mut self, keep: bool) -> io::Result<()> {
        match self.peek()? {
            Some(b'{' | b'[') => self.nested(keep),
            Some(b'"') => self.string(keep),
            Some(b',' | b':' | b'}' | b']') | None => Err(malformed("a value is missing")),
            Some(_) => self.word(keep),
        }
    }

    fn nested(&mut self, keep: bool) -> io::Result<()> {
        let mut open = Open {
            bits: [0; DEPTH / 8],
            depth: 0,
        };
        loop {
            let Some(byte) = self.peek()? else {
                return Err(malformed("it ends too early"));
            };
            match byte {
                b'"' => self.string(keep)?,
                b'{' | b'[' => {
                    open.push(byte == b'{')?;
                    self.take(byte, keep)?;
                }
                b'}' | b']' => {
                    open.pop(byte == b'}')?;
                    self.take(byte, keep)?;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => self.take(byte, keep)?,
                _ => self.word(keep)?,
            }
            if open.depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads a number, `true`, `false` or `null`.
    fn word(&mut self, keep: bool) -> io::Result<()> {
        while let Some(byte) = self.peek()? {
            match byte {
                b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.' => {
                    self.take(byte, keep)?;
                }
                b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' => break,
                _ => return Err(malformed("it is not JSON")),
            }
        }
        Ok(())
    }

    /// Reads a string, from its quotation mark on.
    fn string(&mut self, keep: bool) -> io::Result<()> {
        self.take(b'"', keep)?;
        let mut is_escaped = false;
        loop {
            let Some(first) = self.peek()? else {
                return Err(malformed("a string has no end"));
            };
            if is_escaped {
                is_escaped = false;
                self.take(first, keep)?;
                continue;
            }
            let rest = self.block.get(self.at..self.end).unwrap_or_default();
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            let length = plain.unwrap_or(rest.len());
            if keep {
                if self.kept.len().saturating_add(length) > self.cap {
                    return Err(self.too_much());
                }
                self.kept
                    .extend_from_slice(rest.get(..length).unwrap_or_default());
            }
            self.at = self.at.saturating_add(length);
            if plain.is_some() {
                let byte = self.peek()?.unwrap_or_default();
                self.take(byte, keep)?;
                if byte == b'"' {
                    return Ok(());
                }
                is_escaped = true;
            }
        }
    }

    /// Reads a string as written, without its quotation marks. Returns its first [`NAME`] bytes,
    /// and whether that is all of it.
    fn short_string(&mut self) -> io::Result<(Vec<u8>, bool)> {
        self.bump();
        let (mut raw, mut is_whole, mut is_escaped) = (Vec::new(), true, false);
        while let Some(byte) = self.peek()? {
            self.bump();
            if byte == b'"' && !is_escaped {
                return Ok((raw, is_whole));
            }
            is_escaped = byte == b'\\' && !is_escaped;
            match raw.len() < NAME {
                true => raw.push(byte),
                false => is_whole = false,
            }
        }
        Err(malformed("a string has no end"))
    }

    fn take(&mut self, byte: u8, keep: bool) -> io::Result<()> {
        self.bump();
        if keep { self.keep(&[byte]) } else { Ok(()) }
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.kept.len().saturating_add(bytes.len()) > self.cap {
            return Err(self.too_much());
        }
        self.kept.extend_from_slice(bytes);
        Ok(())
    }

    fn too_much(&self) -> io::Error {
        let cap = self.cap;
        let what = format!("the members that gpuslice needs exceed {cap} bytes");
        io::Error::new(io::ErrorKind::FileTooLarge, what)
    }

    /// Skips the byte that was returned last.
    fn bump(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn after_blanks(&mut self) -> io::Result<Option<u8>> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.bump(),
                other => return Ok(other),
            }
        }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.at >= self.end {
            self.at = 0;
            self.end = loop {
                match self.from.read(&mut self.block) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => break read?,
                }
            };
            if self.end == 0 {
                return Ok(None);
            }
        }
        Ok(self.block.get(self.at).copied())
    }
}

/// A name without its escapes. A name that cannot be decoded is returned unchanged, and so matches
/// no known name.
fn plain(raw: &[u8]) -> Vec<u8> {
    if !raw.contains(&b'\\') {
        return raw.to_vec();
    }
    let quoted = [b"\"", raw, b"\""].concat();
    let decoded: Result<String, _> = serde_json::from_slice(&quoted);
    decoded.map_or_else(|_| raw.to_vec(), String::into_bytes)
}

#[cfg(test)]
#[path = "json_filter_tests.rs"]
mod tests;
