//! Makes a driver that lacks functions. In a copy of the library the symbol becomes undefined, so
//! that neither the loader nor dlsym finds it. Its name goes behind a mark that cuGetProcAddress
//! reads.
//! Touches: copies of `libcuda.so.1` and `libnvidia-ml.so.1`.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub(crate) const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

const MARK: &[u8] = b"gpuslice-sim:removed:";
const ROOM: usize = 1024;
const SHT_DYNSYM: u32 = 11;
const SYMBOL: usize = 24;

/// Copies both libraries without the functions; every name must be in one of them.
pub(crate) fn copy(from: &Path, to: &Path, names: &[&str]) -> Result<()> {
    let mut found = BTreeSet::new();
    for library in LIBRARIES {
        let mut bytes = read(from, library)?;
        found.extend(remove(&mut bytes, names).with_context(|| unexpected(library))?);
        note(&mut bytes, names);
        write(to, library, &bytes)?;
    }
    match names.iter().find(|name| !found.contains(**name)) {
        Some(name) => bail!("neither library has a function {name}"),
        None => Ok(()),
    }
}

/// One of the libraries, as it was built.
pub(crate) fn read(from: &Path, library: &str) -> Result<Vec<u8>> {
    let path = from.join(library);
    fs::read(&path).with_context(|| format!("reading {}", path.display()))
}

/// Puts a copy into place by renaming: a running program keeps the library that it has mapped.
pub(crate) fn write(to: &Path, library: &str, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    let unfinished = to.join(format!(".{library}.new"));
    fs::write(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, to.join(library)))
        .with_context(|| format!("writing {}", to.join(library).display()))
}

pub(crate) fn unexpected(library: &str) -> String {
    format!("{library} is not what was expected")
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(len)?)?;
    let value = field
        .iter()
        .rev()
        .fold(0_u64, |value, byte| (value << 8) | u64::from(*byte));
    usize::try_from(value).ok()
}

/// The section headers' offsets, little-endian ELF64.
fn sections(bytes: &[u8]) -> Option<Vec<usize>> {
    let (table, size, count) = (
        number(bytes, 40, 8)?,
        number(bytes, 58, 2)?,
        number(bytes, 60, 2)?,
    );
    (0..count)
        .map(|i| table.checked_add(i.checked_mul(size)?))
        .collect()
}

/// Makes the symbols undefined, and returns those that the library had. `None`: an unknown kind of
/// library.
pub(crate) fn remove<'a>(bytes: &mut [u8], names: &[&'a str]) -> Option<BTreeSet<&'a str>> {
    let headers = sections(bytes)?;
    let is_dynsym =
        |header: &&usize| number(bytes, header.saturating_add(4), 4) == Some(SHT_DYNSYM as usize);
    let dynsym = *headers.iter().find(is_dynsym)?;
    let strings = *headers.get(number(bytes, dynsym.checked_add(40)?, 4)?)?;
    let names_at = number(bytes, strings.checked_add(24)?, 8)?;
    let (start, len) = (
        number(bytes, dynsym.checked_add(24)?, 8)?,
        number(bytes, dynsym.checked_add(32)?, 8)?,
    );
    let mut removed = BTreeSet::new();
    for symbol in (start..start.checked_add(len)?).step_by(SYMBOL) {
        let at = number(bytes, symbol, 4)?.checked_add(names_at)?;
        let text = bytes.get(at..)?.split(|byte| *byte == 0).next()?;
        let Some(name) = names.iter().find(|name| name.as_bytes() == text) else {
            continue;
        };
        removed.insert(*name);
        // st_shndx, st_value, st_size: an undefined symbol is skipped by every lookup.
        let end = symbol.checked_add(SYMBOL)?;
        bytes.get_mut(symbol.checked_add(6)?..end)?.fill(0);
    }
    Some(removed)
}

/// Notes the removed names for cuGetProcAddress, if the library has that function.
fn note(bytes: &mut [u8], names: &[&str]) {
    let Some(at) = bytes.windows(MARK.len()).position(|window| window == MARK) else {
        return;
    };
    let end = at.saturating_add(ROOM);
    if let Some(room) = bytes.get_mut(at.saturating_add(MARK.len())..end) {
        for (to, from) in room.iter_mut().zip(names.join(",").into_bytes()) {
            *to = from;
        }
    }
}
