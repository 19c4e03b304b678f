//! Reads JSON as a stream and keeps only the members that a reader needs. The length of the rest
//! does not matter.
//! Touches: its arguments.
//! Law: memory is bounded by the cap and nesting by [`scan::DEPTH`], for every text. Kept text is
//! copied byte for byte, and a strict parser checks it; the rest is only skipped. A member that is
//! kept has one value: parsers disagree about which of two values counts.

mod scan;

use gpuslice_host::base::text::shown;
use scan::{Scanner, malformed};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;

/// The part of a value to keep. A value of another type is kept whole, so that the parser refuses
/// it.
#[derive(Debug)]
pub(crate) enum Keep {
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
pub(crate) struct Ambiguous {
    /// Its name.
    pub(crate) name: String,
    one: String,
    other: String,
}

impl Ambiguous {
    /// The cause of an error of [`reduce`], if it is this one.
    #[must_use]
    pub(crate) fn of(error: &io::Error) -> Option<&Ambiguous> {
        error.get_ref()?.downcast_ref()
    }
}

/// Copies the parts to keep of the one value in the text.
///
/// # Errors
/// When the text cannot be read, is not JSON as far as it is checked, has more than `cap` bytes
/// to keep, or is [`Ambiguous`] in a member to keep.
pub(crate) fn reduce(from: impl Read, keep: &Keep, cap: usize) -> io::Result<Vec<u8>> {
    let mut filter = Scanner::new(from, cap);
    filter.value(keep)?;
    match filter.after_blanks()? {
        None => Ok(filter.into_kept()),
        Some(_) => Err(malformed("unexpected data after the value")),
    }
}

impl<R: Read> Scanner<R> {
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
                    let start = self.kept().len();
                    self.value(keep)?;
                    let value = start..self.kept().len();
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
        let [one, other] = [one, other].map(|place| self.kept().get(place).unwrap_or_default());
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
