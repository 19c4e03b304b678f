//! File metadata.
//! Touches: the kernel.

use super::{Errno, int, syscall};
use core::ffi::{CStr, c_int, c_long};
use core::mem::MaybeUninit;

/// A file's metadata.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// The file's identity: its device and its inode.
    pub identity: (u64, u64),
    /// Whether it is a regular file.
    pub regular: bool,
    /// Whether it is a pipe or a terminal, which store no data.
    pub stream: bool,
    /// Its length, in bytes.
    pub length: u64,
    /// The owner's user id.
    pub owner: u32,
    /// The modification time, in nanoseconds since 1970. For a folder: when a name in it was last
    /// added, removed or changed.
    pub changed: u64,
}

/// The major numbers of terminals: `/dev/tty*` and `/dev/pts/*`.
fn is_terminal(device: u64) -> bool {
    matches!(device >> 8 & 0xfff, 4 | 5 | 136..=143)
}

#[inline]
fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    let seconds = seconds.cast_unsigned().wrapping_mul(1_000_000_000);
    seconds.wrapping_add(rest.cast_unsigned())
}

impl Stat {
    /// The metadata of the file that a descriptor is open on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(descriptor: c_int) -> Result<Stat, Errno> {
        Stat::of_number(int(descriptor))
    }

    pub(super) fn of_number(descriptor: usize) -> Result<Stat, Errno> {
        Stat::ask(libc::SYS_fstat, |to| [descriptor, to, 0, 0, 0, 0])
    }

    /// The metadata of the file with this path.
    ///
    /// # Errors
    /// The kernel's.
    pub fn at(path: &CStr) -> Result<Stat, Errno> {
        let path = path.as_ptr() as usize;
        Stat::ask(libc::SYS_newfstatat, |to| {
            [int(libc::AT_FDCWD), path, to, 0, 0, 0]
        })
    }

    #[inline]
    fn ask(call: c_long, arguments: impl FnOnce(usize) -> [usize; 6]) -> Result<Stat, Errno> {
        let mut found = MaybeUninit::<libc::stat>::zeroed();
        let arguments = arguments(found.as_mut_ptr() as usize);
        // SAFETY: the kernel writes one struct stat, and a path ends in NUL (CStr).
        unsafe { syscall(call, arguments) }?;
        // SAFETY: a struct stat is integers only, which zeros are, too.
        let found = unsafe { found.assume_init() };
        let kind = found.st_mode & libc::S_IFMT;
        Ok(Stat {
            identity: (found.st_dev, found.st_ino),
            regular: kind == libc::S_IFREG,
            stream: kind == libc::S_IFIFO || kind == libc::S_IFCHR && is_terminal(found.st_rdev),
            length: u64::try_from(found.st_size).unwrap_or(0),
            owner: found.st_uid,
            changed: nanoseconds(found.st_mtime, found.st_mtime_nsec),
        })
    }
}
