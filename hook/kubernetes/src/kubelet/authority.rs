//! Replaces the percent signs of `:authority` in HTTP/2 requests before the server reads them.
//!
//! The kubelet's registration client (grpc-go) sends the socket's path as the authority:
//! `%2Fvar%2Flib%2Fkubelet%2F...`. RFC 3986 allows this, but the crate `http` does not. h2 then
//! resets the stream with PROTOCOL_ERROR, and the driver is never registered. No service of this
//! driver reads the authority.
//! Touches: the bytes of a connection.
//! Law: a header block and its strings keep their lengths. Otherwise the header tables of the two
//! ends would differ.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes with which a client opens a connection, before the first frame.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// The type of a HEADERS frame, and its flags.
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The largest frame that a server accepts without a setting.
const LARGEST: usize = 1 << 14;

/// The index of `:authority` in the static table of HPACK (RFC 7541, appendix A).
const AUTHORITY: usize = 1;

/// The Huffman codes of HPACK (RFC 7541, appendix B) of up to [`WINDOW`] bits: their bits, and the
/// code after the last. All characters of an authority are among them.
const CODES: [(usize, u32); 10] = [
    (5, 0xa),
    (6, 0x2e),
    (7, 0x7c),
    (8, 0xfe),
    (10, 0x3fd),
    (11, 0x7fd),
    (12, 0xffc),
    (13, 0x1ffe),
    (14, 0x3ffe),
    (15, 0x7fff),
];
const WINDOW: usize = 15;

/// The code of `%`. That of `-` differs in its last two bits.
const PERCENT: (usize, u32) = (6, 0x15);

/// A connection whose requests have an authority that the server accepts.
#[derive(Debug)]
pub(super) struct Readable<S> {
    stream: S,
    frames: Frames,
}

impl<S> Readable<S> {
    /// A connection on which nothing was read yet.
    pub(super) const fn new(stream: S) -> Readable<S> {
        Readable {
            stream,
            frames: Frames::new(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Readable<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut bytes = [0; 4096];
        while this.frames.ready == 0 {
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                this.frames.end();
                break;
            }
            this.frames.add(read.filled());
        }
        let taken = this.frames.take(buffer.remaining());
        buffer.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Readable<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The frames of a client, in the order of their bytes.
#[derive(Debug)]
struct Frames {
    /// The bytes that were read and not taken yet.
    held: Vec<u8>,
    /// How many of them can be taken.
    ready: usize,
    /// How many of the next bytes are the rest of the preface or of a frame.
    passing: usize,
}

impl Frames {
    const fn new() -> Frames {
        Frames {
            held: Vec::new(),
            ready: 0,
            passing: PREFACE,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        while self.advance() {}
    }

    /// No byte follows: an incomplete frame is the server's to refuse.
    const fn end(&mut self) {
        self.ready = self.held.len();
    }

    fn take(&mut self, most: usize) -> Vec<u8> {
        let count = most.min(self.ready);
        self.ready = self.ready.saturating_sub(count);
        self.held.drain(..count).collect()
    }

    /// Makes more bytes ready. A HEADERS frame is ready once it is complete.
    fn advance(&mut self) -> bool {
        let rest = self.held.get_mut(self.ready..).unwrap_or_default();
        if self.passing > 0 {
            let count = self.passing.min(rest.len());
            self.passing = self.passing.saturating_sub(count);
            self.ready = self.ready.saturating_add(count);
            return count > 0;
        }
        let Some((header, rest)) = rest.split_first_chunk_mut::<9>() else {
            return false;
        };
        let &mut [high, middle, low, kind, flags, ..] = header;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if kind == HEADERS && length <= LARGEST {
            let Some(payload) = rest.get_mut(..length) else {
                return false;
            };
            if let Some(block) = block(payload, flags) {
                let mut rest = block;
                while let Some(next) = field(rest) {
                    rest = next;
                }
            }
        }
        self.passing = length.saturating_add(header.len());
        true
    }
}

/// The header block of a HEADERS frame.
fn block(payload: &mut [u8], flags: u8) -> Option<&mut [u8]> {
    let has = |flag: u8| flags & flag != 0;
    let padding = match has(PADDED) {
        true => usize::from(*payload.first()?),
        false => 0,
    };
    let before = usize::from(has(PADDED)).checked_add(match has(PRIORITY) {
        true => 5,
        false => 0,
    })?;
    let end = payload.len().checked_sub(padding)?;
    payload.get_mut(before..end)
}

/// Passes one field of a header block and returns the rest, or None at the end. The authority gets
/// no percent sign.
fn field(block: &mut [u8]) -> Option<&mut [u8]> {
    let first = *block.first()?;
    let (prefix, has_value) = match first {
        0x80.. => (7, false),
        0x40.. => (6, true),
        0x20.. => (5, false),
        _ => (4, true),
    };
    let (index, mut rest) = integer(block, prefix)?;
    if !has_value {
        return Some(rest);
    }
    if index == 0 {
        (_, _, rest) = string(rest)?;
    }
    let (is_huffman, value, rest) = string(rest)?;
    match (index, is_huffman) {
        (AUTHORITY, true) => replace_codes(value),
        (AUTHORITY, false) => {
            let signs = value.iter_mut().filter(|byte| **byte == b'%');
            signs.for_each(|sign| *sign = b'-');
        }
        _ => {}
    }
    Some(rest)
}

/// A string: whether it has Huffman codes, its bytes, and the rest.
fn string(block: &mut [u8]) -> Option<(bool, &mut [u8], &mut [u8])> {
    let is_huffman = block.first()? & 0x80 != 0;
    let (length, rest) = integer(block, 7)?;
    let (value, rest) = rest.split_at_mut_checked(length)?;
    Some((is_huffman, value, rest))
}

/// An integer that begins in the last bits of a byte (RFC 7541, section 5.1), and the rest.
fn integer(block: &mut [u8], prefix: u32) -> Option<(usize, &mut [u8])> {
    let (first, mut rest) = block.split_first_mut()?;
    let most = u8::MAX.checked_shr(8_u32.checked_sub(prefix)?)?;
    let mut value = usize::from(*first & most);
    if value < usize::from(most) {
        return Some((value, rest));
    }
    for shift in [0_u32, 7, 14] {
        let (byte, after) = rest.split_first_mut()?;
        rest = after;
        value = value.checked_add(usize::from(*byte & 0x7f).checked_shl(shift)?)?;
        if *byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// Replaces the codes of `%` by those of `-`, until the end or a code that no authority has.
fn replace_codes(value: &mut [u8]) {
    let mut at = 0;
    while let Some((length, code)) = code(value, at) {
        let next = length.saturating_add(at);
        if next > value.len().saturating_mul(8) {
            return;
        }
        if (length, code) == PERCENT {
            flip(value, next.saturating_sub(1));
            flip(value, next.saturating_sub(2));
        }
        at = next;
    }
}

/// The bits of the code at a place, and the code. Beyond the end are ones, which is the padding.
fn code(value: &[u8], at: usize) -> Option<(usize, u32)> {
    let bits = (at..).take(WINDOW).map(|at| bit(value, at));
    let window = bits.fold(0_u32, |window, bit| (window << 1) | u32::from(bit));
    CODES.into_iter().find_map(|(length, end)| {
        let code = window >> WINDOW.saturating_sub(length);
        (code < end).then_some((length, code))
    })
}

fn bit(value: &[u8], at: usize) -> bool {
    let byte = value.get(at / 8).copied().unwrap_or(u8::MAX);
    byte & (0x80 >> (at % 8)) != 0
}

fn flip(value: &mut [u8], at: usize) {
    if let Some(byte) = value.get_mut(at / 8) {
        *byte ^= 0x80 >> (at % 8);
    }
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
