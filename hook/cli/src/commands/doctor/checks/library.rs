//! Checks the copy of the library that a process has loaded.
//! Touches: the file, by reading its first bytes.

use super::{Case, container};
use crate::base::text::escaped_path;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::process::ProcessFacts;
use crate::commands::doctor::process::maps::MappedFile;
use crate::commands::doctor::process::root::For;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// Adds the findings about the library of a process.
pub(super) fn check(case: &Case<'_>, found: &mut Vec<Finding>) {
    let who = case.who();
    let libraries = case.process.maps.libraries();
    if let [one, other, ..] = libraries.as_slice()
        && one.identity != other.identity
    {
        let sentence = format!(
            "{who} has loaded two copies of the library: {} and {}",
            escaped_path(&one.path),
            escaped_path(&other.path)
        );
        found.push(Finding::new(Code::LibraryTwice, sentence));
    }
    for library in libraries.iter().filter(|library| library.is_deleted) {
        let path = escaped_path(&library.path);
        let sentence = match case.process.root.has(&library.path) {
            true => format!("{path} was replaced since {who} loaded it"),
            false => format!(
                "{path} was removed since {who} loaded it; programs that it starts have no limit"
            ),
        };
        let fix = match case.process.root.has(&library.path) {
            true => Code::LibraryReplaced.fix(),
            false => "install gpuslice again",
        };
        found.push(Finding::new(Code::LibraryReplaced, sentence).with_fix(fix));
    }
    if !case.is_mounted()
        && let Some(difference) = other_build(case)
    {
        found.push(Finding::new(Code::LibraryOtherBuild, difference));
    }
    if case.is_mounted()
        && let Some(edited) = container::preload_file(case)
    {
        let edited = format!("{edited}; programs that start now have no limit");
        found.push(Finding::warning(Code::PreloadFileEdited, edited));
    }
}

/// Compares the loaded library with the installed one.
fn other_build(case: &Case<'_>) -> Option<String> {
    let installed = case.installed?;
    let libraries = case.process.maps.libraries();
    let loaded = libraries.iter().find(|library| !library.is_deleted)?;
    let theirs = open(case.process, loaded)?;
    let ours = File::open(installed).ok()?;
    let identity = |file: &File| {
        let facts = file.metadata().ok()?;
        Some((facts.dev(), facts.ino()))
    };
    if identity(&theirs) == identity(&ours) {
        return None;
    }
    let (theirs, ours) = (build_id(&theirs)?, build_id(&ours)?);
    (theirs != ours).then(|| {
        format!(
            "{} has loaded {} (build {}), and this gpuslice has {} (build {})",
            case.who(),
            escaped_path(&loaded.path),
            short(&theirs),
            escaped_path(installed),
            short(&ours)
        )
    })
}

fn open(process: &ProcessFacts, library: &MappedFile) -> Option<File> {
    let file = process
        .root
        .file(&library.path, process.creds, For::Reading);
    file.ok()
}

/// Returns the build id of the library that a process has loaded.
pub(in super::super) fn build_of(process: &ProcessFacts) -> Option<String> {
    let libraries = process.maps.libraries();
    build_id(&open(process, libraries.first()?)?)
}

/// The letters of a build id that are shown.
const SHOWN: usize = 12;

fn short(id: &str) -> &str {
    id.get(..SHOWN).unwrap_or(id)
}

/// The bytes at the start of a library that hold its notes.
const START: u64 = 64 << 10;

/// The header of the note with a build id of 20 bytes: lengths of name and id, type, name.
const NOTE: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

/// Returns the id that the linker computed from the contents of the file.
fn build_id(file: &File) -> Option<String> {
    let mut start = Vec::new();
    file.take(START).read_to_end(&mut start).ok()?;
    let at = start.windows(NOTE.len()).position(|part| part == NOTE)?;
    let id = start.get(at.checked_add(NOTE.len())?..)?.get(..20)?;
    Some(id.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
