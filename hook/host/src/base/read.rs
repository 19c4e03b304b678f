//! Reads files that other users may have made: regular files only, and never more than expected.
//! Touches: those files.

use crate::base::sys;
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The initial capacity for an unknown length.
const FIRST: usize = 2 << 10;

/// Reads at most `cap` bytes.
///
/// # Errors
/// When it cannot be read, or is longer.
pub fn capped(from: impl Read, cap: usize) -> io::Result<Vec<u8>> {
    about(from, FIRST, cap)
}

/// Reads at most `cap` bytes of a file that is probably `expected` bytes long. With one spare byte
/// of capacity the buffer need not grow, and no page is touched needlessly.
fn about(from: impl Read, expected: usize, cap: usize) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(cap).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::with_capacity(cap.min(expected).saturating_add(1));
    from.take(limit).read_to_end(&mut bytes)?;
    match bytes.len() > cap {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {cap} bytes"),
        )),
        false => Ok(bytes),
    }
}

/// Opens a regular file; a pipe without a writer does not block.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = sys::open(path, OFlag::O_RDONLY | flags)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Like [`open`], for a file that may be absent (`NotFound`). A dangling link does not count as
/// absent: it was made on purpose, and its intended content is unknown.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_unless_absent(path: &Path) -> io::Result<File> {
    open(path).map_err(|error| {
        let mut parts = path.ancestors();
        let dangling = parts.find(|part| part.is_symlink() && !part.exists());
        match dangling.filter(|_| error.kind() == io::ErrorKind::NotFound) {
            Some(link) => io::Error::other(format!("{} is a dangling link", link.display())),
            None => error,
        }
    })
}

/// Reads a regular file of at most `cap` bytes.
///
/// # Errors
/// When it cannot be read, is not a regular file, or is longer.
pub fn file(path: &Path, cap: usize) -> io::Result<Vec<u8>> {
    whole(open(path)?, cap)
}

/// Reads all of a file, of at most `cap` bytes.
///
/// # Errors
/// When it cannot be read, or is longer.
pub fn whole(file: File, cap: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    // The kernel reports length 0 for files that it generates.
    about(file, if length == 0 { FIRST } else { length }, cap)
}

/// Checks that only root can change the file's content.
///
/// # Errors
/// When another user owns the file, or may write to it.
pub fn only_roots(file: &File) -> io::Result<()> {
    let facts = file.metadata()?;
    if facts.uid() != 0 {
        return Err(io::Error::other(format!(
            "it belongs to user {}, not to root",
            facts.uid()
        )));
    }
    match facts.mode() & 0o022 {
        0 => Ok(()),
        _ => Err(io::Error::other("users other than root may write to it")),
    }
}
