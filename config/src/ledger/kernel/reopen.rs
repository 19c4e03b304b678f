//! Finds a ledger through another process's descriptor of it: where the folder of a run was removed
//! while the run continued, and where another file lies at the ledger's path.
//! Touches: /proc, of the process that has the ledger open.
//! Law: the file that is opened was once at that path. The process's pid may by now belong to
//! another process.

use core::ffi::CStr;

use crate::ledger::protocol::header::ID_AT;
use crate::ledger::protocol::layout::MAGIC;
use crate::sys::{ESTALE, Errno, Fd, Stat, read_link};

/// The kernel's suffix for the name of a removed file.
const DELETED: &[u8] = b" (deleted)";

/// Opens the file of another process's descriptor, `/proc/PID/fd/N`, if that file was at `path`.
pub(crate) fn open(path: &CStr, descriptor: &CStr) -> Result<Fd, Errno> {
    let mut link = [0; 512];
    let link = read_link(descriptor, &mut link)?;
    let link = link.strip_suffix(DELETED).unwrap_or(link);
    match names_the_same(path.to_bytes(), link) {
        true => Fd::open_link(descriptor),
        false => Err(ESTALE),
    }
}

/// Whether another process's descriptor, `/proc/PID/fd/N`, refers to a ledger with this id that is
/// another file than this one: this file is then a copy of the ledger. False where the descriptor
/// cannot be read, such as another user's. Also false where it refers to some other file: its
/// process may have ended, and its pid may belong to another process.
pub(crate) fn holds_another(descriptor: &CStr, id: u64, stat: &Stat) -> bool {
    let Ok(there) = Fd::open_path(descriptor).and_then(|fd| fd.stat()) else {
        return false;
    };
    let is_same = there.identity == stat.identity;
    there.regular && !is_same && is_ledger(descriptor, id)
}

/// Whether the file of a descriptor is a ledger with this id.
#[cold]
fn is_ledger(descriptor: &CStr, id: u64) -> bool {
    let Ok(fd) = Fd::open_link(descriptor) else {
        return false;
    };
    let is_word = |at: usize, wanted: u64| {
        let mut word = [0; size_of::<u64>()];
        let read = fd.read(&mut word, at);
        read == Ok(word.len()) && u64::from_ne_bytes(word) == wanted
    };
    is_word(0, MAGIC) && is_word(ID_AT, id)
}

/// Whether two paths end in the same folder and file; the rest may differ between mount namespaces.
fn names_the_same(one: &[u8], other: &[u8]) -> bool {
    let last = |path: &[u8]| {
        let mut slashes = (0..path.len())
            .rev()
            .filter(|at| path.get(*at) == Some(&b'/'));
        slashes.nth(1)
    };
    let (Some(one_at), Some(other_at)) = (last(one), last(other)) else {
        return false;
    };
    one.get(one_at..) == other.get(other_at..)
}

#[cfg(test)]
mod tests {
    use super::names_the_same;

    #[test]
    #[cfg(not(miri))]
    fn a_file_is_opened_after_its_folder_is_gone_and_no_other_in_its_place() {
        use std::ffi::CString;
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("ledger")).unwrap();
        let c = |text: std::string::String| CString::new(text).unwrap();
        let path = c(std::format!("{}/ledger", folder.path().display()));
        let descriptor = c(std::format!("/proc/self/fd/{}", file.as_raw_fd()));
        let other = c(std::format!("{}/other", folder.path().display()));
        folder.close().unwrap();
        assert!(super::open(&path, &descriptor).is_ok());
        assert_eq!(super::open(&other, &descriptor).err(), Some(super::ESTALE));
        assert!(super::open(&path, c"/proc/self/fd/9999").is_err());
        assert!(super::open(&path, c"").is_err());
    }

    #[test]
    fn a_ledger_is_known_by_its_folder_and_name() {
        let same = |one: &str, other: &str| names_the_same(one.as_bytes(), other.as_bytes());
        assert!(same(
            "/dev/shm/gpuslice-abc/ledger",
            "/dev/shm/gpuslice-abc/ledger"
        ));
        assert!(same("/dev/shm/gpuslice-abc/ledger", "/gpuslice-abc/ledger"));
        assert!(!same(
            "/dev/shm/gpuslice-abc/ledger",
            "/dev/shm/gpuslice-abd/ledger"
        ));
        assert!(!same(
            "/dev/shm/gpuslice-abc/ledger",
            "/dev/shm/gpuslice-abc/ledger2"
        ));
        assert!(!same("/ledger", "/ledger"));
        assert!(!same("/dev/shm/gpuslice-abc/ledger", "pipe:[17]"));
    }
}
