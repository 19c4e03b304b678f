//! File metadata from the kernel.
//! Touches: the kernel.

use core::ffi::{CStr, c_void};

use super::{AT_FDCWD, EINVAL, Errno, number, syscall};

/// The offset of `st_size` in `struct stat`, on both architectures.
const STAT_SIZE: usize = 48;
const STAT_LENGTH: usize = 144;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const S_IFIFO: u32 = 0o010_000;
const S_IFCHR: u32 = 0o020_000;

/// The distance of `st_rdev` from `st_mode`, on both architectures.
const RDEV_AFTER_MODE: usize = 16;

/// A file's metadata.
#[derive(Clone, Copy)]
pub(crate) struct Stat {
    /// The file's identity: its device and its inode.
    pub(crate) identity: (u64, u64),
    /// Whether it is a regular file.
    pub(crate) regular: bool,
    /// Whether it is a pipe or a terminal, which store no data.
    pub(super) stream: bool,
    pub(super) length: u64,
    /// The owner's user id.
    pub(super) owner: u32,
}

/// `struct stat`.
#[repr(align(8))]
struct Raw([u8; STAT_LENGTH]);

impl Raw {
    fn word(&self, place: usize) -> Option<u64> {
        let word = self.0.get(place..).and_then(<[u8]>::first_chunk)?;
        Some(u64::from_ne_bytes(*word))
    }

    fn read(&self) -> Option<Stat> {
        let mode = self.0.get(number::STAT_MODE..)?.first_chunk()?;
        let owner = self.0.get(number::STAT_UID..)?.first_chunk()?;
        let kind = u32::from_ne_bytes(*mode) & S_IFMT;
        let device = self.word(number::STAT_MODE.saturating_add(RDEV_AFTER_MODE))?;
        Some(Stat {
            identity: (self.word(0)?, self.word(8)?),
            regular: kind == S_IFREG,
            stream: kind == S_IFIFO || kind == S_IFCHR && is_terminal(device),
            length: self.word(STAT_SIZE)?,
            owner: u32::from_ne_bytes(*owner),
        })
    }
}

/// Whether a character device of this number is a terminal: `/dev/tty*`, `/dev/pts/*`.
fn is_terminal(device: u64) -> bool {
    matches!(device >> 8 & 0xfff, 4 | 5 | 136..=143)
}

impl Stat {
    pub(super) fn of(descriptor: usize) -> Result<Stat, Errno> {
        let mut raw = Raw([0; STAT_LENGTH]);
        let place = (&raw mut raw) as usize;
        // SAFETY: `raw` is as large as the kernel's struct.
        unsafe { syscall(number::FSTAT, [descriptor, place, 0, 0, 0, 0]) }?;
        raw.read().ok_or(EINVAL)
    }

    /// The metadata of a descriptor of the program.
    pub(crate) fn of_program(descriptor: i32) -> Result<Stat, Errno> {
        Stat::of(usize::try_from(descriptor).map_err(|_| EINVAL)?)
    }

    /// The metadata of the file with this path.
    pub(crate) fn at(path: &CStr) -> Result<Stat, Errno> {
        let mut raw = Raw([0; STAT_LENGTH]);
        let (path, place) = (path.as_ptr() as usize, (&raw mut raw) as usize);
        // SAFETY: the path ends in NUL (CStr), and `raw` is as large as the kernel's struct.
        unsafe { syscall(number::NEWFSTATAT, [AT_FDCWD, path, place, 0, 0, 0]) }?;
        raw.read().ok_or(EINVAL)
    }
}

/// Writes the kernel's `struct stat` of a file; writes nothing if there is no such file.
///
/// # Safety
/// `place` has room for a `struct stat`.
pub(crate) unsafe fn stat_into(path: &CStr, place: *mut c_void) {
    let path = path.as_ptr() as usize;
    // SAFETY: the path ends in NUL (CStr); the caller guarantees the room at `place`.
    let _ = unsafe {
        syscall(
            number::NEWFSTATAT,
            [AT_FDCWD, path, place as usize, 0, 0, 0],
        )
    };
}

/// Writes the kernel's `struct statx` of a file; writes nothing if there is no such file.
///
/// # Safety
/// `place` has room for a `struct statx`.
pub(crate) unsafe fn statx_into(path: &CStr, flags: i32, mask: u32, place: *mut c_void) {
    let (path, place) = (path.as_ptr() as usize, place as usize);
    let (flags, mask) = (flags as usize, mask as usize);
    // SAFETY: the path ends in NUL (CStr); the caller guarantees the room at `place`.
    let _ = unsafe { syscall(number::STATX, [AT_FDCWD, path, flags, mask, place, 0]) };
}
