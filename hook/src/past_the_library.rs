//! Files of the host as they are, for a command that may itself run under the library in a slice.
//! Touches: the file, by a system call of its own: the library shows a slice's programs another
//! `/proc/meminfo` when they open it through libc.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Reads a whole file.
///
/// # Errors
/// As `open` and `read`.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string, and flags that make nothing.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name.as_ptr(), flags) };
    let descriptor = i32::try_from(descriptor).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else knows of it.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}
