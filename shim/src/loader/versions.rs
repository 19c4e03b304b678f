//! The symbol versions that a loaded object requires of other libraries.
//! Touches: the object's image in memory, read-only. Never: dlsym and its kin, malloc.
//! Law: only the image's own tables are followed.

use core::ffi::{CStr, c_char};

use crate::loader::elf::Object;
use crate::loader::image::Image;

/// A version that an object requires for a symbol.
pub(crate) struct Version<'a> {
    /// The name of the version, for example `libcudart.so.12`.
    pub(crate) name: &'a CStr,
    /// The name of the library that has to define it.
    pub(crate) library: &'a CStr,
}

/// The bits of a version's index; the remaining bit hides the symbol.
const VERSYM_VERSION: u16 = 0x7fff;
/// The first index that means a version: the lower ones are for local and unversioned symbols.
const FIRST_VERSION: u16 = 2;

/// The version that an object requires for a symbol that it takes from another library.
///
/// # Safety
/// The object is loaded, and stays so while the result is used.
pub(crate) unsafe fn required<'a>(object: &'a Object, name: &[u8]) -> Option<Version<'a>> {
    // SAFETY: the caller guarantees that the object stays loaded.
    let image = unsafe { Image::new(object) }?;
    let (versions, needs) = (image.versions?, image.needs?);
    for index in 1..undefined_end(&image) {
        let symbol = image
            .symbols
            .wrapping_add((index as usize).wrapping_mul(24));
        let section: u16 = image.at(symbol.wrapping_add(6));
        if section == 0 && image.is_named(image.at(symbol), name) {
            let version: u16 = image.at(versions.wrapping_add((index as usize).wrapping_mul(2)));
            // SAFETY: the caller guarantees that the object stays loaded.
            return unsafe { need(&image, needs, version & VERSYM_VERSION) };
        }
    }
    None
}

/// The index behind the last symbol that may be undefined.
fn undefined_end(image: &Image) -> u32 {
    // The GNU table has all defined symbols, and the undefined ones stand before them.
    let first = image.gnu_hash.map_or(0, |table| image.word(table, 1));
    if first > 1 {
        return first;
    }
    if let Some(table) = image.sysv_hash {
        return image.word(table, 1);
    }
    // The GNU table is empty, and linkers then write a first index of 1. The symbols end at the next
    // table of the image.
    let tables = [
        Some(image.strings),
        image.versions,
        image.needs,
        image.gnu_hash,
    ];
    let behind = tables
        .into_iter()
        .flatten()
        .filter(|table| *table > image.symbols);
    let bytes = behind
        .min()
        .unwrap_or(image.symbols)
        .wrapping_sub(image.symbols);
    u32::try_from(bytes / 24).unwrap_or(0)
}

/// The version with this index in the table of required versions.
///
/// # Safety
/// As [`required`].
unsafe fn need<'a>(image: &Image, needs: usize, wanted: u16) -> Option<Version<'a>> {
    if wanted < FIRST_VERSION {
        return None;
    }
    let string = |offset: u32| {
        let place = image.strings.wrapping_add(offset as usize);
        // SAFETY: the image's own string; the caller guarantees that the object stays loaded.
        unsafe { CStr::from_ptr(place as *const c_char) }
    };
    // `Elf64_Verneed` of each library, and its list of `Elf64_Vernaux`.
    let mut library = needs;
    loop {
        let mut version = library.wrapping_add(image.at::<u32>(library.wrapping_add(8)) as usize);
        loop {
            if image.at::<u16>(version.wrapping_add(6)) == wanted {
                return Some(Version {
                    name: string(image.at(version.wrapping_add(8))),
                    library: string(image.at(library.wrapping_add(4))),
                });
            }
            match image.at::<u32>(version.wrapping_add(12)) {
                0 => break,
                next => version = version.wrapping_add(next as usize),
            }
        }
        match image.at::<u32>(library.wrapping_add(12)) {
            0 => return None,
            next => library = library.wrapping_add(next as usize),
        }
    }
}
