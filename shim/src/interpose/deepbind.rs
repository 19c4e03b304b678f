//! Predicts whether `RTLD_DEEPBIND` would make a library's calls bypass this one.
//! Touches: the library's file, read-only, before the loader maps it.
//! Law: if the file does not settle the question, the answer keeps the library in the slice.

use core::ffi::{CStr, c_char};

use crate::loader::dl;
use crate::log::Piece::{Raw, Str};
use crate::log::{self, Level};
use crate::real::copies::Library;
use crate::real::functions;
use crate::slice::{self, loaded_slice::LoadedSlice};
use crate::sys::{Contents, File};

/// Whether a library that prefers its own definitions would bypass our hooks.
///
/// # Safety
/// `path` is null or a C string.
pub(crate) unsafe fn passes_us_by(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller guarantees a C string; null was excluded above.
    let path = unsafe { CStr::from_ptr(path) };
    let bytes = path.to_bytes();
    if !bytes.contains(&b'/') {
        // Only the loader knows the directory in which it would find the file.
        return opened_without_deepbind(path, "its path is not given", b"");
    }
    // A path with $ORIGIN in it means another file to the loader.
    let contents = File::open(path).and_then(|file| Contents::of(&file));
    let Ok(contents) = contents else {
        return opened_without_deepbind(path, "its file cannot be read", b"");
    };
    match Dynamic::parse(contents.bytes()) {
        Some(dynamic) => dynamic.needs_us(path),
        None => opened_without_deepbind(path, UNKNOWN, b""),
    }
}

const UNKNOWN: &str = "its file does not say what it calls";

/// Logs the reason; returns true.
#[cold]
fn opened_without_deepbind(path: &CStr, why: &str, what: &[u8]) -> bool {
    let line = [
        Raw(path.to_bytes()),
        Str(" is opened without RTLD_DEEPBIND: "),
        Str(why),
        Raw(what),
    ];
    log::say(Level::Info, &line, None);
    true
}

fn is_of_a_gpu(name: &[u8]) -> bool {
    // Not a list of texts, whose pointers would be relocated at the start of every process.
    name.starts_with(b"libcuda.so")
        || name.starts_with(b"libcudart.so")
        || name.starts_with(b"libnvidia-ml.so")
}

/// Whether a library that calls this function must call our hook in this slice.
fn matters(name: &CStr) -> bool {
    let Some(row) = functions::find(name) else {
        return false;
    };
    let is_of_the_loader = matches!(name.to_bytes(), b"dlsym" | b"dlopen" | b"dlmopen");
    // libc's answers change only where the device's memory is the host's, or model files are
    // evicted.
    functions::library(row) != Library::Libc
        || is_of_the_loader
        || slice::current().is_some_and(LoadedSlice::changes_libc)
}

/// The dynamic section of a file.
struct Dynamic<'a> {
    file: &'a [u8],
    headers: &'a [u8],
    section: &'a [u8],
}

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
/// `DT_NEEDED`, `DT_AUXILIARY`, `DT_FILTER`.
const BRING: [u64; 3] = [1, 0x7fff_fffd, 0x7fff_ffff];
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// The lengths of `Elf64_Phdr` and `Elf64_Sym`.
const HEADER: usize = 56;
const SYMBOL: usize = 24;

/// A little-endian number of N bytes: 2, 4 or 8.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes: &[u8; N] = bytes.get(at..)?.first_chunk()?;
    let number = bytes.iter().rev();
    Some(number.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

impl<'a> Dynamic<'a> {
    fn parse(file: &'a [u8]) -> Option<Dynamic<'a>> {
        // 64-bit, as this library is.
        if file.get(..5)? != b"\x7fELF\x02" {
            return None;
        }
        let place = usize::try_from(number::<8>(file, 32)?).ok()?;
        let count = usize::try_from(number::<2>(file, 56)?).ok()?;
        let length = count.checked_mul(HEADER)?;
        let headers = file.get(place..)?.get(..length)?;
        let header = headers
            .chunks_exact(HEADER)
            .find(|header| number::<4>(header, 0) == Some(PT_DYNAMIC))?;
        let place = usize::try_from(number::<8>(header, 8)?).ok()?;
        let length = usize::try_from(number::<8>(header, 32)?).ok()?;
        let section = file.get(place..)?.get(..length)?;
        Some(Dynamic {
            file,
            headers,
            section,
        })
    }

    fn entries(&self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let entries = self.section.chunks_exact(16);
        let pairs =
            entries.filter_map(|entry| Some((number::<8>(entry, 0)?, number::<8>(entry, 8)?)));
        pairs.take_while(|(tag, _)| *tag != 0)
    }

    fn value(&self, tag: u64) -> Option<u64> {
        self.entries()
            .find(|(other, _)| *other == tag)
            .map(|(_, value)| value)
    }

    /// The file's bytes at a virtual address.
    fn at(&self, address: u64) -> Option<&'a [u8]> {
        self.headers.chunks_exact(HEADER).find_map(|header| {
            let offset = number::<8>(header, 8)?;
            let start = number::<8>(header, 16)?;
            let length = number::<8>(header, 32)?;
            let within = address.checked_sub(start)?;
            if number::<4>(header, 0)? != PT_LOAD || within >= length {
                return None;
            }
            self.file
                .get(usize::try_from(offset.checked_add(within)?).ok()?..)
        })
    }

    /// The number of leading symbols that may be undefined. They stand before those that are
    /// defined.
    fn undefined(&self) -> Option<usize> {
        let count = if let Some(table) = self.value(DT_GNU_HASH) {
            number::<4>(self.at(table)?, 4)?
        } else {
            number::<4>(self.at(self.value(DT_HASH)?)?, 4)?
        };
        // A library that defines nothing has an empty table, whose count is meaningless.
        (count > 1).then(|| usize::try_from(count).ok())?
    }

    /// Whether it calls a hooked function, or loads another library that may.
    fn needs_us(&self, path: &CStr) -> bool {
        let (Some(strings), Some(symbols), Some(count)) = (
            self.value(DT_STRTAB).and_then(|place| self.at(place)),
            self.value(DT_SYMTAB).and_then(|place| self.at(place)),
            self.undefined(),
        ) else {
            return opened_without_deepbind(path, UNKNOWN, b"");
        };
        let name = |at: u64| {
            let at = usize::try_from(at).ok()?;
            CStr::from_bytes_until_nul(strings.get(at..)?).ok()
        };
        for (_, needed) in self.entries().filter(|(tag, _)| BRING.contains(tag)) {
            let Some(needed) = name(needed) else {
                return opened_without_deepbind(path, UNKNOWN, b"");
            };
            // A library that is loaded already has its calls bound.
            if is_of_a_gpu(needed.to_bytes()) || !dl::has(needed) {
                return opened_without_deepbind(path, "it loads ", needed.to_bytes());
            }
        }
        for symbol in symbols.chunks_exact(SYMBOL).take(count) {
            let is_undefined = number::<2>(symbol, 6) == Some(0);
            if is_undefined
                && let Some(name) = number::<4>(symbol, 0).and_then(name)
                && matters(name)
            {
                return opened_without_deepbind(path, "it calls ", name.to_bytes());
            }
        }
        false
    }
}
