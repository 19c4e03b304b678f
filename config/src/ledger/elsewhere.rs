//! A ledger whose path leads there no more: the folder of a run was removed while it went on.
//! Touches: /proc, of the process that has it open.
//! Law: what is opened there was once at that path. A number of a process may be another's by now.

use core::ffi::CStr;

use super::sys::{ESTALE, Errno, Fd, read_link};

/// What the kernel says behind the name of a file that has none any more.
const DELETED: &[u8] = b" (deleted)";

/// Opens what a descriptor of another process, `/proc/PID/fd/N`, stands for: the file that was at
/// this path.
pub(super) fn open(path: &CStr, descriptor: &CStr) -> Result<Fd, Errno> {
    let mut link = [0; 512];
    let link = read_link(descriptor, &mut link)?;
    let link = link.strip_suffix(DELETED).unwrap_or(link);
    match names_the_same(path.to_bytes(), link) {
        true => Fd::open_link(descriptor),
        false => Err(ESTALE),
    }
}

/// Whether two paths end in the same folder and file: seen from another mount namespace, the rest
/// may be another.
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
