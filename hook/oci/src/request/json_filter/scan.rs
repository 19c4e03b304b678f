//! Scans JSON byte by byte: values, strings and brackets, kept or skipped.
//! Touches: the reader that it is given.

use std::io::{self, Read};

/// The deepest nesting of arrays and objects: the limit of Go's decoder.
pub(super) const DEPTH: usize = 10_000;

/// The longest name of a member, and the longest string of
/// [`Keep::Starting`](super::Keep::Starting), as written.
const NAME: usize = 1 << 10;

/// The bytes that are read at a time.
const BLOCK: usize = 16 << 10;

/// The bytes that are kept of an ordinary configuration.
const FIRST: usize = 8 << 10;

pub(super) fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The text, and the parts of it that are kept.
pub(super) struct Scanner<R> {
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

impl<R: Read> Scanner<R> {
    /// A scanner that keeps at most `cap` bytes.
    pub(super) fn new(from: R, cap: usize) -> Scanner<R> {
        Scanner {
            from,
            block: [0; BLOCK],
            at: 0,
            end: 0,
            kept: Vec::with_capacity(FIRST),
            cap,
        }
    }

    /// The bytes that are kept so far.
    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// The kept bytes.
    pub(super) fn into_kept(self) -> Vec<u8> {
        self.kept
    }

    pub(super) fn skip(&mut self) -> io::Result<()> {
        self.after_blanks()?;
        self.whole(false)
    }

    /// Reads a value of any type, from its first byte on.
    pub(super) fn whole(&mut self, keep: bool) -> io::Result<()> {
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
    pub(super) fn short_string(&mut self) -> io::Result<(Vec<u8>, bool)> {
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

    pub(super) fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
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
    pub(super) fn bump(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    pub(super) fn after_blanks(&mut self) -> io::Result<Option<u8>> {
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
