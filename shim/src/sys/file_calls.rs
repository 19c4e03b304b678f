//! System calls that query files and drop their pages, made directly.
//! Touches: the kernel. Never: errno, libc's locks.
//! Law: no call here is a cancellation point, and a descriptor of the program is never closed.

use core::ffi::{CStr, c_int};

use gpuslice_config::sys::{Fd, probe_thread};

use super::{EINVAL, Errno, int, syscall};

/// A descriptor, of the program or of the library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor(pub(crate) i32);

impl Descriptor {
    pub(super) fn raw(self) -> usize {
        int(self.0)
    }
}

/// The identity of the file that a descriptor is open on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// A regular file.
#[derive(Clone, Copy)]
pub(crate) struct Regular {
    pub(crate) identity: Identity,
    /// Its length, in bytes.
    pub(crate) size: u64,
    /// The time of its last change, in nanoseconds since 1970.
    pub(crate) changed: u64,
}

/// The regular file that a descriptor is open on. None: it is not a regular file.
pub(crate) fn stat(fd: Descriptor) -> Option<Regular> {
    let stat = super::Stat::of(fd.0).ok()?;
    let (dev, ino) = stat.identity;
    stat.regular.then_some(Regular {
        identity: Identity { dev, ino },
        size: stat.length,
        changed: stat.changed,
    })
}

/// How a descriptor accesses its file.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    /// It can read, and so fill the page cache: not if it is write-only or opened with O_PATH.
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// How a descriptor accesses its file.
pub(crate) fn access(fd: Descriptor) -> Option<Access> {
    // SAFETY: takes no pointers.
    let flags = unsafe { syscall(libc::SYS_fcntl, [fd.raw(), int(libc::F_GETFL), 0, 0, 0, 0]) };
    let flags = flags.ok()?;
    let mode = flags & int(libc::O_ACCMODE);
    Some(Access {
        reads: mode != int(libc::O_WRONLY) && flags & int(libc::O_PATH) == 0,
        writes: mode != int(libc::O_RDONLY),
    })
}

/// The number of a file's file system; 0 if the kernel does not tell.
pub(crate) fn file_system(fd: Descriptor) -> u64 {
    gpuslice_config::sys::file_system(fd.raw()).unwrap_or(0)
}

/// The parent's pid.
pub(crate) fn parent() -> u64 {
    // SAFETY: takes no arguments.
    unsafe { syscall(libc::SYS_getppid, [0; 6]) }.map_or(0, |pid| pid as u64)
}

/// Whether this process has a thread with this id, even one that is just ending.
pub(crate) fn has_thread(number: u32) -> bool {
    probe_thread(number).is_ok()
}

/// Opens the file of a descriptor once more, read-only.
///
/// Not a duplicate, which would keep the program's `flock` and file position alive.
pub(crate) fn open_again(fd: Descriptor) -> Result<Descriptor, Errno> {
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0u8; 10];
    let mut rest = u32::try_from(fd.0).map_err(|_| EINVAL)?;
    let mut count = 0usize;
    for digit in digits.iter_mut().rev() {
        *digit = b'0'.saturating_add((rest % 10).to_le_bytes()[0]);
        rest /= 10;
        count = count.saturating_add(1);
        if rest == 0 {
            break;
        }
    }
    let number = digits
        .get(10usize.saturating_sub(count)..)
        .unwrap_or_default();
    let place = path.get_mut(14..).unwrap_or_default();
    place
        .iter_mut()
        .zip(number)
        .for_each(|(to, from)| *to = *from);
    open(CStr::from_bytes_until_nul(&path).map_err(|_| EINVAL)?)
}

/// Opens a file for reading, until [`close`].
pub(crate) fn open(path: &CStr) -> Result<Descriptor, Errno> {
    let opened = Fd::open_at(libc::AT_FDCWD, path, libc::O_RDONLY, 0)?;
    let fd = c_int::try_from(opened.number()).map_err(|_| EINVAL)?;
    core::mem::forget(opened);
    Ok(Descriptor(fd))
}

/// Closes a descriptor of ours.
pub(crate) fn close(fd: Descriptor) {
    // SAFETY: takes no pointers; the descriptor is ours.
    let _ = unsafe { syscall(libc::SYS_close, [fd.raw(), 0, 0, 0, 0, 0]) };
}

/// Moves a descriptor of ours to a high number: programs rely on getting the lowest free one. The
/// first number is closed.
pub(crate) fn move_up(fd: Descriptor) -> Descriptor {
    let lowest = match limit() {
        Some(limit) if limit < 1024 => limit / 2,
        _ => 960,
    };
    let duplicate = [fd.raw(), int(libc::F_DUPFD_CLOEXEC), lowest, 0, 0, 0];
    // SAFETY: takes no pointers.
    let high = unsafe { syscall(libc::SYS_fcntl, duplicate) };
    match high.map(i32::try_from) {
        Ok(Ok(high)) => {
            close(fd);
            Descriptor(high)
        }
        _ => fd,
    }
}

/// The process's limit of descriptors.
fn limit() -> Option<usize> {
    let mut limit = [0u64; 2];
    let place = (&raw mut limit) as usize;
    // SAFETY: the kernel writes one `struct rlimit`.
    unsafe {
        syscall(
            libc::SYS_prlimit64,
            [0, libc::RLIMIT_NOFILE as usize, 0, place, 0, 0],
        )
    }
    .ok()?;
    usize::try_from(limit.first().copied()?).ok()
}

/// Drops a file's clean pages that no process has mapped. A length of 0 means up to the end.
pub(crate) fn drop_pages(fd: Descriptor, offset: u64, length: u64) {
    let (Ok(offset), Ok(length)) = (usize::try_from(offset), usize::try_from(length)) else {
        return;
    };
    let advice = [
        fd.raw(),
        offset,
        length,
        int(libc::POSIX_FADV_DONTNEED),
        0,
        0,
    ];
    // SAFETY: takes no pointers.
    let _ = unsafe { syscall(libc::SYS_fadvise64, advice) };
}

/// Removes pages from this process's page tables. Data written to private pages is lost: the caller
/// has made sure that there is none.
pub(crate) fn forget_pages(start: u64, end: u64) {
    let length = end.saturating_sub(start);
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return;
    };
    // SAFETY: the caller guarantees a range of a file's mapping that holds only the file's pages.
    let _ = unsafe {
        syscall(
            libc::SYS_madvise,
            [start, length, int(libc::MADV_DONTNEED), 0, 0, 0],
        )
    };
}

/// Drops pages that only this process has mapped, and removes them from its page tables. Data
/// written to private pages is kept. Has no effect on another user's file that this process may not
/// write to.
pub(crate) fn page_out(start: u64, end: u64) {
    let length = end.saturating_sub(start);
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return;
    };
    // SAFETY: MADV_PAGEOUT loses no data at any address.
    let _ = unsafe {
        syscall(
            libc::SYS_madvise,
            [start, length, int(libc::MADV_PAGEOUT), 0, 0, 0],
        )
    };
}

/// A descriptor's current position in its file.
pub(crate) fn position(fd: Descriptor) -> Option<u64> {
    // SAFETY: takes no pointers.
    let position = unsafe { syscall(libc::SYS_lseek, [fd.raw(), 0, int(libc::SEEK_CUR), 0, 0, 0]) };
    position.ok().map(|position| position as u64)
}

/// Sets the signals that this thread blocks.
pub(crate) fn mask_signals(mask: &u64, before: Option<&mut u64>) {
    let before = before.map_or(0, |before| (&raw mut *before) as usize);
    let mask = (&raw const *mask) as usize;
    // SAFETY: the kernel reads one signal set and writes the other, of 8 bytes each.
    let _ = unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [int(libc::SIG_SETMASK), mask, before, 8, 0, 0],
        )
    };
}
