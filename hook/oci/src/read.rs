//! Reads files that others may have made: regular ones only, and never more than expected.
//! Touches: those files.

use crate::sys;
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How much room there is at first where nobody says how much comes.
const FIRST: usize = 2 << 10;

/// Reads at most `cap` bytes.
///
/// # Errors
/// When it cannot be read, or there is more.
pub fn capped(from: impl Read, cap: usize) -> io::Result<Vec<u8>> {
    about(from, FIRST, cap)
}

/// Reads at most `cap` bytes of what is likely `expected` long: with a byte more of room it is read
/// at once, and no page is touched for nothing.
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

/// Opens a regular file; a pipe that nobody writes to cannot stop us.
///
/// # Errors
/// When it cannot be opened, or is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = sys::open(path, OFlag::O_RDONLY | flags)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// The same for a file that may be absent (`NotFound`). A link to nothing is none of those: somebody
/// has made it, and what it should say nobody knows.
///
/// # Errors
/// When it cannot be opened, or is something else.
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
/// When it cannot be read, is something else, or is longer.
pub fn file(path: &Path, cap: usize) -> io::Result<Vec<u8>> {
    whole(open(path)?, cap)
}

/// Reads all of a file, of at most `cap` bytes.
///
/// # Errors
/// When it cannot be read, or is longer.
pub fn whole(file: File, cap: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    // What the kernel makes up says that it is empty.
    about(file, if length == 0 { FIRST } else { length }, cap)
}

/// Whether only root decides what is in it.
///
/// # Errors
/// When it is somebody else's, or others may write to it.
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
