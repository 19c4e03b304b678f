//! States the library's release in a section of its file, so that a command of another release
//! knows before a start whether this library will understand its slice.
//! Touches: nothing. No code of the library reads the section; `hook/host/src/base/library.rs` does,
//! from the file.

use gpuslice_config::{ledger, slice};

/// The contents of the section.
#[repr(C)]
struct Statement {
    /// The version of the ledger's layout. The library understands no other.
    ledger: u64,
    /// The newest version of slice files that the library understands.
    slice: u64,
    /// The release, on a line of its own.
    release: [u8; RELEASE.len()],
    /// The keys and words of slice files that the library understands, one a line.
    terms: [u8; length(&slice::TERMS)],
}

const RELEASE: &str = concat!(env!("CARGO_PKG_VERSION"), "\n");

#[used]
#[unsafe(link_section = ".gpuslice")]
static STATEMENT: Statement = Statement {
    ledger: ledger::VERSION as u64,
    slice: slice::VERSION,
    release: joined(&[RELEASE]),
    terms: joined(&slice::TERMS),
};

const fn length(mut texts: &[&str]) -> usize {
    let mut length: usize = 0;
    while let [text, rest @ ..] = texts {
        length = length.saturating_add(text.len());
        texts = rest;
    }
    length
}

#[expect(
    clippy::indexing_slicing,
    reason = "the compiler evaluates it, and an index out of bounds does not compile"
)]
const fn joined<const LENGTH: usize>(mut texts: &[&str]) -> [u8; LENGTH] {
    let (mut bytes, mut at) = ([0; LENGTH], 0_usize);
    while let [text, rest @ ..] = texts {
        let mut text = text.as_bytes();
        while let [byte, rest @ ..] = text {
            bytes[at] = *byte;
            at = at.saturating_add(1);
            text = rest;
        }
        texts = rest;
    }
    bytes
}
