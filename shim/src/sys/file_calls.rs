//! System calls that query files and drop their pages, made directly.
//! Touches: the kernel. Never: errno, libc's locks.
//! Law: no call here is a cancellation point, and a descriptor of the program is never closed.

use core::ffi::CStr;

use crate::sys::{EINVAL, Errno, syscall};

#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const FSTAT: usize = 5;
    pub(crate) const LSEEK: usize = 8;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const IOCTL: usize = 16;
    pub(crate) const PREAD: usize = 17;
    pub(crate) const MADVISE: usize = 28;
    pub(crate) const CLONE: usize = 56;
    pub(crate) const FCNTL: usize = 72;
    pub(crate) const FUTEX: usize = 202;
    pub(crate) const TGKILL: usize = 234;
    pub(crate) const GETPPID: usize = 110;
    pub(crate) const FSTATFS: usize = 138;
    pub(crate) const FADVISE: usize = 221;
    pub(crate) const OPENAT: usize = 257;
    pub(crate) const PRLIMIT: usize = 302;
    /// The offset of `st_mode` in `struct stat`.
    pub(crate) const STAT_MODE: usize = 24;
}

#[cfg(target_arch = "aarch64")]
pub(crate) mod number {
    pub(crate) const CLOSE: usize = 57;
    pub(crate) const FSTAT: usize = 80;
    pub(crate) const LSEEK: usize = 62;
    pub(crate) const RT_SIGPROCMASK: usize = 135;
    pub(crate) const IOCTL: usize = 29;
    pub(crate) const PREAD: usize = 67;
    pub(crate) const MADVISE: usize = 233;
    pub(crate) const CLONE: usize = 220;
    pub(crate) const FCNTL: usize = 25;
    pub(crate) const FUTEX: usize = 98;
    pub(crate) const TGKILL: usize = 131;
    pub(crate) const GETPPID: usize = 173;
    pub(crate) const FSTATFS: usize = 44;
    pub(crate) const FADVISE: usize = 223;
    pub(crate) const OPENAT: usize = 56;
    pub(crate) const PRLIMIT: usize = 261;
    /// The offset of `st_mode` in `struct stat`.
    pub(crate) const STAT_MODE: usize = 16;
}

const AT_FDCWD: usize = -100isize as usize;
const O_ACCMODE: usize = 3;
const O_WRONLY: usize = 1;
const O_NONBLOCK: usize = 0o4000;
const O_NOCTTY: usize = 0o400;
const O_CLOEXEC: usize = 0o2_000_000;
const O_PATH: usize = 0o10_000_000;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;

const F_GETFL: usize = 3;
const F_DUPFD_CLOEXEC: usize = 1030;
const F_OFD_GETLK: usize = 36;
const F_OFD_SETLK: usize = 37;
const F_RDLCK: u16 = 0;
const F_WRLCK: u16 = 1;
const F_UNLCK: u16 = 2;

/// A descriptor, of the program or of the library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor(pub(crate) i32);

impl Descriptor {
    fn raw(self) -> usize {
        // Sign extension does no harm: the kernel reads an int.
        self.0 as usize
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
pub(crate) struct Stat {
    pub(crate) identity: Identity,
    pub(crate) size: u64,
}

/// The regular file that a descriptor is open on. None: it is not a regular file.
pub(crate) fn stat(fd: Descriptor) -> Option<Stat> {
    #[repr(align(8))]
    struct Buffer([u8; 144]);
    let mut stat = Buffer([0; 144]);
    let place = (&raw mut stat) as usize;
    // SAFETY: `stat` is as large as the kernel's struct.
    unsafe { syscall(number::FSTAT, [fd.raw(), place, 0, 0, 0, 0]) }.ok()?;
    let word = |at: usize| {
        let bytes = stat.0.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map(|bytes| u64::from_ne_bytes(*bytes))
    };
    let mode = stat
        .0
        .get(number::STAT_MODE..)
        .and_then(<[u8]>::first_chunk)?;
    if u32::from_ne_bytes(*mode) & S_IFMT != S_IFREG {
        return None;
    }
    let identity = Identity {
        dev: word(0)?,
        ino: word(8)?,
    };
    let size = word(48)?;
    Some(Stat { identity, size })
}

/// Whether the descriptor can read, and so fill the page cache: not if it is write-only or opened
/// with O_PATH.
pub(crate) fn reads(fd: Descriptor) -> bool {
    // SAFETY: takes no pointers.
    let flags = unsafe { syscall(number::FCNTL, [fd.raw(), F_GETFL, 0, 0, 0, 0]) };
    flags.is_ok_and(|flags| flags & O_ACCMODE != O_WRONLY && flags & O_PATH == 0)
}

/// Whether the file's pages are its only copy, as on tmpfs: such pages are never dropped.
pub(crate) fn is_memory(fd: Descriptor) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const HUGETLBFS: u64 = 0x9584_58f6;
    #[repr(align(8))]
    struct Buffer([u8; 120]);
    let mut statfs = Buffer([0; 120]);
    let place = (&raw mut statfs) as usize;
    // SAFETY: `statfs` is as large as the kernel's struct.
    if unsafe { syscall(number::FSTATFS, [fd.raw(), place, 0, 0, 0, 0]) }.is_err() {
        return false;
    }
    let kind = statfs.0.first_chunk().map(|kind| u64::from_ne_bytes(*kind));
    matches!(kind, Some(TMPFS | RAMFS | HUGETLBFS))
}

/// The parent's pid.
pub(crate) fn parent() -> u64 {
    // SAFETY: takes no arguments.
    unsafe { syscall(number::GETPPID, [0; 6]) }.map_or(0, |pid| pid as u64)
}

/// Whether this process has a thread with this id, even one that is just ending.
pub(crate) fn has_thread(number: u32) -> bool {
    let pid = usize::try_from(crate::sys::pid()).unwrap_or(0);
    // SAFETY: takes no pointers; signal 0 is never delivered.
    unsafe { syscall(number::TGKILL, [pid, number as usize, 0, 0, 0, 0]) }.is_ok()
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
    let flags = O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    let path = path.as_ptr() as usize;
    // SAFETY: the path ends in NUL (CStr).
    let fd = unsafe { syscall(number::OPENAT, [AT_FDCWD, path, flags, 0, 0, 0]) }?;
    i32::try_from(fd).map(Descriptor).map_err(|_| EINVAL)
}

/// Closes a descriptor of ours.
pub(crate) fn close(fd: Descriptor) {
    // SAFETY: takes no pointers; the descriptor is ours.
    let _ = unsafe { syscall(number::CLOSE, [fd.raw(), 0, 0, 0, 0, 0]) };
}

/// Moves a descriptor of ours to a high number: programs rely on getting the lowest free one.
///
/// Not while there is a lock on the file, which may be this process's own: closing any descriptor
/// of the file would release it.
pub(crate) fn move_up(fd: Descriptor) -> Descriptor {
    if is_locked(fd, 0, LOCKS) {
        return fd;
    }
    let lowest = match limit() {
        Some(limit) if limit < 1024 => limit / 2,
        _ => 960,
    };
    // SAFETY: takes no pointers.
    let high = unsafe { syscall(number::FCNTL, [fd.raw(), F_DUPFD_CLOEXEC, lowest, 0, 0, 0]) };
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
    const RLIMIT_NOFILE: usize = 7;
    let mut limit = [0u64; 2];
    let place = (&raw mut limit) as usize;
    // SAFETY: the kernel writes one `struct rlimit`.
    unsafe { syscall(number::PRLIMIT, [0, RLIMIT_NOFILE, 0, place, 0, 0]) }.ok()?;
    usize::try_from(limit.first().copied()?).ok()
}

/// Drops a file's clean pages that no process has mapped. A length of 0 means up to the end.
pub(crate) fn drop_pages(fd: Descriptor, offset: u64, length: u64) {
    const DONTNEED: usize = 4;
    let (Ok(offset), Ok(length)) = (usize::try_from(offset), usize::try_from(length)) else {
        return;
    };
    // SAFETY: takes no pointers.
    let _ = unsafe { syscall(number::FADVISE, [fd.raw(), offset, length, DONTNEED, 0, 0]) };
}

/// Removes pages from this process's page tables. Data written to private pages is lost: the caller
/// has made sure that there is none.
pub(crate) fn forget_pages(start: u64, end: u64) {
    const DONTNEED: usize = 4;
    let length = end.saturating_sub(start);
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return;
    };
    // SAFETY: the caller guarantees a range of a file's mapping that holds only the file's pages.
    let _ = unsafe { syscall(number::MADVISE, [start, length, DONTNEED, 0, 0, 0]) };
}

/// Drops pages that only this process has mapped, and removes them from its page tables. Data
/// written to private pages is kept. Has no effect on another user's file that this process may not
/// write to.
pub(crate) fn page_out(start: u64, end: u64) {
    const PAGEOUT: usize = 21;
    let length = end.saturating_sub(start);
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return;
    };
    // SAFETY: MADV_PAGEOUT loses no data at any address.
    let _ = unsafe { syscall(number::MADVISE, [start, length, PAGEOUT, 0, 0, 0]) };
}

/// A descriptor's current position in its file.
pub(crate) fn position(fd: Descriptor) -> Option<u64> {
    const SEEK_CUR: usize = 1;
    // SAFETY: takes no pointers.
    let position = unsafe { syscall(number::LSEEK, [fd.raw(), 0, SEEK_CUR, 0, 0, 0]) };
    position.ok().map(|position| position as u64)
}

/// Sets the signals that this thread blocks.
pub(crate) fn mask_signals(mask: &u64, before: Option<&mut u64>) {
    const SIG_SETMASK: usize = 2;
    let before = before.map_or(0, |before| (&raw mut *before) as usize);
    let mask = (&raw const *mask) as usize;
    // SAFETY: the kernel reads one signal set and writes the other, of 8 bytes each.
    let _ = unsafe { syscall(number::RT_SIGPROCMASK, [SIG_SETMASK, mask, before, 8, 0, 0]) };
}

/// The offset from which locks mean "I still need these bytes": beyond the end of any file.
pub(crate) const LOCKS: u64 = 1 << 62;

/// `struct flock`.
#[repr(C)]
struct Flock {
    kind: u16,
    whence: u16,
    start: i64,
    length: i64,
    pid: i32,
}

fn lock_call(fd: Descriptor, call: usize, lock: &mut Flock) -> Result<usize, Errno> {
    let place = (&raw mut *lock) as usize;
    // SAFETY: the kernel reads and writes one `struct flock`.
    unsafe { syscall(number::FCNTL, [fd.raw(), call, place, 0, 0, 0]) }
}

fn flock(kind: u16, start: u64, length: u64) -> Option<Flock> {
    Some(Flock {
        kind,
        whence: 0,
        start: i64::try_from(start).ok()?,
        length: i64::try_from(length).ok()?,
        pid: 0,
    })
}

/// Whether a lock other than this descriptor's is held in a range.
pub(crate) fn is_locked(fd: Descriptor, start: u64, length: u64) -> bool {
    let Some(mut lock) = flock(F_WRLCK, start, length) else {
        return false;
    };
    lock_call(fd, F_OFD_GETLK, &mut lock).is_ok() && lock.kind != F_UNLCK
}

/// Sets or removes the lock that means "I still need these bytes".
pub(crate) fn need(fd: Descriptor, offset: u64, length: u64, needed: bool) {
    let kind = if needed { F_RDLCK } else { F_UNLCK };
    if let Some(mut lock) = flock(kind, LOCKS.saturating_add(offset), length) {
        // On file systems without locks this fails, and other processes cannot see the need.
        let _ = lock_call(fd, F_OFD_SETLK, &mut lock);
    }
}
