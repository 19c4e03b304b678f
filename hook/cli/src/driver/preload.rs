//! Finds libgpuslice.so, and puts it first in LD_PRELOAD.
//! Touches: the file system, by reading it; a short-lived mapping of the library.

use crate::base::text;
use gpuslice_host::base::elf::{Elf, Machine};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The variable that names preloaded libraries.
pub(crate) const VARIABLE: &str = "LD_PRELOAD";

/// The library's file name.
pub(crate) const LIBRARY: &str = "libgpuslice.so";

/// The machine type that this library is built for.
pub(crate) const MACHINE: Machine = Machine(if cfg!(target_arch = "aarch64") {
    183
} else {
    62
});

/// The folder in which packages install it.
pub(crate) const INSTALLED: &str = "/usr/lib/gpuslice";

/// Reasons why there is no library to preload.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreloadError {
    /// The preload library is missing.
    #[error(
        "there is no libgpuslice.so in {}: install gpuslice again, or in its source tree run make",
        text::alternatives(.looked_in)
    )]
    NoLibrary {
        /// Every folder that was searched.
        looked_in: Vec<PathBuf>,
    },
    /// The library exists, but ld.so would only print a warning and start the program without it.
    #[error("{path} cannot be preloaded: {why}")]
    Unloadable {
        /// The library's path.
        path: PathBuf,
        /// The reason why ld.so cannot load it, and the fix.
        why: String,
    },
    /// LD_PRELOAD cannot name the library.
    #[error(transparent)]
    Unnameable(#[from] Unnameable),
}

/// A path that a list in an environment variable cannot hold.
#[derive(Debug, thiserror::Error)]
#[error(
    "{variable} cannot name {path}: it has a space, a colon or a variable of ld.so \
     ($ORIGIN, $LIB, $PLATFORM); install gpuslice elsewhere"
)]
pub(crate) struct Unnameable {
    pub path: PathBuf,
    /// The environment variable.
    pub variable: &'static str,
}

/// Returns the folders in which the files of an executable in `beside` may be installed: first the
/// folder under the executable's own prefix, then the usual one.
#[must_use]
pub(crate) fn installed(beside: &Path) -> [PathBuf; 2] {
    let prefix = beside.parent().unwrap_or(beside);
    [prefix.join("lib/gpuslice"), INSTALLED.into()]
}

/// Finds the library: in the executable's folder, or where packages install it.
///
/// # Errors
/// When the library is in neither place, or its path is one that LD_PRELOAD cannot name.
pub(crate) fn find(beside: &Path) -> Result<PathBuf, PreloadError> {
    let mut looked_in = vec![beside.to_owned()];
    looked_in.extend(installed(beside));
    looked_in.dedup();
    // A library that this user cannot read counts as found. Searching on could find another
    // version.
    let is_there = |path: &PathBuf| match path.metadata() {
        Ok(facts) => facts.is_file(),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    };
    let mut paths = looked_in.iter().map(|folder| folder.join(LIBRARY));
    let found = paths
        .find(is_there)
        .ok_or(PreloadError::NoLibrary { looked_in })?;
    let separates = |byte: &u8| SEPARATORS.contains(byte);
    if found.as_os_str().as_bytes().iter().any(separates) || is_expanded(&found) {
        return Err(Unnameable {
            path: found,
            variable: VARIABLE,
        }
        .into());
    }
    match loadable(&found) {
        Ok(()) => Ok(found),
        Err(why) => Err(PreloadError::Unloadable { path: found, why }),
    }
}

/// Checks whether the path contains a variable that ld.so expands in LD_PRELOAD and
/// LD_LIBRARY_PATH.
pub(crate) fn is_expanded(path: &Path) -> bool {
    const VARIABLES: [&[u8]; 3] = [b"ORIGIN", b"LIB", b"PLATFORM"];
    let mut parts = path.as_os_str().as_bytes().split(|byte| *byte == b'$');
    // The part before the first dollar sign cannot start with a variable.
    parts.next();
    parts.any(|rest| {
        let rest = rest.strip_prefix(b"{").unwrap_or(rest);
        VARIABLES.iter().any(|name| rest.starts_with(name))
    })
}

/// A function that distinguishes this library from any other with its file name.
const OURS: &[u8] = b"cuMemGetInfo_v2";

/// Checks that the library is gpuslice's, and that its start can be mapped as ld.so will map it. If
/// ld.so cannot map it, it starts the program without the library.
fn loadable(library: &Path) -> Result<(), String> {
    let file = File::open(library).map_err(|error| error.to_string())?;
    let mut start = [0; 5];
    if file.read_at(&mut start, 0).is_ok() && start == *b"\x7fELF\x01" {
        return Err("it is a 32-bit library".to_owned());
    }
    let elf = Elf::read(&file).ok_or("it is not a library: install gpuslice again")?;
    if elf.machine() != MACHINE {
        return Err("it is built for another kind of processor".to_owned());
    }
    if file
        .metadata()
        .is_ok_and(|facts| facts.len() < elf.length())
    {
        return Err("it is cut short: install gpuslice again".to_owned());
    }
    if elf.soname().as_deref() != Some(LIBRARY.as_bytes()) || !elf.defines(OURS) {
        return Err("it is another library of that name: install gpuslice again".to_owned());
    }
    let code = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
    // SAFETY: a new mapping at an address that the kernel chooses; nothing reads it.
    let mapped = unsafe {
        mmap(
            None,
            NonZero::<usize>::MIN,
            code,
            MapFlags::MAP_PRIVATE,
            &file,
            0,
        )
    };
    match mapped {
        Ok(start) => {
            // SAFETY: the mapping that was just made, which nothing refers to.
            let _ = unsafe { munmap(start, 1) };
            Ok(())
        }
        Err(error) if is_noexec(library) => Err(format!(
            "its file system is mounted noexec ({}): install gpuslice elsewhere, or mount it with \
             exec",
            error.desc()
        )),
        Err(error) => Err(format!("it cannot be mapped as code: {}", error.desc())),
    }
}

/// Returns the file or folder whose mode prevents other users from reading the library; None if
/// they can read it.
#[must_use]
pub(crate) fn closed_to_others(library: &Path) -> Option<PathBuf> {
    const READ: u32 = 0o004;
    const SEARCH: u32 = 0o001;
    let lacks = |path: &Path, right: u32| {
        let facts = fs::metadata(path);
        facts.is_ok_and(|facts| facts.mode() & right == 0)
    };
    // Links are resolved, as ld.so does.
    let real = fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
    let folders = library.ancestors().skip(1).chain(real.ancestors().skip(1));
    let mut closed = folders.filter(|folder| lacks(folder, SEARCH));
    let file = lacks(&real, READ).then_some(library);
    file.or_else(|| closed.next()).map(Path::to_owned)
}

fn is_noexec(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.flags().contains(FsFlags::ST_NOEXEC))
}

/// The characters that end a name in LD_PRELOAD.
const SEPARATORS: [u8; 2] = [b' ', b':'];

fn entries(existing: &OsStr) -> impl Iterator<Item = &[u8]> {
    existing
        .as_bytes()
        .split(|byte| SEPARATORS.contains(byte))
        .filter(|entry| !entry.is_empty())
}

fn is_called(entry: &[u8], start: &str) -> bool {
    let name = entry.rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| name.starts_with(start.as_bytes()))
}

/// Returns LD_PRELOAD with the library first. AddressSanitizer is the exception: it refuses to run
/// after any other library, so it keeps the first place.
#[must_use]
pub(crate) fn with_library(existing: Option<&OsStr>, library: &Path) -> OsString {
    let library = library.as_os_str().as_bytes();
    let others: Vec<&[u8]> = entries(existing.unwrap_or_default())
        .filter(|entry| !is_called(entry, LIBRARY))
        .collect();
    let asan = usize::from(others.first().is_some_and(|it| is_called(it, "libasan")));
    let (first, rest) = others.split_at(asan);
    let ordered: Vec<&[u8]> = first
        .iter()
        .chain(std::iter::once(&library))
        .chain(rest)
        .copied()
        .collect();
    OsString::from_vec(ordered.join(&b':'))
}

/// Returns LD_PRELOAD without the library; None if nothing is left.
#[must_use]
pub(crate) fn without_library(existing: &OsStr) -> Option<OsString> {
    let others: Vec<&[u8]> = entries(existing)
        .filter(|entry| !is_called(entry, LIBRARY))
        .collect();
    (!others.is_empty()).then(|| OsString::from_vec(others.join(&b':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/opt/gpuslice/libgpuslice.so";

    fn ordered(existing: &str) -> OsString {
        with_library(Some(OsStr::new(existing)), Path::new(OURS))
    }

    #[test]
    fn the_library_comes_first_and_what_was_there_stays() {
        assert_eq!(with_library(None, Path::new(OURS)), OURS);
        assert_eq!(ordered(""), OURS);
        assert_eq!(
            ordered("libjemalloc.so.2 /a/libb.so"),
            OsStr::new(&format!("{OURS}:libjemalloc.so.2:/a/libb.so"))
        );
    }

    #[test]
    fn address_sanitizer_keeps_its_first_place() {
        assert_eq!(
            ordered("/usr/lib/libasan.so.8:libx.so"),
            OsStr::new(&format!("/usr/lib/libasan.so.8:{OURS}:libx.so"))
        );
        assert_eq!(
            ordered("libx.so:libasan.so.8"),
            OsStr::new(&format!("{OURS}:libx.so:libasan.so.8"))
        );
    }

    #[test]
    fn ld_so_expands_its_own_variables_and_no_others() {
        for (path, is_expanded) in [
            ("/opt/a$LIB/x", true),
            ("/opt/$LIBRARY", true),
            ("/opt/${PLATFORM}", true),
            ("/opt/$ORIGIN", true),
            ("/opt/a$b/$", false),
            ("/opt/LIB", false),
        ] {
            assert_eq!(super::is_expanded(Path::new(path)), is_expanded, "{path}");
        }
    }

    #[test]
    fn a_run_inside_a_run_loads_the_library_once() {
        assert_eq!(
            ordered(&format!("/elsewhere/libgpuslice.so:{OURS}:libx.so")),
            OsStr::new(&format!("{OURS}:libx.so"))
        );
        assert_eq!(without_library(OsStr::new(OURS)), None);
        assert_eq!(
            without_library(OsStr::new("libx.so:/elsewhere/libgpuslice.so")),
            Some(OsString::from("libx.so"))
        );
    }
}
