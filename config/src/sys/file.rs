//! Opens, reads and changes files.
//! Touches: the kernel.

use super::{Errno, Lock, Placeholders, Stat, int, is_locked, set_lock, syscall};
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;

/// An open file description of our own. Closed on drop; its locks end with it, unless a mapping of
/// it remains.
#[derive(Debug)]
pub struct Fd(usize);

/// The access that a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
    /// Reading and writing; the file is created if it is missing.
    Create,
}

/// The target of a symbolic link, up to the length of `place`.
///
/// # Errors
/// The kernel's.
pub fn read_link<'a>(path: &CStr, place: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let (link, to, length) = (
        path.as_ptr() as usize,
        place.as_mut_ptr() as usize,
        place.len(),
    );
    let arguments = [int(libc::AT_FDCWD), link, to, length, 0, 0];
    // SAFETY: the path ends in NUL (CStr); the kernel writes at most `length` bytes.
    let count = unsafe { syscall(libc::SYS_readlinkat, arguments) }?;
    Ok(place.get(..count).unwrap_or_default())
}

/// The file system that a descriptor's file is on, as `statfs(2)` numbers it.
///
/// # Errors
/// The kernel's.
pub fn file_system(fd: usize) -> Result<u64, Errno> {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    let to = found.as_mut_ptr() as usize;
    // SAFETY: the kernel writes one struct statfs.
    unsafe { syscall(libc::SYS_fstatfs, [fd, to, 0, 0, 0, 0]) }?;
    // SAFETY: a struct statfs is integers only, which zeros are, too.
    let found = unsafe { found.assume_init() };
    Ok(found.f_type as u64)
}

impl Fd {
    /// Opens a file, never through a symbolic link. The descriptor is above 2.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &CStr, access: Access) -> Result<Fd, Errno> {
        let wanted = match access {
            Access::Read => libc::O_RDONLY,
            Access::Write => libc::O_RDWR,
            Access::Create => libc::O_RDWR | libc::O_CREAT,
        };
        Fd::open_at(libc::AT_FDCWD, path, wanted | libc::O_NOFOLLOW, 0o600)?.not_standard()
    }

    /// Opens the target of a link that the kernel provides, for writing. The descriptor is above 2.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_link(path: &CStr) -> Result<Fd, Errno> {
        Fd::open_at(libc::AT_FDCWD, path, libc::O_RDWR, 0)?.not_standard()
    }

    /// Opens the target of a link that the kernel provides, for `stat` alone: nothing is done to a
    /// pipe or a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_path(path: &CStr) -> Result<Fd, Errno> {
        Fd::open_at(libc::AT_FDCWD, path, libc::O_PATH, 0)
    }

    /// Opens a file of a folder. A pipe or a device in the file's place does not block, and the
    /// descriptor ends at execve.
    ///
    /// # Errors
    /// The kernel's.
    #[inline]
    pub fn open_at(folder: c_int, path: &CStr, flags: c_int, mode: usize) -> Result<Fd, Errno> {
        let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let arguments = [int(folder), path.as_ptr() as usize, int(flags), mode, 0, 0];
        // Not O_ACCMODE, which in musl has the bit of O_PATH.
        match flags & (libc::O_WRONLY | libc::O_RDWR) {
            // SAFETY: the path ends in NUL (CStr).
            0 => unsafe { syscall(libc::SYS_openat, arguments) }.map(Fd),
            // SAFETY: as above.
            _ => unsafe { Fd::open_to_write(arguments) },
        }
    }

    /// # Safety
    /// The arguments are those of a call of openat.
    #[inline(never)]
    unsafe fn open_to_write(arguments: [usize; 6]) -> Result<Fd, Errno> {
        let _placeholders = Placeholders::of_standard_streams();
        // SAFETY: the caller guarantees it.
        unsafe { syscall(libc::SYS_openat, arguments) }.map(Fd)
    }

    /// Moves the descriptor above 2, so that the error output of a program that has closed its
    /// standard error does not land in a file of ours.
    ///
    /// # Errors
    /// The kernel's.
    pub fn not_standard(self) -> Result<Fd, Errno> {
        if self.0 > 2 {
            return Ok(self);
        }
        let wanted = [self.0, int(libc::F_DUPFD_CLOEXEC), 3, 0, 0, 0];
        // SAFETY: no pointers.
        unsafe { syscall(libc::SYS_fcntl, wanted) }.map(Fd)
    }

    /// The descriptor of that number, whatever it refers to.
    #[must_use]
    pub const fn numbered(number: usize) -> Fd {
        Fd(number)
    }

    /// The descriptor's number.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.0
    }

    /// The file's metadata.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stat(&self) -> Result<Stat, Errno> {
        Stat::of_number(self.0)
    }

    /// Whether the file is on tmpfs, where a lock lasts as long as a mapping of its file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_on_tmpfs(&self) -> Result<bool, Errno> {
        Ok(file_system(self.0)? == libc::TMPFS_MAGIC as u64)
    }

    /// Sets the file's length, in bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_length(&self, length: usize) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { syscall(libc::SYS_ftruncate, [self.0, length, 0, 0, 0, 0]) }.map(drop)
    }

    /// Sets the file's mode.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = usize::try_from(mode).unwrap_or(0);
        // SAFETY: no pointers.
        unsafe { syscall(libc::SYS_fchmod, [self.0, mode, 0, 0, 0, 0]) }.map(drop)
    }

    /// Reads at an offset; returns the number of bytes read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self, to: &mut [u8], from: usize) -> Result<usize, Errno> {
        let (at, room) = (to.as_mut_ptr() as usize, to.len());
        // SAFETY: `to` is `room` bytes long and ours alone.
        unsafe { syscall(libc::SYS_pread64, [self.0, at, room, from, 0, 0]) }
    }

    /// Locks one byte for this open file description, unless another one has locked it.
    #[must_use]
    pub fn lock(&self, byte: usize) -> bool {
        set_lock(self.0, Lock::Write, byte as u64, 1).is_ok()
    }

    /// Like [`Fd::lock`], with an error if the kernel gives no locks at all.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_lock(&self, byte: usize) -> Result<bool, Errno> {
        match set_lock(self.0, Lock::Write, byte as u64, 1) {
            Ok(()) => Ok(true),
            Err(why) if why.is_locked() => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Unlocks the byte.
    pub fn unlock(&self, byte: usize) {
        let _ = set_lock(self.0, Lock::None, byte as u64, 1);
    }

    /// Whether another open file description has locked the byte.
    ///
    /// # Errors
    /// The kernel's.
    pub fn locked(&self, byte: usize) -> Result<bool, Errno> {
        is_locked(self.0, byte as u64, 1)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        let _ = unsafe { syscall(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}
