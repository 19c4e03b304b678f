//! Selects files: the named files, and the model files in named folders.
//! Touches: folders, by reading them.

use gpuslice_config::slice::{CHECKSUM, ModelFiles};
use gpuslice_config::words::units::Bytes;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The suffixes of model files. The last one, `CHECKSUM`, stands for names that are checksums, as
/// model stores use them.
pub(crate) const SUFFIXES: [&str; 15] = [
    "safetensors",
    "gguf",
    "ggml",
    "pt",
    "pth",
    "bin",
    "ckpt",
    "onnx",
    "npy",
    "npz",
    "h5",
    "msgpack",
    "engine",
    "tflite",
    CHECKSUM,
];

/// A result of the search for files.
pub(super) enum Candidate {
    /// A file.
    File(PathBuf),
    /// A folder or a file that cannot be examined.
    Unreadable(PathBuf, io::Error),
}

/// Walks each named path once. Links are followed, because the folders of a model cache consist of
/// links. No folder is entered twice, so a link into its own folder ends.
pub(super) struct Walk<'a> {
    /// Decides whether a file in a folder is selected.
    wanted: &'a dyn Fn(&Path) -> bool,
    entered: HashSet<(u64, u64)>,
    bounds: Option<Bounds>,
    found: &'a mut dyn FnMut(Candidate),
}

/// The folders that a walk enters.
struct Bounds {
    /// The filesystems.
    devices: HashSet<u64>,
    end: Option<Instant>,
}

impl Walk<'_> {
    /// Walks `paths` and passes every selected file to `found`.
    pub(super) fn all(
        paths: &[PathBuf],
        wanted: &dyn Fn(&Path) -> bool,
        found: &mut dyn FnMut(Candidate),
    ) {
        Walk::walk(paths, None, wanted, found);
    }

    /// Like [`Walk::all`], for folders in which users make links: stays on the filesystems of the paths,
    /// and ends after `patience`.
    pub(super) fn bounded(
        paths: &[PathBuf],
        patience: Duration,
        wanted: &dyn Fn(&Path) -> bool,
        found: &mut dyn FnMut(Candidate),
    ) {
        let known = paths.iter().filter_map(|path| fs::metadata(path).ok());
        let bounds = Bounds {
            devices: known.map(|data| data.dev()).collect(),
            end: Instant::now().checked_add(patience),
        };
        Walk::walk(paths, Some(bounds), wanted, found);
    }

    fn walk(
        paths: &[PathBuf],
        bounds: Option<Bounds>,
        wanted: &dyn Fn(&Path) -> bool,
        found: &mut dyn FnMut(Candidate),
    ) {
        let mut walk = Walk {
            wanted,
            entered: HashSet::new(),
            bounds,
            found,
        };
        for path in paths {
            walk.named(path);
        }
    }

    fn named(&mut self, path: &Path) {
        match fs::metadata(path) {
            Ok(data) if data.is_dir() => self.folder(path, &data),
            Ok(data) if data.is_file() => (self.found)(Candidate::File(path.to_owned())),
            Ok(data) => (self.found)(Candidate::Unreadable(path.to_owned(), not_a_file(&data))),
            Err(error) => (self.found)(Candidate::Unreadable(path.to_owned(), error)),
        }
    }

    fn folder(&mut self, path: &Path, data: &fs::Metadata) {
        if !self.enters(data.dev()) || !self.entered.insert((data.dev(), data.ino())) {
            return;
        }
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.unreadable(path, error),
        };
        for entry in entries {
            match entry {
                Ok(_) if !self.enters(data.dev()) => return,
                Ok(entry) => self.entry(&entry),
                Err(error) => return self.unreadable(path, error),
            }
        }
    }

    fn enters(&self, device: u64) -> bool {
        self.bounds.as_ref().is_none_or(|bounds| {
            let is_in_time = bounds.end.is_none_or(|end| Instant::now() < end);
            is_in_time && bounds.devices.contains(&device)
        })
    }

    fn entry(&mut self, entry: &fs::DirEntry) {
        let path = entry.path();
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => return self.unreadable(&path, error),
        };
        if kind.is_file() {
            if (self.wanted)(&path) {
                (self.found)(Candidate::File(path));
            }
        } else if kind.is_dir() || kind.is_symlink() {
            match fs::metadata(&path) {
                Ok(data) if data.is_dir() => self.folder(&path, &data),
                // Either name may show the type: snapshots/x.safetensors -> blobs/4a5b.
                Ok(data) if data.is_file() => {
                    let points_to = || fs::canonicalize(&path);
                    if (self.wanted)(&path) || points_to().is_ok_and(|end| (self.wanted)(&end)) {
                        (self.found)(Candidate::File(path));
                    }
                }
                Ok(_) => {}
                // A dangling or circular link is not a file.
                Err(_) if kind.is_symlink() => {}
                Err(error) => self.unreadable(&path, error),
            }
        }
    }

    /// Reports a path that cannot be examined. A path that no longer exists is ignored.
    fn unreadable(&mut self, path: &Path, error: io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            (self.found)(Candidate::Unreadable(path.to_owned(), error));
        }
    }
}

fn not_a_file(data: &fs::Metadata) -> io::Error {
    let kind = data.file_type();
    let what = match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    io::Error::other(format!("is {what}, which has no page cache of its own"))
}

/// Checks whether a file has the name of a model file.
pub(super) fn has_suffix(path: &Path, suffixes: &[String]) -> bool {
    let is_one = |suffix: &str| suffixes.iter().any(|one| one.eq_ignore_ascii_case(suffix));
    let suffix = path.extension().and_then(|suffix| suffix.to_str());
    suffix.is_some_and(is_one) || (is_one(CHECKSUM) && is_checksum(path))
}

fn is_checksum(path: &Path) -> bool {
    let mut named = ModelFiles::none(Bytes::ZERO);
    named.add(CHECKSUM).is_ok() && named.has_name(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_walk_follows_no_link_to_another_filesystem_and_ends() {
        let (here, there) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir_in("/dev/shm").unwrap(),
        );
        for folder in [&here, &there] {
            fs::create_dir(folder.path().join("below")).unwrap();
            fs::write(folder.path().join("below/model.gguf"), "").unwrap();
        }
        std::os::unix::fs::symlink(there.path(), here.path().join("link")).unwrap();
        let paths = [here.path().to_owned()];
        let walked = |patience: Option<Duration>| {
            let mut files = Vec::new();
            let mut found = |one| {
                if let Candidate::File(path) = one {
                    files.push(path);
                }
            };
            match patience {
                Some(patience) => Walk::bounded(&paths, patience, &|_| true, &mut found),
                None => Walk::all(&paths, &|_| true, &mut found),
            }
            files
        };
        assert_eq!(walked(None).len(), 2);
        let own = here.path().join("below/model.gguf");
        assert_eq!(walked(Some(Duration::from_secs(60))), [own]);
        assert!(walked(Some(Duration::ZERO)).is_empty());
    }
}
