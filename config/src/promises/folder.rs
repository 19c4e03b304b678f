//! Reads the promises of a machine, on the host's side.
//! Touches: one folder, read-only. Law: no link is followed, nothing is mapped, and any file that
//! is not a promise is ignored.

use super::{HEAD, Promise};
use crate::words::units::Bytes;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// A promise that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPromise {
    /// The budget that the slice was admitted for.
    pub budget: Bytes,
    /// The slice's id.
    pub slice: String,
    /// The part of the budget that is not spent yet.
    pub unused: Bytes,
}

/// The file name of a slice's promise; `None` if no valid name exists for the slice.
#[must_use]
pub fn file_name(budget: Bytes, slice: &str) -> Option<String> {
    let name = std::format!("{}.{slice}", budget.get());
    (Promise::named(name.as_bytes()).is_some() && name.len() <= 255).then_some(name)
}

/// Reads every promise in a folder, by name. A promise that cannot be opened counts as entirely
/// unused.
///
/// # Errors
/// When the folder cannot be read.
pub fn read_folder(folder: &Path) -> std::io::Result<Vec<ReadPromise>> {
    let mut held = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        // The file type as the kernel reports it, without following a link.
        let regular = entry.file_type().is_ok_and(|kind| kind.is_file());
        let (true, Some(promise)) = (regular, Promise::named(name.as_bytes())) else {
            continue;
        };
        let read = ReadPromise {
            budget: promise.budget,
            slice: String::from_utf8_lossy(promise.slice).into_owned(),
            unused: promise.unused(&head(&entry.path()).unwrap_or_default()),
        };
        // A folder has hundreds at most, and the code of a sort is three thousand bytes of the hook.
        let before =
            |known: &ReadPromise| (&known.slice, known.budget) < (&read.slice, read.budget);
        held.insert(held.partition_point(before), read);
    }
    Ok(held)
}

/// Changes the budget of a slice's promise: it gets the name for the new budget. A slice has one
/// promise before and after, so nothing is left to be repaired if the caller is killed.
///
/// # Errors
/// When the promise does not exist any more, or its folder cannot be changed.
pub fn rename(folder: &Path, slice: &str, from: Bytes, to: Bytes) -> std::io::Result<()> {
    let name = |budget| file_name(budget, slice).ok_or(std::io::ErrorKind::InvalidInput);
    let (from, to) = (folder.join(name(from)?), folder.join(name(to)?));
    match from == to {
        true => Ok(()),
        false => std::fs::rename(from, to),
    }
}

/// The first bytes of a file, if it is still the file that was listed.
fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::os::unix::fs::OpenOptionsExt;
    const O_NONBLOCK: i32 = 0o4000;
    #[cfg(target_arch = "aarch64")]
    const O_NOFOLLOW: i32 = 0o100_000;
    #[cfg(not(target_arch = "aarch64"))]
    const O_NOFOLLOW: i32 = 0o400_000;
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)?;
    let mut head = Vec::new();
    if file.metadata()?.is_file() {
        file.take(HEAD as u64).read_to_end(&mut head)?;
    }
    Ok(head)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{SIZE, spent};
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no O_NONBLOCK")]
    fn a_folder_of_promises_and_of_other_things() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("1000.b"), [0; SIZE]).unwrap();
        std::fs::write(path("2000.a"), spent(Bytes::new(500))).unwrap();
        std::fs::write(path("3000.cut"), []).unwrap();
        std::fs::write(path("4000.liar"), [255; 64]).unwrap();
        std::fs::write(path("notes"), b"hello").unwrap();
        std::fs::create_dir(path("5000.folder")).unwrap();
        std::os::unix::fs::symlink(path("1000.b"), path("6000.link")).unwrap();
        let read: Vec<_> = read_folder(folder.path())
            .unwrap()
            .into_iter()
            .map(|held| (held.slice, held.budget.get(), held.unused.get()))
            .collect();
        let expected = [
            ("a", 2000, 1500),
            ("b", 1000, 1000),
            ("cut", 3000, 3000),
            ("liar", 4000, 0),
        ];
        assert_eq!(
            read,
            expected.map(|(slice, budget, unused)| (slice.into(), budget, unused))
        );
        assert!(read_folder(&path("nowhere")).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no O_NONBLOCK")]
    fn a_link_or_a_pipe_that_replaces_a_promise_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), [1; SIZE]).unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        let pipe = std::process::Command::new("mkfifo")
            .arg(path("pipe"))
            .status();
        assert!(pipe.unwrap().success());
        assert_eq!(head(&path("file")).unwrap(), [1; HEAD]);
        assert!(head(&path("link")).is_err());
        assert!(head(&path("pipe")).unwrap().is_empty());
    }

    #[test]
    fn a_name_is_written_as_it_is_read() {
        assert_eq!(
            file_name(Bytes::gib(1), "run-1").as_deref(),
            Some("1073741824.run-1")
        );
        assert_eq!(file_name(Bytes::ZERO, "run-1"), None);
        assert_eq!(file_name(Bytes::gib(1), "a/b"), None);
        assert_eq!(file_name(Bytes::gib(1), &"x".repeat(255)), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no O_NONBLOCK")]
    fn a_renamed_promise_keeps_what_is_spent() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (Bytes::gib(8), Bytes::gib(5));
        let name = file_name(old, "run-1").unwrap();
        std::fs::write(folder.path().join(name), spent(Bytes::gib(2))).unwrap();
        rename(folder.path(), "run-1", old, old).unwrap();
        rename(folder.path(), "run-1", old, new).unwrap();
        let read = read_folder(folder.path()).unwrap();
        let expected = ReadPromise {
            budget: new,
            slice: "run-1".into(),
            unused: Bytes::gib(3),
        };
        assert_eq!(read, [expected]);
        assert!(rename(folder.path(), "run-1", old, new).is_err());
        assert!(rename(folder.path(), "run-1", new, Bytes::ZERO).is_err());
    }
}
