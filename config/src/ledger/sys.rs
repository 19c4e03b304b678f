//! The system calls of the ledger, made directly.
//! Touches: the kernel. Never: errno, libc.
//! Law: nothing here is a cancellation point, can be interposed, allocates or panics.
#![expect(unsafe_code, reason = "system calls")]

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;

/// The kernel's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Whether the same call may succeed in a moment: EINTR, ENOMEM, ENFILE, EMFILE.
    pub(super) fn is_passing(self) -> bool {
        matches!(self.0, 4 | 12 | 23 | 24)
    }

    /// Whether a lock is refused because another open file description has it: EAGAIN, EACCES.
    fn is_locked(self) -> bool {
        matches!(self.0, 11 | 13)
    }

    /// The hint at what makes the kernel refuse a call that needs no permission: EPERM, ENOSYS.
    pub(super) fn hint(self) -> &'static str {
        match self.0 {
            1 | 38 => " (a seccomp filter may forbid it)",
            _ => "",
        }
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "errno {}", self.0)
    }
}

impl core::error::Error for Errno {}

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const CLOSE: usize = 3;
    pub(super) const FSTAT: usize = 5;
    pub(super) const MMAP: usize = 9;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const PREAD64: usize = 17;
    pub(super) const SCHED_YIELD: usize = 24;
    pub(super) const MADVISE: usize = 28;
    pub(super) const NANOSLEEP: usize = 35;
    pub(super) const GETPID: usize = 39;
    pub(super) const FCNTL: usize = 72;
    pub(super) const FTRUNCATE: usize = 77;
    pub(super) const FCHMOD: usize = 91;
    pub(super) const FSTATFS: usize = 138;
    pub(super) const GETTID: usize = 186;
    pub(super) const CLOCK_GETTIME: usize = 228;
    pub(super) const TGKILL: usize = 234;
    pub(super) const OPENAT: usize = 257;
    pub(super) const READLINKAT: usize = 267;
    pub(super) const GET_ROBUST_LIST: usize = 274;
    /// The offset of `st_mode` in `struct stat`.
    pub(super) const STAT_MODE: usize = 24;
    pub(super) const O_NOFOLLOW: usize = 0o400_000;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const FCNTL: usize = 25;
    pub(super) const FSTATFS: usize = 44;
    pub(super) const FTRUNCATE: usize = 46;
    pub(super) const FCHMOD: usize = 52;
    pub(super) const OPENAT: usize = 56;
    pub(super) const READLINKAT: usize = 78;
    pub(super) const CLOSE: usize = 57;
    pub(super) const PREAD64: usize = 67;
    pub(super) const FSTAT: usize = 80;
    pub(super) const GET_ROBUST_LIST: usize = 100;
    pub(super) const NANOSLEEP: usize = 101;
    pub(super) const CLOCK_GETTIME: usize = 113;
    pub(super) const SCHED_YIELD: usize = 124;
    pub(super) const TGKILL: usize = 131;
    pub(super) const GETPID: usize = 172;
    pub(super) const GETTID: usize = 178;
    pub(super) const MUNMAP: usize = 215;
    pub(super) const MMAP: usize = 222;
    pub(super) const MADVISE: usize = 233;
    /// The offset of `st_mode` in `struct stat`.
    pub(super) const STAT_MODE: usize = 16;
    pub(super) const O_NOFOLLOW: usize = 0o100_000;
}

/// The file at this path is not the expected one.
pub(super) const ESTALE: Errno = Errno(116);

const AT_FDCWD: usize = -100isize as usize;
const O_RDWR: usize = 2;
const O_CREAT: usize = 0o100;
const O_NOCTTY: usize = 0o400;
/// A pipe or a device in the file's place must not block a program.
const O_NONBLOCK: usize = 0o4000;
const O_CLOEXEC: usize = 0o2_000_000;
const O_PATH: usize = 0o10_000_000;
const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const F_DUPFD_CLOEXEC: usize = 1030;
const F_OFD_GETLK: usize = 36;
const F_OFD_SETLK: usize = 37;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;
const CLOCK_MONOTONIC_COARSE: usize = 6;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const ESRCH: Errno = Errno(3);

/// # Safety
/// As the kernel documents the call: every pointer among the arguments is good for it.
#[cfg(target_arch = "x86_64")]
unsafe fn syscall(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = a;
    let answer: isize;
    // SAFETY: the caller vouches for the arguments; the kernel changes rax, rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    outcome(answer)
}

/// # Safety
/// As the kernel documents the call: every pointer among the arguments is good for it.
#[cfg(target_arch = "aarch64")]
unsafe fn syscall(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = a;
    let answer: isize;
    // SAFETY: the caller vouches for the arguments; the kernel changes x0 only.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") number, inlateout("x0") a.cast_signed() => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    outcome(answer)
}

fn outcome(answer: isize) -> Result<usize, Errno> {
    match answer {
        -4095..=-1 => Err(Errno(
            i32::try_from(answer.unsigned_abs()).unwrap_or(i32::MAX),
        )),
        _ => Ok(answer.cast_unsigned()),
    }
}

/// An open file description of our own. Closed on drop; its locks end with it, unless a mapping of
/// it remains.
pub(super) struct Fd(usize);

/// The identity and the type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) regular: bool,
    pub(super) length: u64,
}

/// The access that a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    /// Created if it is missing.
    Create,
}

/// The target of a symbolic link, up to the length of `place`.
pub(super) fn read_link<'a>(path: &CStr, place: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let (path, to, length) = (
        path.as_ptr() as usize,
        place.as_mut_ptr() as usize,
        place.len(),
    );
    // SAFETY: the path ends in NUL (CStr); the kernel writes at most `length` bytes.
    let count = unsafe { syscall(number::READLINKAT, [AT_FDCWD, path, to, length, 0, 0]) }?;
    Ok(place.get(..count).unwrap_or_default())
}

#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    pid: i32,
}

impl Fd {
    /// Opens a file, never through a symbolic link.
    pub(super) fn open(path: &CStr, access: Access) -> Result<Fd, Errno> {
        let wanted = match access {
            Access::Read => 0,
            Access::Write => O_RDWR,
            Access::Create => O_RDWR | O_CREAT,
        };
        let flags = wanted | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | number::O_NOFOLLOW;
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        unsafe { syscall(number::OPENAT, [AT_FDCWD, path, flags, 0o600, 0, 0]) }
            .map(Fd)?
            .not_standard()
    }

    /// Opens the target of a link that the kernel provides, for writing.
    pub(super) fn open_link(path: &CStr) -> Result<Fd, Errno> {
        let flags = O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        unsafe { syscall(number::OPENAT, [AT_FDCWD, path, flags, 0, 0, 0]) }
            .map(Fd)?
            .not_standard()
    }

    /// Opens the target of a link that the kernel provides, for `stat` alone: nothing is done to a
    /// pipe or a device.
    pub(super) fn open_path(path: &CStr) -> Result<Fd, Errno> {
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        unsafe {
            syscall(
                number::OPENAT,
                [AT_FDCWD, path, O_PATH | O_CLOEXEC, 0, 0, 0],
            )
        }
        .map(Fd)
    }

    /// Moves the descriptor above 2. If a program has closed its standard error, its error output
    /// must not land in the ledger.
    fn not_standard(self) -> Result<Fd, Errno> {
        if self.0 > 2 {
            return Ok(self);
        }
        let wanted = [self.0, F_DUPFD_CLOEXEC, 3, 0, 0, 0];
        // SAFETY: no pointers.
        unsafe { syscall(number::FCNTL, wanted) }.map(Fd)
    }

    /// The descriptor of that number, whatever it refers to.
    pub(super) fn numbered(number: usize) -> Fd {
        Fd(number)
    }

    pub(super) fn number(&self) -> usize {
        self.0
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        #[repr(C, align(8))]
        struct Buffer([u8; 256]);
        let mut buffer = Buffer([0; 256]);
        let to = buffer.0.as_mut_ptr() as usize;
        // SAFETY: struct stat is 144 bytes on x86-64 and 128 on aarch64.
        unsafe { syscall(number::FSTAT, [self.0, to, 0, 0, 0, 0]) }?;
        let word = |at: usize| -> u64 {
            let bytes = buffer.0.get(at..).and_then(|bytes| bytes.first_chunk());
            u64::from_ne_bytes(bytes.copied().unwrap_or_default())
        };
        let mode = buffer.0.get(number::STAT_MODE..);
        let mode = mode.and_then(|bytes| bytes.first_chunk()).copied();
        Ok(Stat {
            device: word(0),
            inode: word(8),
            regular: u32::from_ne_bytes(mode.unwrap_or_default()) & S_IFMT == S_IFREG,
            length: word(48),
        })
    }

    /// Whether the file is on tmpfs, where a lock lasts as long as a mapping of its file.
    pub(super) fn is_on_tmpfs(&self) -> Result<bool, Errno> {
        #[repr(C, align(8))]
        struct Buffer([u64; 32]);
        let mut buffer = Buffer([0; 32]);
        let to = &raw mut buffer as usize;
        // SAFETY: struct statfs is 120 bytes on both architectures.
        unsafe { syscall(number::FSTATFS, [self.0, to, 0, 0, 0, 0]) }?;
        let [kind, ..] = buffer.0;
        Ok(kind == TMPFS_MAGIC)
    }

    pub(super) fn set_length(&self, length: usize) -> Result<(), Errno> {
        // SAFETY: no pointers.
        unsafe { syscall(number::FTRUNCATE, [self.0, length, 0, 0, 0, 0]) }.map(drop)
    }

    pub(super) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = usize::try_from(mode).unwrap_or(0);
        // SAFETY: no pointers.
        unsafe { syscall(number::FCHMOD, [self.0, mode, 0, 0, 0, 0]) }.map(drop)
    }

    /// Reads at an offset; returns the number of bytes read.
    pub(super) fn read(&self, to: &mut [u8], from: usize) -> Result<usize, Errno> {
        let (at, room) = (to.as_mut_ptr() as usize, to.len());
        // SAFETY: `to` is `room` bytes long and ours alone.
        unsafe { syscall(number::PREAD64, [self.0, at, room, from, 0, 0]) }
    }

    /// Locks one byte for this open file description, unless another one has locked it.
    pub(super) fn lock(&self, byte: usize) -> bool {
        self.set_lock(byte, F_WRLCK).is_ok()
    }

    /// Like [`Fd::lock`], with an error if the kernel gives no locks at all.
    pub(super) fn try_lock(&self, byte: usize) -> Result<bool, Errno> {
        match self.set_lock(byte, F_WRLCK) {
            Ok(()) => Ok(true),
            Err(why) if why.is_locked() => Ok(false),
            Err(why) => Err(why),
        }
    }

    fn set_lock(&self, byte: usize, kind: i16) -> Result<(), Errno> {
        self.fcntl(F_OFD_SETLK, byte, kind).map(drop)
    }

    /// Unlocks the byte.
    pub(super) fn unlock(&self, byte: usize) {
        let _ = self.set_lock(byte, F_UNLCK);
    }

    /// Whether another open file description has locked the byte.
    pub(super) fn locked(&self, byte: usize) -> Result<bool, Errno> {
        let found = self.fcntl(F_OFD_GETLK, byte, F_WRLCK)?;
        Ok(found.kind != F_UNLCK)
    }

    fn fcntl(&self, command: usize, byte: usize, kind: i16) -> Result<Flock, Errno> {
        let mut lock = Flock {
            kind,
            whence: 0,
            start: i64::try_from(byte).unwrap_or(i64::MAX),
            length: 1,
            pid: 0,
        };
        let at = &raw mut lock as usize;
        // SAFETY: the kernel reads and writes one struct flock.
        unsafe { syscall(number::FCNTL, [self.0, command, at, 0, 0, 0]) }?;
        Ok(lock)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        let _ = unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Maps pages at an address of the kernel's choice.
pub(super) fn mmap(
    length: usize,
    protection: usize,
    flags: usize,
    fd: Option<&Fd>,
) -> Result<usize, Errno> {
    let fd = fd.map_or(usize::MAX, |fd| fd.0);
    // SAFETY: a new mapping replaces no other mapping (no MAP_FIXED among our flags).
    unsafe { syscall(number::MMAP, [0, length, protection, flags, fd, 0]) }
}

/// # Safety
/// These pages are no longer in use.
pub(super) unsafe fn munmap(at: usize, length: usize) {
    // SAFETY: the caller's.
    let _ = unsafe { syscall(number::MUNMAP, [at, length, 0, 0, 0, 0]) };
}

/// # Safety
/// The users of these pages expect this advice.
pub(super) unsafe fn madvise(at: usize, length: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: the caller's.
    unsafe { syscall(number::MADVISE, [at, length, advice, 0, 0, 0]) }.map(drop)
}

/// The pid of this process, in its own pid namespace.
pub(super) fn getpid() -> u32 {
    // SAFETY: no pointers.
    let pid = unsafe { syscall(number::GETPID, [0; 6]) };
    pid.ok()
        .and_then(|pid| u32::try_from(pid).ok())
        .unwrap_or(0)
}

/// The id of this thread, in its own pid namespace.
pub(super) fn gettid() -> u32 {
    // SAFETY: no pointers.
    let tid = unsafe { syscall(number::GETTID, [0; 6]) };
    tid.ok()
        .and_then(|tid| u32::try_from(tid).ok())
        .unwrap_or(0)
}

/// Whether this process has no such thread (any more).
pub(super) fn thread_is_gone(tid: u32) -> bool {
    let (Ok(pid), Ok(tid)) = (usize::try_from(getpid()), usize::try_from(tid)) else {
        return false;
    };
    // SAFETY: no pointers; signal 0 is not sent.
    let found = unsafe { syscall(number::TGKILL, [pid, tid, 0, 0, 0, 0]) };
    found == Err(ESRCH)
}

/// `struct robust_list_head`: the kernel reads it when this thread ends. libc writes to it, too, in
/// this thread only.
#[repr(C)]
pub(super) struct RobustList {
    pub(super) first: AtomicUsize,
    pub(super) futex_offset: AtomicUsize,
    pub(super) list_op_pending: AtomicUsize,
}

/// The list head of this thread; `None` where there is none.
pub(super) fn robust_list() -> Option<NonNull<RobustList>> {
    let (mut head, mut length) = (core::ptr::null_mut(), 0usize);
    let (to, size) = (&raw mut head as usize, &raw mut length as usize);
    // SAFETY: both pointers are to live words.
    unsafe { syscall(number::GET_ROBUST_LIST, [0, to, size, 0, 0, 0]) }.ok()?;
    NonNull::new(head).filter(|_| length == size_of::<RobustList>())
}

/// Seconds of a monotonic clock; 0 when there is none.
pub(super) fn seconds() -> u64 {
    let mut time = [0u64; 2];
    let to = time.as_mut_ptr() as usize;
    let clock = CLOCK_MONOTONIC_COARSE;
    // SAFETY: the kernel writes one struct timespec.
    let _ = unsafe { syscall(number::CLOCK_GETTIME, [clock, to, 0, 0, 0, 0]) };
    time[0]
}

/// Lets another thread run.
pub(super) fn sched_yield() {
    // SAFETY: no pointers.
    let _ = unsafe { syscall(number::SCHED_YIELD, [0; 6]) };
}

/// Sleeps for some microseconds.
pub(super) fn sleep_us(microseconds: u32) {
    let time = [0u64, u64::from(microseconds).saturating_mul(1000)];
    let from = time.as_ptr() as usize;
    // SAFETY: the kernel reads one struct timespec.
    let _ = unsafe { syscall(number::NANOSLEEP, [from, 0, 0, 0, 0, 0]) };
}
