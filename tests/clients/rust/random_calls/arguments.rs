//! The arguments of a call: numbers, handles, and places that the callee reads or writes.
//! Touches: memory of its own, which the call gets pointers to.

use crate::world::Kind;
use std::fmt::Write;

/// The bytes around a place that is written to. They must not change.
const GUARD: usize = 32;
const FILL: u8 = 0xa5;

/// The meaning of the bytes that a call writes.
#[derive(Clone, Copy)]
pub enum Shown {
    /// Every byte is compared.
    Bytes,
    /// A text that ends with a zero; the bytes after it are not compared.
    Text,
    /// An amount of memory with its name. A slice changes it.
    Memory(&'static str),
    /// A structure whose fields at these places are amounts of memory; all else is compared.
    Fields(&'static [(usize, usize, &'static str)]),
    /// A pointer: null or not.
    Pointer,
    /// A structure with a pointer at this place, which is null or not; all else is compared.
    PointerAt(usize),
}

/// One argument.
pub enum Argument {
    Number(u64),
    /// A value with the name by which the log knows it.
    Named(u64, String),
    /// A place for a handle.
    Out(Kind, Place),
    /// A place for other bytes, of which the first ones are set before the call.
    Write(Shown, Place),
    /// Bytes that the callee reads.
    Read(Vec<u8>, String),
}

/// Memory that a call writes to.
pub struct Place {
    bytes: Vec<u8>,
    before: Vec<u8>,
}

impl Place {
    pub fn new(length: usize, given: &[u8]) -> Place {
        let mut bytes = vec![FILL; length + 2 * GUARD];
        bytes[GUARD..GUARD + given.len()].copy_from_slice(given);
        Place {
            before: bytes.clone(),
            bytes,
        }
    }

    pub fn address(&mut self) -> u64 {
        self.bytes[GUARD..].as_mut_ptr() as u64
    }

    pub fn inside(&self) -> &[u8] {
        &self.bytes[GUARD..self.bytes.len() - GUARD]
    }

    /// The first eight bytes.
    pub fn word(&self) -> u64 {
        let mut word = [0; 8];
        let inside = self.inside();
        let length = inside.len().min(8);
        word[..length].copy_from_slice(&inside[..length]);
        u64::from_le_bytes(word)
    }

    pub fn is_unchanged(&self) -> bool {
        self.bytes == self.before
    }

    /// Whether bytes beside the place were written.
    fn is_overrun(&self) -> bool {
        let end = self.bytes.len() - GUARD;
        self.bytes[..GUARD] != self.before[..GUARD] || self.bytes[end..] != self.before[end..]
    }
}

impl Argument {
    /// The argument as the call gets it.
    pub fn word(&mut self) -> u64 {
        match self {
            Argument::Number(word) | Argument::Named(word, _) => *word,
            Argument::Out(_, place) | Argument::Write(_, place) => place.address(),
            Argument::Read(bytes, _) => bytes.as_ptr() as u64,
        }
    }

    /// The argument as the log shows it before the call.
    pub fn text(&self) -> String {
        match self {
            Argument::Number(word) => format!("{word:#x}"),
            Argument::Named(_, name) => name.clone(),
            Argument::Out(kind, _) => format!("&{kind:?}"),
            Argument::Write(_, place) => format!("&[{}]", place.inside().len()),
            Argument::Read(_, text) => text.clone(),
        }
    }

    /// The bytes that the call has written, other than a handle; empty if there are none.
    pub fn written(&self) -> String {
        let Argument::Write(shown, place) = self else {
            return String::new();
        };
        let overrun = if place.is_overrun() { " OVERRUN" } else { "" };
        match place.is_unchanged() {
            true => String::from(" -"),
            false => format!(" {}{overrun}", shown_as(*shown, place.inside())),
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(word)
}

/// The bytes, without those at the end that nothing was written to.
fn hex(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != FILL);
    let mut text = String::new();
    for byte in &bytes[..end.map_or(0, |end| end + 1)] {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn null_or_not(pointer: &[u8]) -> &'static str {
    match number(pointer) {
        0 => "null",
        _ => "pointer",
    }
}

fn shown_as(shown: Shown, bytes: &[u8]) -> String {
    match shown {
        Shown::Bytes => hex(bytes),
        Shown::Text => {
            let end = bytes.iter().position(|byte| *byte == 0);
            let text = &bytes[..end.unwrap_or(bytes.len())];
            format!("{:?}", String::from_utf8_lossy(text))
        }
        Shown::Memory(name) => format!("{name}#{}", number(bytes)),
        Shown::Pointer => String::from(null_or_not(bytes)),
        Shown::PointerAt(at) => {
            let mut rest = bytes.to_vec();
            let pointer = &mut rest[at..at + 8];
            let text = null_or_not(pointer);
            pointer.fill(0);
            format!("{text} {}", hex(&rest))
        }
        Shown::Fields(fields) => {
            let mut rest = bytes.to_vec();
            let mut text = String::new();
            for (at, length, name) in fields {
                let field = &mut rest[*at..*at + *length];
                let _ = write!(text, "{name}#{} ", number(field));
                field.fill(0);
            }
            text + &hex(&rest)
        }
    }
}
