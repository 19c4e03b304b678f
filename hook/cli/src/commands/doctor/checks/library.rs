//! Checks the copy of the library that a process has loaded.
//! Touches: its file, and the files of libraries that LD_PRELOAD names in front of it, by reading them.

use super::{Case, container};
use crate::base::text::escaped_path;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::process::ProcessFacts;
use crate::commands::doctor::process::maps::MappedFile;
use crate::commands::doctor::process::root::For;
use crate::driver::preload;
use gpuslice_host::base::elf::Elf;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    found.extend(in_front(case));
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

/// Finds a preloaded library with a `dlsym` of its own that ld.so searches before this one. Programs
/// then look the driver's functions up through that one. /etc/ld.so.preload follows LD_PRELOAD.
fn in_front(case: &Case<'_>) -> Option<Finding> {
    let listed = case.process.environment.get(preload::VARIABLE.as_bytes())?;
    let listed = listed
        .as_bytes()
        .split(|byte| matches!(byte, b' ' | b':'))
        .map(|name| Path::new(OsStr::from_bytes(name)));
    let own = |name: &&Path| name.file_name() != Some(OsStr::new(preload::LIBRARY));
    let mut before = listed.take_while(own).filter_map(|name| {
        let mut files = case.process.maps.files.iter();
        // A name without a folder, or a path with links, is known by its last part.
        let mut same_name = files
            .clone()
            .filter(|it| it.path.file_name() == name.file_name());
        files
            .find(|it| it.path == name)
            .or_else(|| same_name.next())
    });
    let first = before.find(|file| {
        let opened = open(case.process, file);
        opened.is_some_and(|file| Elf::read(&file).is_some_and(|elf| elf.defines(b"dlsym")))
    })?;
    let sentence = format!(
        "LD_PRELOAD of {} names {} in front of libgpuslice.so, and that library has a dlsym of its \
         own: what programs look up may be the driver's functions",
        case.who(),
        escaped_path(&first.path)
    );
    Some(Finding::new(Code::DlsymInFront, sentence))
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
