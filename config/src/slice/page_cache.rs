//! Defines model files by name and size, and the treatment of their pages in the page cache.
//! Touches: its arguments.

use super::SliceFault;
use crate::words::text::Text;
use crate::words::units::Bytes;

/// The treatment of a model file's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageCache {
    /// The pages stay cached, as without gpuslice.
    #[default]
    Keep,
    /// Evicts the file from the page cache once the process has closed and unmapped it.
    Drop,
    /// Evicts pages while the file is loaded, a window behind the loader's position. The rest is
    /// evicted at the end.
    DropBehind,
}

/// The longest suffix.
const LONGEST: usize = 16;

/// The most suffixes that a slice lists.
pub const MAX_SUFFIXES: usize = 16;

/// The files that belong to a model: by name and size, because `.bin` and `.pth` are used for other
/// files, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    /// The size of the smallest model file.
    pub smallest: Bytes,
    suffixes: [Text<16>; MAX_SUFFIXES],
    ends: Ends,
}

/// A summary of the suffixes, which rules out most file names in a few instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The last two letters of the suffixes, one bit each.
    pub letters: u64,
    /// Whether names made of a checksum count.
    pub checksums: bool,
}

impl Ends {
    /// Whether a path may be a model file's name; [`ModelFiles::has_name`] decides.
    #[inline]
    #[must_use]
    pub fn may_be_of(self, path: &[u8]) -> bool {
        let [.., before, last] = path else {
            return false;
        };
        self.letters & end(*before, *last) != 0 || (self.checksums && may_be_checksum(path))
    }
}

/// The suffix that stands for names made of a checksum: `sha256-…` and 64 hexadecimal digits. Model
/// stores name their downloads in this way.
pub const CHECKSUM: &str = "sha256";

impl ModelFiles {
    /// The model files of a slice that does not define any.
    #[must_use]
    pub fn usual() -> ModelFiles {
        let mut files = ModelFiles {
            smallest: Bytes::mib(64),
            suffixes: [Text::EMPTY; MAX_SUFFIXES],
            ends: Ends::default(),
        };
        for suffix in ["safetensors", "gguf", "pt", "pth", "bin", "ckpt", CHECKSUM] {
            // The list has room for all of them.
            let _ = files.add(suffix);
        }
        files
    }

    /// A list without suffixes.
    #[must_use]
    pub fn none(smallest: Bytes) -> ModelFiles {
        ModelFiles {
            smallest,
            suffixes: [Text::EMPTY; MAX_SUFFIXES],
            ends: Ends::default(),
        }
    }

    /// Adds a suffix, written without its point.
    ///
    /// # Errors
    /// When it is not a valid suffix, or the list is full.
    pub fn add(&mut self, suffix: &str) -> Result<(), SliceFault> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if suffix.is_empty() || suffix.len() > LONGEST || !suffix.bytes().all(good) {
            return Err(SliceFault::Suffix(Text::new(suffix)));
        }
        let free = self
            .suffixes
            .iter_mut()
            .find(|text| text.as_bytes().is_empty());
        let Some(free) = free else {
            return Err(SliceFault::TooManySuffixes);
        };
        *free = Text::new(suffix);
        match (suffix == CHECKSUM, suffix.as_bytes()) {
            (true, _) => self.ends.checksums = true,
            (false, [.., before, last]) => self.ends.letters |= end(*before, *last),
            (false, [last]) => self.ends.letters |= end(b'.', *last),
            (false, []) => {}
        }
        Ok(())
    }

    /// The suffixes.
    pub fn suffixes(&self) -> impl Iterator<Item = &str> {
        self.suffixes
            .iter()
            .map(Text::as_str)
            .filter(|suffix| !suffix.is_empty())
    }

    /// Whether a path has the name of a model file. The caller must check its size.
    #[inline]
    #[must_use]
    pub fn has_name(&self, path: &[u8]) -> bool {
        self.ends.may_be_of(path) && self.compare(path)
    }

    /// The summary of the suffixes.
    #[must_use]
    pub fn ends(&self) -> Ends {
        self.ends
    }

    #[inline(never)]
    fn compare(&self, path: &[u8]) -> bool {
        let start = path.len().saturating_sub(LONGEST.saturating_add(1));
        let tail = path.get(start..).unwrap_or_default();
        let suffixes = self.suffixes.iter().map(Text::as_bytes);
        let mut suffixes = suffixes.take_while(|suffix| !suffix.is_empty());
        match tail.iter().rposition(|byte| matches!(byte, b'.' | b'/')) {
            Some(place) if tail.get(place) == Some(&b'.') => {
                let own = tail.get(place.saturating_add(1)..).unwrap_or_default();
                // Compare lengths first: they rule out nearly all names.
                own != CHECKSUM.as_bytes()
                    && suffixes.any(|suffix| suffix.len() == own.len() && suffix == own)
            }
            Some(_) => false,
            None => is_checksum(path) && suffixes.any(|suffix| suffix == CHECKSUM.as_bytes()),
        }
    }
}

impl Default for ModelFiles {
    fn default() -> ModelFiles {
        ModelFiles::usual()
    }
}

/// The bit of a suffix's end. Some ends share a bit, which costs a comparison. With the factor 22,
/// few files that programs often open share a bit with the usual suffixes.
#[inline]
fn end(before: u8, last: u8) -> u64 {
    1 << (u32::from(before)
        .wrapping_mul(22)
        .wrapping_add(u32::from(last))
        & 63)
}

/// The length of a SHA-256 in hexadecimal digits.
const DIGITS: usize = 64;

/// Whether a name, or the part after its `sha256-`, has that length.
#[inline]
fn may_be_checksum(path: &[u8]) -> bool {
    path.len().checked_sub(DIGITS).is_some_and(|start| {
        let before = start.checked_sub(1).and_then(|place| path.get(place));
        matches!(before, None | Some(b'/' | b'-'))
    })
}

fn is_checksum(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let digits = name.strip_prefix(b"sha256-").unwrap_or(name);
    let hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.len() == DIGITS && digits.iter().all(hexadecimal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn model_files_are_recognised_by_suffix_or_by_a_checksum_as_name() {
        let files = ModelFiles::usual();
        let digits = "0123456789abcdef".repeat(4);
        for name in [
            "model.safetensors",
            "/models/llama-00001-of-00002.safetensors",
            "q4.gguf",
            "pytorch_model.bin",
            ".pt",
            "/hub/blobs/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ] {
            assert!(files.has_name(name.as_bytes()), "{name}");
        }
        assert!(files.has_name(format!("sha256-{digits}").as_bytes()));
        for name in [
            "",
            "safetensors",
            "model.safetensors.index.json",
            "libtorch.so",
            "robin",
            "script",
            "deadbeef",
            "/tmp/x.gguf/",
            "/models.gguf/readme",
            "a.sha256",
            "gguf",
            "/models/gguf",
            "x.robin",
            "x.pin",
        ] {
            assert!(!files.has_name(name.as_bytes()), "{name}");
        }
        assert!(!files.has_name(format!("sha512-{digits}").as_bytes()));
        assert!(!files.has_name(format!("/{digits}/config").as_bytes()));
    }

    #[test]
    fn the_ends_of_the_suffixes_rule_out_most_names() {
        let ends = ModelFiles::usual().ends();
        for name in ["model.safetensors", "q4.gguf", ".pt", "x.bin", "x.ckpt"] {
            assert!(ends.may_be_of(name.as_bytes()), "{name}");
        }
        for name in ["", "t", "libcuda.so", "config.json", "module.py"] {
            assert!(!ends.may_be_of(name.as_bytes()), "{name}");
        }
        let checksum = format!("/blobs/{}", "0".repeat(DIGITS));
        assert!(ends.may_be_of(checksum.as_bytes()));
        assert!(ends.may_be_of(&checksum.as_bytes()[7..]));
        assert!(!ends.may_be_of(&checksum.as_bytes()[8..]));
        assert!(
            !ModelFiles::none(Bytes::ZERO)
                .ends()
                .may_be_of(checksum.as_bytes())
        );
    }

    #[test]
    fn a_suffix_is_a_word_without_its_point_and_there_are_sixteen_at_most() {
        let mut files = ModelFiles::none(Bytes::mib(1));
        for wrong in ["", ".gguf", "tar.gz", "a/b", "a b", "seventeen-letters"] {
            assert_eq!(
                files.add(wrong),
                Err(SliceFault::Suffix(Text::new(wrong))),
                "{wrong}"
            );
        }
        for number in 0..MAX_SUFFIXES {
            assert_eq!(files.add(&format!("s{number}")), Ok(()));
        }
        assert_eq!(files.add("more"), Err(SliceFault::TooManySuffixes));
        assert!(files.has_name(b"x.s15") && !files.has_name(b"x.s16"));
    }

    #[test]
    fn a_suffix_has_one_to_sixteen_letters() {
        let mut files = ModelFiles::none(Bytes::mib(1));
        assert_eq!(files.add("z"), Ok(()));
        assert_eq!(files.add("sixteen-letters_"), Ok(()));
        assert!(files.has_name(b"x.z") && files.has_name(b"x.sixteen-letters_"));
    }

    #[test]
    fn a_checksum_is_a_name_only_in_a_list_with_its_word() {
        let name = "0123456789abcdef".repeat(4);
        let mut with = ModelFiles::none(Bytes::mib(1));
        with.add(CHECKSUM).unwrap();
        assert!(with.has_name(name.as_bytes()));
        let mut without = ModelFiles::none(Bytes::mib(1));
        without.add("ef").unwrap();
        assert!(!without.has_name(name.as_bytes()));
    }
}
