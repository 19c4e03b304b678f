//! Reads `/proc/meminfo`: by libc, as Python and Java do, and by system calls, as Go and static programs do.
//! Touches: /proc/meminfo.

use crate::commands::check::query::apis::QueryTarget;
use crate::commands::check::query::dl::Symbol;
use crate::commands::check::query::row::Reading;
use gpuslice_config::host::meminfo;
use gpuslice_config::sys::syscall;
use gpuslice_host::slices::meminfo_page;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The file.
pub(crate) const FILE: &str = "/proc/meminfo";

/// Reads the file by libc, of which the library replaces `open`.
pub(crate) fn by_libc(_: Symbol, _: QueryTarget) -> Result<Reading, String> {
    let text = std::fs::read(FILE).map_err(|error| error.to_string())?;
    reading(&text)
}

/// Reads the file that a system call opens.
pub(crate) fn by_system_call(_: Symbol, _: QueryTarget) -> Result<Reading, String> {
    let mut text = Vec::new();
    let read = opened().and_then(|mut file| file.read_to_end(&mut text));
    read.map_err(|error| error.to_string())?;
    reading(&text)
}

fn opened() -> io::Result<File> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let arguments = [
        libc::AT_FDCWD as usize,
        c"/proc/meminfo".as_ptr() as usize,
        flags as usize,
    ];
    let [folder, path, flags] = arguments;
    // SAFETY: the path is a C string.
    let number = unsafe { syscall(libc::SYS_openat, [folder, path, flags, 0, 0, 0]) };
    let number = number.map_err(|errno| io::Error::other(errno.to_string()))?;
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new, and nobody else knows it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(number) }))
}

fn reading(text: &[u8]) -> Result<Reading, String> {
    let memory = meminfo::parse(text).ok_or("it has no MemTotal or no MemAvailable")?;
    Ok(Reading {
        total: Some(memory.total.get()),
        free: Some(memory.available.get()),
        ..Reading::default()
    })
}

/// Checks whether a slice's page is mounted over the file.
pub(crate) fn is_page() -> bool {
    opened().is_ok_and(|file| meminfo_page::age_if_mounted(&file).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_amounts_are_in_bytes() {
        let text = b"MemTotal: 64 kB\nMemFree: 8 kB\nMemAvailable: 16 kB\n";
        let read = reading(text).unwrap();
        assert_eq!((read.total, read.free), (Some(64 << 10), Some(16 << 10)));
        assert!(reading(b"MemTotal: 64 kB\n").is_err());
    }
}
