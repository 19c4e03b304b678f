//! The release of a libgpuslice.so, and whether that library understands a slice of this release.
//! Touches: the library's file, by `pread`. Law: the file may contain anything, so every number in
//! it is bounded before it is used.

use gpuslice_config::{ledger, slice};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// This release.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// What a library states about itself, in a section of its file (`shim/src/slice/release.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    release: String,
    /// The version of the ledger's layout.
    ledger: u64,
    /// The newest version of slice files.
    slice: u64,
    /// The keys and words of slice files, one a line.
    terms: String,
}

/// Why a library cannot be used with a slice of this release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The file has no such section.
    #[error(
        "does not state its release, so it may not understand a slice of gpuslice {RELEASE}: {FIX}"
    )]
    Unstated,
    /// The library reads older slice files only.
    #[error(
        "is from gpuslice {0}, which does not read the slice files of gpuslice {RELEASE}: {FIX}"
    )]
    SliceFile(String),
    /// The library's ledgers have another layout.
    #[error("is from gpuslice {0}, which does not read the ledgers of gpuslice {RELEASE}: {FIX}")]
    Ledger(String),
    /// The library does not know a key or a word of the slice file.
    #[error(
        "is from gpuslice {release}, which does not understand \"{term}\" in a slice file of gpuslice \
         {RELEASE}: {FIX}"
    )]
    Term {
        /// The library's release.
        release: String,
        /// The key or word.
        term: String,
    },
}

const FIX: &str = "install both from one package";

impl Statement {
    /// Reads the statement of a library.
    ///
    /// # Errors
    /// [`Misfit::Unstated`] when the file has none.
    pub fn of(library: &File) -> Result<Statement, Misfit> {
        section(library)
            .as_deref()
            .and_then(Statement::parse)
            .ok_or(Misfit::Unstated)
    }

    fn parse(section: &[u8]) -> Option<Statement> {
        let (ledger, rest) = section.split_first_chunk()?;
        let (slice, text) = rest.split_first_chunk()?;
        let (release, terms) = std::str::from_utf8(text).ok()?.split_once('\n')?;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-+".contains(letter);
        (release.len() <= 32 && release.chars().all(is_plain)).then(|| Statement {
            release: release.to_owned(),
            ledger: u64::from_le_bytes(*ledger),
            slice: u64::from_le_bytes(*slice),
            terms: terms.to_owned(),
        })
    }

    /// Checks that the library understands a slice file of this release, and its ledger.
    ///
    /// # Errors
    /// [`Misfit`] names both releases.
    pub fn understands(&self, file: &str) -> Result<(), Misfit> {
        let release = || self.release.clone();
        if self.slice < slice::VERSION {
            return Err(Misfit::SliceFile(release()));
        }
        if self.ledger != u64::from(ledger::VERSION) {
            return Err(Misfit::Ledger(release()));
        }
        let is_known = |term: &String| self.terms.lines().any(|known| known == term);
        let mut terms = slice::terms_of(file).into_iter();
        match terms.find(|term| !is_known(term)) {
            Some(term) => Err(Misfit::Term {
                release: release(),
                term,
            }),
            None => Ok(()),
        }
    }

    /// The library's release, if gpuslice does not promise that it works with this one.
    #[must_use]
    pub fn other_release(&self) -> Option<&str> {
        (series(&self.release) != series(RELEASE)).then_some(&self.release)
    }
}

/// The releases that work with each other: those of a minor version before 1.0, and of a major
/// version from then on.
fn series(release: &str) -> (&str, Option<&str>) {
    let mut numbers = release.split('.');
    match numbers.next() {
        Some("0") => ("0", numbers.next()),
        major => (major.unwrap_or_default(), None),
    }
}

/// The name of the section that states the release.
const SECTION: &[u8] = b".gpuslice\0";

/// The most section headers, and the longest section, that are read.
const SECTIONS: u16 = 256;
const LONGEST: u64 = 16 << 10;

/// The contents of the section; None if the file has none.
fn section(library: &File) -> Option<Vec<u8>> {
    let header: [u8; 64] = bytes(library, 0)?;
    let first = u64_in(&header, 40)?;
    let number = |at: usize| Some(u16::from_le_bytes(*header.get(at..)?.first_chunk()?));
    let (count, names) = (number(60)?, number(62)?);
    let header_of = |index: u16| {
        let at = first.checked_add(u64::from(index).checked_mul(64)?)?;
        bytes::<64>(library, at)
    };
    let names = u64_in(&header_of(names)?, 24)?;
    let is_ours = |header: &[u8; 64]| {
        let name = u32::from_le_bytes(*header.first_chunk()?);
        let name = bytes::<10>(library, names.checked_add(u64::from(name))?)?;
        (name == SECTION).then_some(())
    };
    let mut headers = (0..count.min(SECTIONS)).map_while(header_of);
    let found = headers.find(|header| is_ours(header).is_some())?;
    let (offset, length) = (u64_in(&found, 24)?, u64_in(&found, 32)?);
    let mut contents = vec![0; usize::try_from(length.min(LONGEST)).ok()?];
    library.read_exact_at(&mut contents, offset).ok()?;
    Some(contents)
}

fn u64_in(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn bytes<const N: usize>(library: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    library.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn statement(release: &str, terms: &str) -> Statement {
        Statement {
            release: release.to_owned(),
            ledger: ledger::VERSION.into(),
            slice: 1,
            terms: terms.to_owned(),
        }
    }

    #[test]
    fn a_library_that_does_not_know_a_key_or_a_word_is_refused() {
        let file = r#"{"version":1,"total":"device"}"#;
        let older = |terms| statement("0.0.1", terms).understands(file);
        assert_eq!(older("version\ntotal\ntotal=slice\ntotal=device\n"), Ok(()));
        let refused = older("version\ntotal\ntotal=slice\n").unwrap_err();
        let message = format!(
            "is from gpuslice 0.0.1, which does not understand \"total=device\" in a slice file of \
             gpuslice {RELEASE}: install both from one package"
        );
        assert_eq!(refused.to_string(), message);
        assert!(older("version\n").is_err());
    }

    #[test]
    fn a_library_of_another_ledger_or_of_older_slice_files_is_refused() {
        let mut other = statement("9.9.9", "version\n");
        let file = r#"{"version":1}"#;
        assert_eq!(other.understands(file), Ok(()));
        other.ledger += 1;
        assert_eq!(
            other.understands(file),
            Err(Misfit::Ledger("9.9.9".to_owned()))
        );
        other.slice = 0;
        assert_eq!(
            other.understands(file),
            Err(Misfit::SliceFile("9.9.9".to_owned()))
        );
    }

    #[test]
    fn the_releases_of_a_series_are_promised_to_work_together() {
        for (one, other, together) in [
            ("0.2.0", "0.2.7", true),
            ("0.2.0", "0.3.0", false),
            ("1.2.0", "1.9.3", true),
            ("1.2.0", "2.2.0", false),
            ("0.2.0", "1.2.0", false),
            ("0.2.0-rc.1", "0.2.0", true),
        ] {
            assert_eq!(series(one) == series(other), together, "{one} {other}");
        }
        assert_eq!(statement(RELEASE, "").other_release(), None);
        assert_eq!(statement("99.0.0", "").other_release(), Some("99.0.0"));
    }

    #[test]
    fn a_library_without_the_section_states_nothing() {
        let file = File::open("/proc/self/exe").unwrap();
        assert_eq!(Statement::of(&file), Err(Misfit::Unstated));
    }

    proptest::proptest! {
        #[test]
        fn a_garbled_file_is_read_or_refused_without_a_panic(
            changes in proptest::collection::vec((0usize..4096, proptest::num::u8::ANY), 1..40),
            in_text in proptest::collection::vec((0usize..28, proptest::num::u8::ANY), 1..10),
            length in prop::sample::select([0, 63, 64, 4096, 1 << 20].as_slice()),
        ) {
            let mut text = std::fs::read("/bin/true").unwrap();
            let mut stated = [&3u64.to_le_bytes()[..], &1u64.to_le_bytes(), b"0.2.0\nversion\n"].concat();
            for (at, byte) in changes {
                text[at] = byte;
                // The section headers are at the end of the file.
                if let Some(last) = text.iter_mut().rev().nth(at) {
                    *last = byte;
                }
            }
            for (at, byte) in in_text {
                stated[at] = byte;
            }
            let _ = Statement::parse(&stated);
            text.truncate(length);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&text).unwrap();
            let _ = Statement::of(&file);
        }
    }
}
