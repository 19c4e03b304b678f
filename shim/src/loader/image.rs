//! The symbol table of a loaded object.
//! Touches: the object's image in memory, read-only. Never: dlsym and its kin, malloc.
//! Law: only the image's own tables are followed.

use crate::loader::elf::Object;

/// An ELF image in memory.
///
/// Its law is the contract of `new`: the caller guarantees that the image is mapped and well
/// formed, so that following its own tables is sound.
pub(super) struct Image {
    base: usize,
    pub(super) strings: usize,
    pub(super) symbols: usize,
    pub(super) versions: Option<usize>,
    /// The versions that the image requires of other libraries.
    pub(super) needs: Option<usize>,
    pub(super) gnu_hash: Option<usize>,
    pub(super) sysv_hash: Option<usize>,
}

const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
const DT_VERNEED: usize = 0x6fff_fffe;
/// The bit of a symbol version that only old programs bind to.
const VERSYM_HIDDEN: u16 = 0x8000;
const STT_GNU_IFUNC: u8 = 10;

impl Image {
    /// # Safety
    /// The object is loaded, and stays so while the image is used.
    pub(super) unsafe fn new(object: &Object) -> Option<Image> {
        let mut image = Image {
            base: object.base,
            strings: 0,
            symbols: 0,
            versions: None,
            needs: None,
            gnu_hash: None,
            sysv_hash: None,
        };
        let mut entry = object.dynamic;
        loop {
            let tag: usize = image.at(entry);
            let value: usize = image.at(entry.wrapping_add(8));
            // glibc has relocated the pointers of the table, musl has not.
            let place = match value < object.base {
                true => value.wrapping_add(object.base),
                false => value,
            };
            match tag {
                0 => break,
                DT_STRTAB => image.strings = place,
                DT_SYMTAB => image.symbols = place,
                DT_VERSYM => image.versions = Some(place),
                DT_VERNEED => image.needs = Some(place),
                DT_GNU_HASH => image.gnu_hash = Some(place),
                DT_HASH => image.sysv_hash = Some(place),
                _ => {}
            }
            entry = entry.wrapping_add(16);
        }
        (image.strings != 0 && image.symbols != 0).then_some(image)
    }

    pub(super) fn at<T: Copy>(&self, address: usize) -> T {
        // SAFETY: the address is from the image's own tables (see Safety of `new`).
        unsafe { (address as *const T).read_unaligned() }
    }

    pub(super) fn word(&self, table: usize, index: u32) -> u32 {
        self.at(table.wrapping_add((index as usize).wrapping_mul(4)))
    }

    /// The address of a symbol, if the image defines it under this name.
    fn defines(&self, index: u32, name: &[u8]) -> Option<usize> {
        let symbol = self.symbols.wrapping_add((index as usize).wrapping_mul(24));
        let named: u32 = self.at(symbol);
        let section: u16 = self.at(symbol.wrapping_add(6));
        let kind: u8 = self.at::<u8>(symbol.wrapping_add(4)) & 15;
        let hidden = self.versions.is_some_and(|versions| {
            let version: u16 = self.at(versions.wrapping_add((index as usize).wrapping_mul(2)));
            version & VERSYM_HIDDEN != 0
        });
        if section == 0 || !self.is_named(named, name) || kind == STT_GNU_IFUNC || hidden {
            return None;
        }
        let value: usize = self.at(symbol.wrapping_add(8));
        Some(self.base.wrapping_add(value))
    }

    /// Whether the string at this offset is the name.
    pub(super) fn is_named(&self, offset: u32, name: &[u8]) -> bool {
        let start = self.strings.wrapping_add(offset as usize);
        let same = name
            .iter()
            .zip(start..)
            .all(|(wanted, place)| self.at::<u8>(place) == *wanted);
        same && self.at::<u8>(start.wrapping_add(name.len())) == 0
    }

    fn by_gnu_hash(&self, table: usize, name: &[u8]) -> Option<usize> {
        let buckets = self.word(table, 0);
        let first = self.word(table, 1);
        let bloom = self.word(table, 2);
        let hash = name.iter().fold(5381u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        let heads = table
            .wrapping_add(16)
            .wrapping_add((bloom as usize).wrapping_mul(8));
        let chains = heads.wrapping_add((buckets as usize).wrapping_mul(4));
        let mut index = self.word(heads, hash.checked_rem(buckets)?);
        if index < first {
            return None;
        }
        loop {
            let other = self.word(chains, index.wrapping_sub(first));
            if other | 1 == hash | 1
                && let Some(address) = self.defines(index, name)
            {
                return Some(address);
            }
            if other & 1 == 1 {
                return None;
            }
            index = index.wrapping_add(1);
        }
    }

    fn by_sysv_hash(&self, table: usize, name: &[u8]) -> Option<usize> {
        let hash = name.iter().fold(0u32, |hash, byte| {
            let hash = hash.wrapping_shl(4).wrapping_add(u32::from(*byte));
            let top = hash & 0xf000_0000;
            (hash ^ (top >> 24)) & !top
        });
        let buckets = self.word(table, 0);
        let chains = 2u32.wrapping_add(buckets);
        let mut index = self.word(table, 2u32.wrapping_add(hash.checked_rem(buckets)?));
        while index != 0 {
            if let Some(address) = self.defines(index, name) {
                return Some(address);
            }
            index = self.word(table, chains.wrapping_add(index));
        }
        None
    }
}

/// The address of a symbol that an object itself defines.
///
/// # Safety
/// The object is loaded, and stays so during the call.
pub(crate) unsafe fn symbol(object: &Object, name: &[u8]) -> Option<usize> {
    // SAFETY: the caller guarantees that the object stays loaded.
    let image = unsafe { Image::new(object) }?;
    match (image.gnu_hash, image.sysv_hash) {
        (Some(table), _) => image.by_gnu_hash(table, name),
        (None, Some(table)) => image.by_sysv_hash(table, name),
        (None, None) => None,
    }
}
