//! Reads the parts of an ELF file that decide whether a library will load beside a libc.
//! Touches: the file, by `pread`. Law: the file comes from an image and may contain anything, so
//! every number in it is bounded before it is used.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The bound of every count of entries.
const MANY: u64 = 4096;

/// The longest name, in bytes.
const NAME: u64 = 128;

/// A machine type, as in `e_machine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine(pub u16);

/// A file, with a cache of the blocks that were read last: a few tables are read in turn.
#[derive(Debug)]
struct Reader<'a> {
    file: &'a File,
    blocks: RefCell<Vec<(u64, Vec<u8>)>>,
}

/// The bytes of one block.
const BLOCK: usize = 4096;

/// The number of blocks that are kept.
const BLOCKS: usize = 6;

impl Reader<'_> {
    fn read(&self, into: &mut [u8], at: u64) -> Option<()> {
        let mut blocks = self.blocks.borrow_mut();
        if blocks.iter().any(|block| copy(block, into, at).is_some()) {
            return Some(());
        }
        let start = at & !511;
        let mut bytes = match blocks.len() < BLOCKS {
            true => vec![0; BLOCK],
            // Evict the oldest block.
            false => blocks.remove(0).1,
        };
        bytes.resize(BLOCK, 0);
        let length = self.file.read_at(&mut bytes, start).ok()?;
        bytes.truncate(length);
        blocks.push((start, bytes));
        copy(blocks.last()?, into, at)
    }

    fn bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(&mut bytes, at)?;
        Some(bytes)
    }
}

fn copy(block: &(u64, Vec<u8>), into: &mut [u8], at: u64) -> Option<()> {
    let start = usize::try_from(at.checked_sub(block.0)?).ok()?;
    let from = block.1.get(start..)?.get(..into.len())?;
    into.copy_from_slice(from);
    Some(())
}

/// A dynamic 64-bit little-endian file.
#[derive(Debug)]
pub struct Elf<'a> {
    file: Reader<'a>,
    machine: Machine,
    /// The loaded segments: address, file offset, length.
    loaded: Vec<(u64, u64, u64)>,
    dynamic: Vec<(u64, u64)>,
    /// The loader's path in the file: offset, length.
    interpreter: Option<(u64, u64)>,
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERP: u32 = 3;

const STRTAB: u64 = 5;
const SYMTAB: u64 = 6;
const SONAME: u64 = 14;
const GNU_HASH: u64 = 0x6fff_fef5;
const VERDEF: u64 = 0x6fff_fffc;
const VERNEED: u64 = 0x6fff_fffe;

fn u16_in(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_in(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_in(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl<'a> Elf<'a> {
    /// Reads the headers. Returns `None` if the file is not such an ELF file.
    #[must_use]
    pub fn read(file: &'a File) -> Option<Elf<'a>> {
        let file = Reader {
            file,
            blocks: RefCell::default(),
        };
        let header: [u8; 64] = file.bytes(0)?;
        // The ELF magic number, the 64-bit class and little-endian byte order.
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (first, length) = (u64_in(&header, 32)?, u64::from(u16_in(&header, 54)?));
        let count = u64::from(u16_in(&header, 56)?).min(MANY);
        let mut elf = Elf {
            file,
            machine: Machine(u16_in(&header, 18)?),
            loaded: Vec::new(),
            dynamic: Vec::new(),
            interpreter: None,
        };
        let mut dynamic = None;
        for index in 0..count {
            let at = first.checked_add(index.checked_mul(length)?)?;
            let entry: [u8; 56] = elf.file.bytes(at)?;
            let place = (u64_in(&entry, 8)?, u64_in(&entry, 32)?);
            match u32_in(&entry, 0)? {
                LOAD => elf.loaded.push((u64_in(&entry, 16)?, place.0, place.1)),
                DYNAMIC => dynamic = Some(place),
                INTERP => elf.interpreter = Some(place),
                _ => {}
            }
        }
        if let Some((at, length)) = dynamic {
            elf.read_dynamic(at, length)?;
        }
        Some(elf)
    }

    fn read_dynamic(&mut self, at: u64, length: u64) -> Option<()> {
        for index in 0..(length / 16).min(MANY) {
            let entry: [u8; 16] = self.file.bytes(at.checked_add(index.checked_mul(16)?)?)?;
            let (tag, value) = (u64_in(&entry, 0)?, u64_in(&entry, 8)?);
            if tag == 0 {
                break;
            }
            self.dynamic.push((tag, value));
        }
        Some(())
    }

    /// The machine that the file is built for.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The length that the file needs so that the loader can map all of it.
    #[must_use]
    pub fn length(&self) -> u64 {
        let ends = self.loaded.iter();
        let ends = ends.map(|(_, offset, length)| offset.saturating_add(*length));
        ends.max().unwrap_or_default()
    }

    /// The name by which other files need it, if it is a library.
    #[must_use]
    pub fn soname(&self) -> Option<Vec<u8>> {
        let (_, offset) = self.dynamic.iter().find(|(tag, _)| *tag == SONAME)?;
        self.name(u32::try_from(*offset).ok()?)
    }

    /// Whether a dynamic loader starts it, if it is a program.
    #[must_use]
    pub fn has_loader(&self) -> bool {
        self.interpreter.is_some()
    }

    /// The path of the dynamic loader that starts it, if it is a program.
    #[must_use]
    pub fn interpreter(&self) -> Option<Vec<u8>> {
        let (at, length) = self.interpreter?;
        let mut path = Vec::new();
        for place in 0..length.min(MANY) {
            match self.file.bytes(at.checked_add(place)?)? {
                [0] => break,
                [byte] => path.push(byte),
            }
        }
        Some(path)
    }

    /// Finds the file offset of the table with that tag. Before loading, the tag's value is an
    /// address.
    fn table(&self, tag: u64) -> Option<u64> {
        let (_, address) = self.dynamic.iter().find(|(known, _)| *known == tag)?;
        self.loaded.iter().find_map(|(start, offset, length)| {
            let inside = address.checked_sub(*start)?;
            (inside < *length).then(|| offset.checked_add(inside))?
        })
    }

    fn name(&self, offset: u32) -> Option<Vec<u8>> {
        let at = self.table(STRTAB)?.checked_add(u64::from(offset))?;
        let mut name = Vec::new();
        for place in 0..NAME {
            let [byte] = self.file.bytes(at.checked_add(place)?)?;
            match byte {
                0 => return Some(name),
                byte => name.push(byte),
            }
        }
        None
    }

    fn symbol(&self, index: u64) -> Option<[u8; 24]> {
        let at = self.table(SYMTAB)?.checked_add(index.checked_mul(24)?)?;
        self.file.bytes(at)
    }

    /// The undefined symbols, without which the file does not load. They precede the defined
    /// symbols.
    #[must_use]
    pub fn undefined(&self) -> Option<Vec<Vec<u8>>> {
        const GLOBAL: u8 = 1;
        let hash: [u8; 16] = self.file.bytes(self.table(GNU_HASH)?)?;
        let end = u64::from(u32_in(&hash, 4)?).min(MANY);
        let mut names = Vec::new();
        for index in 1..end {
            let symbol = self.symbol(index)?;
            if symbol.get(4)? >> 4 == GLOBAL && u16_in(&symbol, 6)? == 0 {
                names.push(self.name(u32_in(&symbol, 0)?)?);
            }
        }
        Some(names)
    }

    /// Whether the file defines a symbol, in any version. The hash table lists only defined
    /// symbols, with 31 bits of each name's hash. Comparing the names as well would read ten times
    /// as much of the file, and an image that lies harms only itself.
    #[must_use]
    pub fn defines(&self, name: &[u8]) -> bool {
        self.find(name).is_some()
    }

    /// Looks a name up as the loader does, in the hash table.
    fn find(&self, name: &[u8]) -> Option<()> {
        let step = |sum: u32, byte: &u8| sum.wrapping_mul(33).wrapping_add(u32::from(*byte));
        let wanted = name.iter().fold(5381, step);
        let table = self.table(GNU_HASH)?;
        let header: [u8; 16] = self.file.bytes(table)?;
        let (buckets, first) = (u32_in(&header, 0)?, u32_in(&header, 4)?);
        let filter = u64::from(u32_in(&header, 8)?).checked_mul(8)?;
        let buckets_at = table.checked_add(16)?.checked_add(filter)?;
        let bucket = u64::from(wanted.checked_rem(buckets)?).checked_mul(4)?;
        let start: [u8; 4] = self.file.bytes(buckets_at.checked_add(bucket)?)?;
        let start = u32::from_le_bytes(start).checked_sub(first)?;
        let chains = buckets_at.checked_add(u64::from(buckets).checked_mul(4)?)?;
        for step in 0..MANY {
            let place = u64::from(start).checked_add(step)?;
            let hash: [u8; 4] = self
                .file
                .bytes(chains.checked_add(place.checked_mul(4)?)?)?;
            let hash = u32::from_le_bytes(hash);
            if hash | 1 == wanted | 1 {
                return Some(());
            }
            if hash & 1 == 1 {
                return None;
            }
        }
        None
    }

    /// The versions of other libraries that it needs.
    #[must_use]
    pub fn needed_versions(&self) -> Option<Vec<Vec<u8>>> {
        let Some(mut at) = self.table(VERNEED) else {
            return Some(Vec::new());
        };
        let mut versions = Vec::new();
        for _ in 0..MANY {
            let entry: [u8; 16] = self.file.bytes(at)?;
            let mut of = at.checked_add(u64::from(u32_in(&entry, 8)?))?;
            for _ in 0..u16_in(&entry, 2)? {
                let needed: [u8; 16] = self.file.bytes(of)?;
                versions.push(self.name(u32_in(&needed, 8)?)?);
                of = of.checked_add(u64::from(u32_in(&needed, 12)?))?;
            }
            match u32_in(&entry, 12)? {
                0 => break,
                next => at = at.checked_add(u64::from(next))?,
            }
        }
        Some(versions)
    }

    /// The symbol versions that it defines.
    #[must_use]
    pub fn defined_versions(&self) -> Option<Vec<Vec<u8>>> {
        let Some(mut at) = self.table(VERDEF) else {
            return Some(Vec::new());
        };
        let mut versions = Vec::new();
        for _ in 0..MANY {
            let entry: [u8; 20] = self.file.bytes(at)?;
            let name_at = at.checked_add(u64::from(u32_in(&entry, 12)?))?;
            let name: [u8; 4] = self.file.bytes(name_at)?;
            versions.push(self.name(u32::from_le_bytes(name))?);
            match u32_in(&entry, 16)? {
                0 => break,
                next => at = at.checked_add(u64::from(next))?,
            }
        }
        Some(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn libc() -> File {
        let paths = ["/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"];
        let mut found = paths
            .iter()
            .map(|place| File::open(format!("{place}/libc.so.6")));
        found.find_map(Result::ok).unwrap()
    }

    #[test]
    fn a_real_libc_says_what_it_defines_and_of_which_age_it_is() {
        let file = libc();
        let elf = Elf::read(&file).unwrap();
        for name in ["secure_getenv", "memcpy", "dl_iterate_phdr"] {
            assert!(elf.defines(name.as_bytes()), "{name}");
        }
        assert!(!elf.defines(b"cuMemGetInfo_v2"));
        assert_eq!(elf.soname(), Some(b"libc.so.6".to_vec()));
        assert!(elf.length() > 1 << 20 && elf.length() <= file.metadata().unwrap().len());
        let versions = elf.defined_versions().unwrap();
        assert!(versions.contains(&b"GLIBC_2.17".to_vec()), "{versions:?}");
        assert!(!versions.contains(&b"GLIBC_2.999".to_vec()));
    }

    #[test]
    fn what_a_program_needs_is_named() {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = Elf::read(&file).unwrap();
        assert!(elf.has_loader());
        let versions = elf.needed_versions().unwrap();
        assert!(
            versions
                .iter()
                .any(|version| version.starts_with(b"GLIBC_"))
        );
    }

    /// Reads everything that can be read.
    fn read_all(text: &[u8]) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        if let Some(elf) = Elf::read(&file) {
            let _ = (
                elf.undefined(),
                elf.length(),
                elf.soname(),
                elf.needed_versions(),
                elf.defined_versions(),
            );
            let _ = elf.defines(b"memcpy");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_garbled_file_is_read_or_refused_without_a_panic(
            changes in proptest::collection::vec((0usize..4096, proptest::num::u8::ANY), 1..40),
            length in 0usize..60_000,
        ) {
            let mut text = std::fs::read("/bin/true").unwrap();
            for (at, byte) in changes {
                text[at] = byte;
            }
            text.truncate(length);
            read_all(&text);
        }
    }
}
