//! Reads files of the host for a command that may itself run in a slice.
//! Touches: the file, by a direct system call. The library hooks libc's functions and would show a
//! modified `/proc/meminfo`.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Reads a whole file.
///
/// # Errors
/// The errors of `open` and `read`.
pub(crate) fn read_unhooked(path: &Path) -> io::Result<Vec<u8>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string, and flags that create no file.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name.as_ptr(), flags) };
    let descriptor = i32::try_from(descriptor).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created the descriptor, and no other code owns it.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}
