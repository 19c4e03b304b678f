//! Where libgpuslice.so is, and how it comes first in LD_PRELOAD.
//! Touches: the file system, to look; a mapping of the library, for a moment.

use crate::environment::EnvironmentError;
use crate::program::MACHINE;
use gpuslice_oci::elf::Elf;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::num::NonZero;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The library.
pub const LIBRARY: &str = "libgpuslice.so";

/// Where packages put it.
pub const INSTALLED: &str = "/usr/lib/gpuslice";

/// Where things are that belong to an executable in `beside`: as packages put them under any
/// prefix, and then as they put them under the usual one.
#[must_use]
pub fn installed(beside: &Path) -> [PathBuf; 2] {
    let prefix = beside.parent().unwrap_or(beside);
    [prefix.join("lib/gpuslice"), INSTALLED.into()]
}

/// Finds the library: beside the executable, or where packages put it.
///
/// # Errors
/// When it is in neither place, or in one that LD_PRELOAD cannot name.
pub fn find(beside: &Path) -> Result<PathBuf, EnvironmentError> {
    let mut looked_in = vec![beside.to_owned()];
    looked_in.extend(installed(beside));
    looked_in.dedup();
    let found = looked_in
        .iter()
        .map(|folder| folder.join(LIBRARY))
        .find(|path| path.is_file())
        .ok_or(EnvironmentError::NoLibrary { looked_in })?;
    let separates = |byte: &u8| SEPARATORS.contains(byte);
    if found.as_os_str().as_bytes().iter().any(separates) {
        return Err(EnvironmentError::Unnameable {
            path: found,
            variable: "LD_PRELOAD",
        });
    }
    match loadable(&found) {
        Ok(()) => Ok(found),
        Err(why) => Err(EnvironmentError::Unloadable { path: found, why }),
    }
}

/// Maps the start of the library as ld.so will: where that fails, ld.so starts the program without
/// it.
fn loadable(library: &Path) -> Result<(), String> {
    let file = File::open(library).map_err(|error| error.to_string())?;
    let elf = Elf::read(&file).ok_or("it is not a library: install gpuslice again")?;
    if elf.machine() != MACHINE {
        return Err("it is built for another kind of processor".to_owned());
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

fn is_noexec(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.flags().contains(FsFlags::ST_NOEXEC))
}

/// What ld.so takes for the end of a name in LD_PRELOAD.
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

/// LD_PRELOAD with the library first. AddressSanitizer refuses to run behind anything, so where
/// it leads it keeps its place.
#[must_use]
pub fn with_library(existing: Option<&OsStr>, library: &Path) -> OsString {
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

/// LD_PRELOAD without the library; None when nothing is left.
#[must_use]
pub fn without_library(existing: &OsStr) -> Option<OsString> {
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
