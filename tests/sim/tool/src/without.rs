//! Makes a driver that lacks functions: in a copy of the library the symbol becomes undefined, so that neither the
//! loader nor dlsym finds it, and its name goes behind a mark that cuGetProcAddress looks at.
//! Touches: copies of `libcuda.so.1` and `libnvidia-ml.so.1`.

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;

const MARK: &[u8] = b"gpuslice-sim:removed:";
const ROOM: usize = 1024;
const SHT_DYNSYM: u32 = 11;
const SYMBOL: usize = 24;

/// Copies both libraries without the functions; every name must be in one of them.
pub(crate) fn copy(from: &Path, to: &Path, names: &[&str]) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut found = vec![false; names.len()];
    for library in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        let path = from.join(library);
        let mut bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        for (name, found) in names.iter().zip(&mut found) {
            *found |= remove(&mut bytes, name)
                .with_context(|| format!("{library} is not what was expected"))?;
        }
        note(&mut bytes, names);
        fs::write(to.join(library), bytes).with_context(|| format!("writing {}", to.display()))?;
    }
    match names.iter().zip(&found).find(|(_, found)| !**found) {
        Some((name, _)) => bail!("neither library has a function {name}"),
        None => Ok(()),
    }
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

/// Makes the symbol undefined. False: the library has no such symbol. `None`: not a library we know.
fn remove(bytes: &mut [u8], name: &str) -> Option<bool> {
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
    let table = bytes.get(start..start.checked_add(len)?)?;
    let place = table.chunks_exact(SYMBOL).position(|symbol| {
        let Some(at) = number(symbol, 0, 4).and_then(|offset| offset.checked_add(names_at)) else {
            return false;
        };
        let text = bytes
            .get(at..)
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            .next();
        text == Some(name.as_bytes())
    });
    let Some(place) = place else {
        return Some(false);
    };
    let symbol = start.checked_add(place.checked_mul(SYMBOL)?)?;
    // st_shndx, st_value, st_size: an undefined symbol is skipped by every lookup.
    bytes
        .get_mut(symbol.checked_add(6)?..symbol.checked_add(SYMBOL)?)?
        .fill(0);
    Some(true)
}

/// Tells cuGetProcAddress, where the library has it.
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
