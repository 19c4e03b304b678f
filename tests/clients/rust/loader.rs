//! Reads a file with Rust's standard library, prints its length and a checksum, and waits.
//! Touches: the file, standard output, standard input.

use std::io::{Read, Write};

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_default();
    let bytes = std::fs::read(path)?;
    let sum = bytes.iter().fold(0u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    let mut out = std::io::stdout();
    writeln!(out, "{} {sum:016x}", bytes.len())?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
