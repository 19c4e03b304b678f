//! The few system calls that the shim makes, made directly.
//! Touches: the kernel. Never: errno, libc's locks.
//! Law: nothing here is a cancellation point or can be interposed, and no descriptor outlives
//! the function that opened it.

use core::ffi::CStr;

/// The kernel's `-errno`, as a positive number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) u32);

/// There is no such file.
pub(crate) const ENOENT: Errno = Errno(2);
/// A part of the path is not a directory.
pub(crate) const ENOTDIR: Errno = Errno(20);
/// The file is not one that can be used.
pub(crate) const EINVAL: Errno = Errno(22);
/// The file is too large.
pub(crate) const EFBIG: Errno = Errno(27);

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const READ: usize = 0;
    pub(super) const WRITE: usize = 1;
    pub(super) const CLOSE: usize = 3;
    pub(super) const FSTAT: usize = 5;
    pub(super) const MMAP: usize = 9;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const MADVISE: usize = 28;
    pub(super) const GETPID: usize = 39;
    pub(super) const GETTID: usize = 186;
    pub(super) const OPENAT: usize = 257;
    /// Where `st_mode` stands in `struct stat`.
    pub(super) const STAT_MODE: usize = 24;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const READ: usize = 63;
    pub(super) const WRITE: usize = 64;
    pub(super) const CLOSE: usize = 57;
    pub(super) const FSTAT: usize = 80;
    pub(super) const MMAP: usize = 222;
    pub(super) const MADVISE: usize = 233;
    pub(super) const MUNMAP: usize = 215;
    pub(super) const GETPID: usize = 172;
    pub(super) const GETTID: usize = 178;
    pub(super) const OPENAT: usize = 56;
    /// Where `st_mode` stands in `struct stat`.
    pub(super) const STAT_MODE: usize = 16;
}

/// Where `st_size` stands in `struct stat`, on both.
const STAT_SIZE: usize = 48;
const STAT_LENGTH: usize = 144;

const AT_FDCWD: usize = -100isize as usize;
const O_WRONLY: usize = 1;
const O_CREAT: usize = 0o100;
const O_APPEND: usize = 0o2000;
/// A pipe or a device in the place of a file must not make a program wait.
const O_NONBLOCK: usize = 0o4000;
const O_NOCTTY: usize = 0o400;
const O_CLOEXEC: usize = 0o2_000_000;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;

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
            inlateout("rax") number as isize => answer,
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
            in("x8") number, inlateout("x0") a as isize => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    outcome(answer)
}

fn outcome(answer: isize) -> Result<usize, Errno> {
    match answer {
        -4095..=-1 => Err(Errno(
            u32::try_from(answer.unsigned_abs()).unwrap_or(u32::MAX),
        )),
        _ => Ok(answer.cast_unsigned()),
    }
}

/// An open file, closed when it goes.
pub(crate) struct File(usize);

impl File {
    /// Opens a file for reading.
    pub(crate) fn open(path: &CStr) -> Result<File, Errno> {
        let flags = O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        unsafe { syscall(number::OPENAT, [AT_FDCWD, path, flags, 0, 0, 0]) }.map(File)
    }

    /// Opens a file for appending, and makes it where there is none.
    pub(crate) fn append(path: &CStr) -> Result<File, Errno> {
        let flags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        unsafe { syscall(number::OPENAT, [AT_FDCWD, path, flags, 0o644, 0, 0]) }.map(File)
    }

    /// How long a regular file is; anything else is refused.
    pub(crate) fn length(&self) -> Result<usize, Errno> {
        #[repr(align(8))]
        struct Stat([u8; STAT_LENGTH]);
        let mut stat = Stat([0; STAT_LENGTH]);
        let place = (&raw mut stat) as usize;
        // SAFETY: `stat` is as large as the kernel's struct.
        unsafe { syscall(number::FSTAT, [self.0, place, 0, 0, 0, 0]) }?;
        let mode = stat
            .0
            .get(number::STAT_MODE..)
            .and_then(<[u8]>::first_chunk);
        let size = stat.0.get(STAT_SIZE..).and_then(<[u8]>::first_chunk);
        match (mode, size) {
            (Some(mode), Some(size)) if u32::from_ne_bytes(*mode) & S_IFMT == S_IFREG => {
                usize::try_from(u64::from_ne_bytes(*size)).map_err(|_| EFBIG)
            }
            _ => Err(EINVAL),
        }
    }

    /// Reads until the buffer is full or the file ends; what was read.
    pub(crate) fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
        let mut done = 0usize;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let (place, length) = (rest.as_mut_ptr() as usize, rest.len());
            // SAFETY: the kernel writes at most `length` bytes into `rest`.
            match unsafe { syscall(number::READ, [self.0, place, length, 0, 0, 0]) }? {
                0 => break,
                count => done = done.saturating_add(count),
            }
        }
        Ok(buffer.get(..done).unwrap_or_default())
    }

    /// Writes a line; where it cannot be written there is nobody to tell.
    pub(crate) fn write(&self, line: &[u8]) {
        write(self.0, line);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours alone.
        let _ = unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Writes a line to standard error.
pub(crate) fn write_stderr(line: &[u8]) {
    write(2, line);
}

fn write(descriptor: usize, line: &[u8]) {
    let (place, length) = (line.as_ptr() as usize, line.len());
    // SAFETY: the kernel reads `length` bytes of `line`.
    let _ = unsafe { syscall(number::WRITE, [descriptor, place, length, 0, 0, 0]) };
}

/// Fresh memory, zeroed, until the process ends or `unmap`.
pub(crate) fn map(length: usize) -> Result<*mut u8, Errno> {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x22;
    let arguments = [0, length, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0];
    // SAFETY: a new mapping where the kernel likes it disturbs nobody.
    unsafe { syscall(number::MMAP, arguments) }.map(|place| place as *mut u8)
}

/// Fresh memory, zeroed, that reads as zeros again in a forked child.
pub(crate) fn map_wiped(length: usize) -> Result<*mut u8, Errno> {
    const WIPE_ON_FORK: usize = 18;
    let place = map(length)?;
    // SAFETY: nobody else knows of these pages yet.
    match unsafe {
        let advice = [place as usize, length, WIPE_ON_FORK, 0, 0, 0];
        syscall(number::MADVISE, advice)
    } {
        Ok(_) => Ok(place),
        Err(errno) => {
            // SAFETY: as above.
            unsafe { unmap(place, length) };
            Err(errno)
        }
    }
}

/// Gives memory from [`map`] back.
///
/// # Safety
/// Nobody uses it any more.
pub(crate) unsafe fn unmap(place: *mut u8, length: usize) {
    // SAFETY: the caller gives up the mapping.
    let _ = unsafe { syscall(number::MUNMAP, [place as usize, length, 0, 0, 0, 0]) };
}

/// The process.
pub(crate) fn pid() -> u64 {
    // SAFETY: takes no arguments.
    unsafe { syscall(number::GETPID, [0; 6]) }.map_or(0, |pid| pid as u64)
}

/// The thread.
pub(crate) fn tid() -> u64 {
    // SAFETY: takes no arguments.
    unsafe { syscall(number::GETTID, [0; 6]) }.map_or(0, |tid| tid as u64)
}
