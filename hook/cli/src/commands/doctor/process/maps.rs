//! The libraries that a process has mapped: this one, and the driver's.
//! Touches: its arguments.

use crate::launch::program;
use std::path::{Path, PathBuf};

/// The kernel's suffix for the name of a removed file.
const DELETED: &str = " (deleted)";

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct MappedFile {
    /// Its path, as the kernel shows it.
    pub(in super::super) path: PathBuf,
    /// `MAJOR:MINOR`, and the inode.
    pub(in super::super) identity: (String, u64),
    /// Whether the file was removed or replaced since.
    pub(in super::super) is_deleted: bool,
}

/// Checks whether a file is the loader of any libc, by its name: `ld-linux-x86-64.so.2`, `ld-2.31.so`,
/// `ld-musl-x86_64.so.1`.
pub(super) fn is_any_loader(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b"ld-")
}

/// The mapped files of a process, each once.
#[derive(Debug, Default)]
pub(in super::super) struct Maps {
    pub(in super::super) files: Vec<MappedFile>,
}

impl Maps {
    /// Parses `/proc/PID/maps`.
    pub(in super::super) fn parse(maps: &[u8]) -> Maps {
        let maps = String::from_utf8_lossy(maps);
        let mut files: Vec<MappedFile> = maps.lines().filter_map(mapped).collect();
        files.sort();
        files.dedup();
        Maps { files }
    }

    /// Returns the files with this name, or with a version behind it (`libcuda.so.1`).
    pub(in super::super) fn named(&self, name: &str) -> Vec<&MappedFile> {
        let is_named = |file: &&MappedFile| {
            let own = file.path.file_name().unwrap_or_default().to_string_lossy();
            let rest = own.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.files.iter().filter(is_named).collect()
    }

    /// Checks whether ld.so has not loaded libc yet, and so perhaps no preload either.
    pub(in super::super) fn is_loading(&self) -> bool {
        let mut files = self.files.iter();
        files.any(|file| program::is_loader(&file.path)) && self.named("libc.so").is_empty()
    }

    /// Checks whether a program's loader is mapped, of whatever libc.
    pub(in super::super) fn has_loader(&self) -> bool {
        self.files.iter().any(|file| is_any_loader(&file.path))
    }

    /// Returns the copies of the preload library.
    pub(in super::super) fn libraries(&self) -> Vec<&MappedFile> {
        self.named(crate::driver::preload::LIBRARY)
    }

    /// Returns the driver's libraries.
    pub(in super::super) fn drivers(&self) -> Vec<&MappedFile> {
        let mut found = self.named("libcuda.so");
        found.extend(self.named("libnvidia-ml.so"));
        found
    }

    /// Returns the mapped ledger: the file with the name of this one.
    pub(in super::super) fn ledger(&self, ledger: &Path) -> Option<&MappedFile> {
        let name = ledger.file_name()?;
        let mut all = self.files.iter();
        all.find(|file| file.path.file_name() == Some(name))
    }
}

fn mapped(line: &str) -> Option<MappedFile> {
    let mut fields = line.splitn(6, ' ');
    let device = fields.nth(3)?.to_owned();
    let inode: u64 = fields.next()?.parse().ok()?;
    let path = fields.next()?.trim_start();
    let deleted = path.strip_suffix(DELETED);
    (inode != 0 && path.starts_with('/')).then(|| MappedFile {
        path: PathBuf::from(deleted.unwrap_or(path)),
        identity: (device, inode),
        is_deleted: deleted.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
55d0-55d1 r--p 00000000 fe:00 11                         /usr/bin/python3
7f00-7f01 r--p 00000000 fe:00 12                         /usr/lib/gpuslice/libgpuslice.so (deleted)
7f01-7f02 r-xp 00001000 fe:00 12                         /usr/lib/gpuslice/libgpuslice.so (deleted)
7f03-7f04 r-xp 00001000 fe:00 13                         /usr/lib/my drivers/libcuda.so.550.163.01
7f05-7f06 r-xp 00001000 fe:00 14                         /usr/lib/libcudart.so.12
7f07-7f08 rw-s 00000000 00:1a 15                         /dev/shm/gpuslice-abc/ledger.0f
7f09-7f0a rw-p 00000000 00:00 0                          [heap]
";

    #[test]
    fn each_file_is_known_once_by_its_name() {
        let maps = Maps::parse(MAPS);
        assert_eq!(maps.files.len(), 5);
        let [library] = maps.libraries()[..] else {
            panic!("{maps:?}");
        };
        assert!(library.is_deleted && library.path.ends_with("libgpuslice.so"));
        let drivers: Vec<_> = maps.drivers().iter().map(|file| &file.path).collect();
        assert_eq!(
            drivers,
            [Path::new("/usr/lib/my drivers/libcuda.so.550.163.01")]
        );
        let ledger = maps.ledger(Path::new("/somewhere/else/ledger.0f")).unwrap();
        assert_eq!(ledger.identity, ("00:1a".to_owned(), 15));
        assert_eq!(maps.ledger(Path::new("/ledger")), None);
        assert!(!maps.is_loading());
        let start = b"7f00-7f01 r-xp 0 fe:00 9  /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n";
        assert!(Maps::parse(start).is_loading());
    }
}
