//! Reopens a ledger whose path no longer leads to it: the folder of a run was removed while the run
//! continued.
//! Touches: /proc, of the process that has the ledger open.
//! Law: the file that is opened was once at that path. The process's pid may by now belong to
//! another process.

use core::ffi::CStr;

use crate::sys::{ESTALE, Errno, Fd, read_link};

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
