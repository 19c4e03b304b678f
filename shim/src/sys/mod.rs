//! The few system calls that the shim makes, made directly.
//! Touches: the kernel. Never: errno, libc's locks.
//! Law: no call here is a cancellation point or can be interposed, and no descriptor outlives the
//! function that opened it.

use core::ffi::CStr;

pub(crate) mod file_calls;
pub(crate) mod filters;
#[cfg(all(not(debug_assertions), target_arch = "x86_64"))]
pub(crate) mod memory;
#[cfg(not(debug_assertions))]
pub(crate) mod panic;
pub(crate) mod stack;
mod stat;
pub(crate) mod stderr;

pub(crate) use stat::{Stat, stat_into, statx_into};
pub(crate) use stderr::write_stderr;

/// The kernel's `-errno`, as a positive number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) u32);

/// The call is forbidden.
pub(crate) const EPERM: Errno = Errno(1);
/// The kernel has no such call.
pub(crate) const ENOSYS: Errno = Errno(38);
/// There is no such file.
pub(crate) const ENOENT: Errno = Errno(2);
/// This user may not open the file.
pub(crate) const EACCES: Errno = Errno(13);
/// A part of the path is not a directory.
pub(crate) const ENOTDIR: Errno = Errno(20);
/// The path is a link, and links are not followed.
pub(crate) const ELOOP: Errno = Errno(40);
/// The file is not of a usable kind.
pub(crate) const EINVAL: Errno = Errno(22);
/// The process has no free descriptor.
pub(crate) const EMFILE: Errno = Errno(24);
/// The machine has reached its limit of open files.
pub(crate) const ENFILE: Errno = Errno(23);
/// The kernel has no memory for the call.
pub(crate) const ENOMEM: Errno = Errno(12);
/// A signal interrupted the call.
pub(crate) const EINTR: Errno = Errno(4);
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
    pub(super) const PWRITE: usize = 18;
    pub(super) const MADVISE: usize = 28;
    pub(super) const FCNTL: usize = 72;
    pub(super) const GETDENTS: usize = 217;
    pub(super) const NEWFSTATAT: usize = 262;
    pub(super) const DUP3: usize = 292;
    pub(super) const STATX: usize = 332;
    pub(super) const PRLIMIT64: usize = 302;
    pub(super) const PREAD: usize = 17;
    pub(super) const PPOLL: usize = 271;
    pub(super) const NANOSLEEP: usize = 35;
    pub(super) const SIGPROCMASK: usize = 14;
    pub(super) const SIGPENDING: usize = 127;
    pub(super) const SIGTIMEDWAIT: usize = 128;
    pub(super) const MEMFD_CREATE: usize = 319;
    pub(super) const GETPID: usize = 39;
    pub(super) const GETTID: usize = 186;
    pub(super) const OPENAT: usize = 257;
    pub(super) const O_NOFOLLOW: usize = 0o400_000;
    pub(super) const O_DIRECTORY: usize = 0o200_000;
    pub(super) const GETEUID: usize = 107;
    /// The offset of `st_mode` in `struct stat`.
    pub(super) const STAT_MODE: usize = 24;
    /// The offset of `st_uid` in `struct stat`.
    pub(super) const STAT_UID: usize = 28;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const READ: usize = 63;
    pub(super) const WRITE: usize = 64;
    pub(super) const CLOSE: usize = 57;
    pub(super) const FSTAT: usize = 80;
    pub(super) const MMAP: usize = 222;
    pub(super) const PWRITE: usize = 68;
    pub(super) const FCNTL: usize = 25;
    pub(super) const GETDENTS: usize = 61;
    pub(super) const NEWFSTATAT: usize = 79;
    pub(super) const DUP3: usize = 24;
    pub(super) const STATX: usize = 291;
    pub(super) const PRLIMIT64: usize = 261;
    pub(super) const PREAD: usize = 67;
    pub(super) const PPOLL: usize = 73;
    pub(super) const NANOSLEEP: usize = 101;
    pub(super) const SIGPROCMASK: usize = 135;
    pub(super) const SIGPENDING: usize = 136;
    pub(super) const SIGTIMEDWAIT: usize = 137;
    pub(super) const MEMFD_CREATE: usize = 279;
    pub(super) const MADVISE: usize = 233;
    pub(super) const MUNMAP: usize = 215;
    pub(super) const GETPID: usize = 172;
    pub(super) const GETTID: usize = 178;
    pub(super) const OPENAT: usize = 56;
    pub(super) const O_NOFOLLOW: usize = 0o100_000;
    pub(super) const O_DIRECTORY: usize = 0o40_000;
    pub(super) const GETEUID: usize = 175;
    /// The offset of `st_mode` in `struct stat`.
    pub(super) const STAT_MODE: usize = 16;
    /// The offset of `st_uid` in `struct stat`.
    pub(super) const STAT_UID: usize = 24;
}

const AT_FDCWD: usize = -100isize as usize;
const O_WRONLY: usize = 1;
const O_CREAT: usize = 0o100;
const O_APPEND: usize = 0o2000;
/// Prevents a pipe or a device in the place of a file from blocking the program.
const O_NONBLOCK: usize = 0o4000;
const O_NOCTTY: usize = 0o400;
const O_CLOEXEC: usize = 0o2_000_000;

/// # Safety
/// Every pointer among the arguments is valid for the call, as the kernel documents it.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn syscall(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = a;
    let answer: isize;
    // SAFETY: the caller guarantees the arguments; the kernel changes rax, rcx and r11 only.
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
/// Every pointer among the arguments is valid for the call, as the kernel documents it.
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe fn syscall(number: usize, a: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = a;
    let answer: isize;
    // SAFETY: the caller guarantees the arguments; the kernel changes x0 only.
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

/// An open file, closed on drop.
pub(crate) struct File(usize);

impl File {
    /// Opens a file for reading.
    pub(crate) fn open(path: &CStr) -> Result<File, Errno> {
        let flags = O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        unsafe { syscall(number::OPENAT, [AT_FDCWD, path, flags, 0, 0, 0]) }.map(File)
    }

    /// Opens a log for appending, or creates it. Its path is from the environment, which a root
    /// program may have inherited from another user. So the file must be this user's own and not a
    /// link, and existing content must begin as a log line does.
    pub(crate) fn append_to_log(path: &CStr, begins: &[u8; 9]) -> Result<File, Errno> {
        const O_RDWR: usize = 2;
        match File::open_in(AT_FDCWD, path, O_RDWR | O_APPEND) {
            Ok(file) => file.is_own_log(begins).then_some(file).ok_or(EINVAL),
            Err(ENOENT) => File::new_log(path),
            Err(error) => Err(error),
        }
    }

    fn new_log(path: &CStr) -> Result<File, Errno> {
        const O_EXCL: usize = 0o200;
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOCTTY | O_CLOEXEC;
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        unsafe { syscall(number::OPENAT, [AT_FDCWD, path, flags, 0o644, 0, 0]) }
            .map(File)?
            .not_standard()
    }

    fn is_own_log(&self, begins: &[u8; 9]) -> bool {
        // SAFETY: takes no arguments.
        let user = unsafe { syscall(number::GETEUID, [0; 6]) };
        let Ok(stat) = self.stat() else { return false };
        let own = user.is_ok_and(|user| user == stat.owner as usize);
        let takes_lines =
            stat.stream || stat.regular && (stat.length == 0 || starts_with(self.0, begins));
        own && takes_lines
    }

    /// Opens a file for writing, without following a link.
    pub(crate) fn open_itself(path: &CStr) -> Result<File, Errno> {
        File::open_in(AT_FDCWD, path, O_WRONLY)
    }

    /// Opens a file of this folder for reading, without following a link.
    pub(crate) fn open_entry(&self, name: &CStr) -> Result<File, Errno> {
        File::open_in(self.0, name, 0)
    }

    fn open_in(folder: usize, path: &CStr, access: usize) -> Result<File, Errno> {
        let flags = access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | number::O_NOFOLLOW;
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        let file = unsafe { syscall(number::OPENAT, [folder, path, flags, 0, 0, 0]) }.map(File)?;
        match access {
            0 => Ok(file),
            _ => file.not_standard(),
        }
    }

    /// Returns a descriptor above 2: output to a standard error that the program has closed must
    /// not land in a file of ours.
    fn not_standard(self) -> Result<File, Errno> {
        const F_DUPFD_CLOEXEC: usize = 1030;
        if self.0 > 2 {
            return Ok(self);
        }
        // SAFETY: takes numbers only.
        unsafe { syscall(number::FCNTL, [self.0, F_DUPFD_CLOEXEC, 3, 0, 0, 0]) }.map(File)
    }

    /// Opens a folder.
    pub(crate) fn open_folder(path: &CStr) -> Result<File, Errno> {
        let flags = O_NONBLOCK | O_CLOEXEC | number::O_DIRECTORY;
        let path = path.as_ptr() as usize;
        // SAFETY: the path ends in NUL (CStr).
        unsafe { syscall(number::OPENAT, [AT_FDCWD, path, flags, 0, 0, 0]) }.map(File)
    }

    /// Reads the next entries of a folder, as `linux_dirent64`s; empty at its end.
    pub(crate) fn list<'a>(&self, buffer: &'a mut Listing) -> Result<&'a [u8], Errno> {
        let (place, length) = (buffer.0.as_mut_ptr() as usize, buffer.0.len());
        // SAFETY: the kernel writes at most `length` bytes into the buffer.
        let listed = unsafe { syscall(number::GETDENTS, [self.0, place, length, 0, 0, 0]) }?;
        Ok(buffer.0.get(..listed).unwrap_or_default())
    }

    /// Creates a sealed file in memory with this text: it cannot be changed any more.
    pub(crate) fn of_text(name: &CStr, text: &[u8]) -> Result<File, Errno> {
        const CLOEXEC_ALLOW_SEALING: usize = 3;
        /// Since kernel 6.3; some settings of it refuse a file without the flag.
        const NOEXEC_SEAL: usize = 8;
        let make = |flags: usize| {
            let name = name.as_ptr() as usize;
            // SAFETY: the name ends in NUL (CStr).
            unsafe { syscall(number::MEMFD_CREATE, [name, flags, 0, 0, 0, 0]) }.map(File)
        };
        let made = make(CLOEXEC_ALLOW_SEALING | NOEXEC_SEAL);
        let file = made.or_else(|_| make(CLOEXEC_ALLOW_SEALING))?;
        if file.write_at_start(text)? != text.len() {
            return Err(EFBIG);
        }
        // SAFETY: takes numbers only.
        unsafe { syscall(number::FCNTL, [file.0, ADD_SEALS, ALL_SEALS, 0, 0, 0]) }?;
        Ok(file)
    }

    /// Replaces a descriptor that the program has just opened by this file, with the descriptor's
    /// close-on-exec flag.
    pub(crate) fn replace(&self, descriptor: i32) -> Result<(), Errno> {
        const GETFD: usize = 1;
        const FD_CLOEXEC: usize = 1;
        let descriptor = usize::try_from(descriptor).map_err(|_| EINVAL)?;
        // SAFETY: takes numbers only.
        let flags = unsafe { syscall(number::FCNTL, [descriptor, GETFD, 0, 0, 0, 0]) }?;
        let flags = if flags & FD_CLOEXEC != 0 {
            O_CLOEXEC
        } else {
            0
        };
        // SAFETY: takes numbers only; the program has just opened this descriptor.
        unsafe { syscall(number::DUP3, [self.0, descriptor, flags, 0, 0, 0]) }.map(|_| ())
    }

    /// Writes at the start of the file. Returns the number of bytes written.
    pub(crate) fn write_at_start(&self, text: &[u8]) -> Result<usize, Errno> {
        let (place, length) = (text.as_ptr() as usize, text.len());
        if !may_reach(length) {
            return Err(EFBIG);
        }
        // SAFETY: the kernel reads `length` bytes of `text`.
        unsafe { syscall(number::PWRITE, [self.0, place, length, 0, 0, 0]) }
    }

    /// The file's metadata.
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        Stat::of(self.0)
    }

    /// The length of a regular file. Any other kind of file is an error.
    pub(crate) fn length(&self) -> Result<usize, Errno> {
        let stat = self.stat()?;
        match stat.regular {
            true => usize::try_from(stat.length).map_err(|_| EFBIG),
            false => Err(EINVAL),
        }
    }

    /// Reads until the buffer is full or the file ends. Returns the bytes read.
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

    /// Writes a line; errors are ignored.
    pub(crate) fn write(&self, line: &[u8]) {
        stderr::write(self.0, line);
    }
}

const ADD_SEALS: usize = 1033;
const GET_SEALS: usize = 1034;
/// The seals against sealing, shrinking, growing and writing.
const ALL_SEALS: usize = 15;

/// Whether a descriptor of the program refers to a sealed file in memory that begins with `start`.
pub(crate) fn is_sealed_text(descriptor: i32, start: &[u8; 9]) -> bool {
    let Ok(descriptor) = usize::try_from(descriptor) else {
        return false;
    };
    // SAFETY: takes numbers only.
    let seals = unsafe { syscall(number::FCNTL, [descriptor, GET_SEALS, 0, 0, 0, 0]) };
    if !seals.is_ok_and(|seals| seals & ALL_SEALS == ALL_SEALS) {
        return false;
    }
    starts_with(descriptor, start)
}

/// Whether a file begins with `start`.
fn starts_with(descriptor: usize, start: &[u8; 9]) -> bool {
    let mut read = [0u8; 9];
    let (place, length) = ((&raw mut read) as usize, read.len());
    // SAFETY: the kernel writes at most `length` bytes into `read`.
    let count = unsafe { syscall(number::PREAD, [descriptor, place, length, 0, 0, 0]) };
    count.is_ok_and(|count| count == length) && read == *start
}

/// Whether this process may write a file of this length. Beyond the limit (`ulimit -f`) a write
/// kills it by SIGXFSZ, and the library's writes must never kill a program.
fn may_reach(end: usize) -> bool {
    const RLIMIT_FSIZE: usize = 1;
    let mut limits = [u64::MAX; 2];
    let place = (&raw mut limits) as usize;
    // SAFETY: the kernel writes a `struct rlimit64`, which is two 64-bit words; 0 is this process.
    let asked = unsafe { syscall(number::PRLIMIT64, [0, RLIMIT_FSIZE, 0, place, 0, 0]) };
    let [soft, _] = limits;
    asked.is_err() || end as u64 <= soft
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this File's alone.
        let _ = unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// A buffer for the entries of a folder.
#[repr(align(8))]
pub(crate) struct Listing([u8; 2048]);

impl Listing {
    pub(crate) const fn new() -> Listing {
        Listing([0; 2048])
    }
}

/// Maps fresh zeroed memory, until `unmap` or the end of the process.
pub(crate) fn map(length: usize) -> Result<*mut u8, Errno> {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x22;
    let arguments = [0, length, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0];
    // SAFETY: a new mapping at an address that the kernel chooses affects no other.
    unsafe { syscall(number::MMAP, arguments) }.map(|place| place as *mut u8)
}

/// A file's contents, mapped for reading until dropped. If the file is truncated meanwhile, reading
/// kills the process, as it would while loading the file.
pub(crate) struct Contents {
    place: *const u8,
    length: usize,
}

impl Contents {
    /// Maps a regular file.
    pub(crate) fn of(file: &File) -> Result<Contents, Errno> {
        const READ: usize = 1;
        const PRIVATE: usize = 2;
        let length = file.length()?;
        // SAFETY: a new mapping at an address that the kernel chooses affects no other.
        let place = unsafe { syscall(number::MMAP, [0, length, READ, PRIVATE, file.0, 0]) }?;
        let place = place as *const u8;
        Ok(Contents { place, length })
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes are mapped there as long as `self` exists.
        unsafe { core::slice::from_raw_parts(self.place, self.length) }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        // SAFETY: the mapping is this Contents' alone.
        unsafe { unmap(self.place.cast_mut(), self.length) };
    }
}

/// Maps fresh zeroed memory that reads as zeros again in a forked child.
pub(crate) fn map_wiped(length: usize) -> Result<*mut u8, Errno> {
    const WIPE_ON_FORK: usize = 18;
    let place = map(length)?;
    // SAFETY: the fresh pages are known only to this function.
    match unsafe {
        let advice = [place as usize, length, WIPE_ON_FORK, 0, 0, 0];
        syscall(number::MADVISE, advice)
    } {
        Ok(_) => Ok(place),
        Err(errno) => {
            // SAFETY: the fresh pages are known only to this function.
            unsafe { unmap(place, length) };
            Err(errno)
        }
    }
}

/// Unmaps memory from [`map`].
///
/// # Safety
/// The memory is no longer used.
pub(crate) unsafe fn unmap(place: *mut u8, length: usize) {
    // SAFETY: the caller guarantees that the mapping is no longer used.
    let _ = unsafe { syscall(number::MUNMAP, [place as usize, length, 0, 0, 0, 0]) };
}

unsafe extern "C" {
    /// libc's function, which usually avoids entering the kernel: a twentieth of the cost of a
    /// system call.
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
}

/// Monotonic time in nanoseconds; 0 where there is no such clock.
#[inline]
pub(crate) fn clock() -> u64 {
    const MONOTONIC: i32 = 1;
    let mut time = [0i64; 2];
    // SAFETY: clock_gettime's contract: a timespec is two 64-bit words.
    let failed = unsafe { clock_gettime(MONOTONIC, &raw mut time) };
    let [seconds, rest] = time.map(i64::cast_unsigned);
    match failed {
        0 => seconds.wrapping_mul(1_000_000_000).wrapping_add(rest),
        _ => 0,
    }
}

/// The page size, from the auxiliary vector that the kernel passes to the program.
pub(crate) fn page_size() -> u64 {
    const PAGE_SIZE: u64 = 6;
    let mut auxiliary = [0u8; 512];
    let file = File::open(c"/proc/self/auxv");
    let read = file
        .and_then(|file| file.read(&mut auxiliary))
        .unwrap_or_default();
    let (pairs, _) = read.as_chunks::<16>();
    let word = |bytes: &[u8]| {
        bytes
            .first_chunk()
            .map_or(0, |word| u64::from_ne_bytes(*word))
    };
    let size = pairs.iter().find_map(|pair| {
        let (name, value) = pair.split_at(8);
        (word(name) == PAGE_SIZE).then(|| word(value))
    });
    size.unwrap_or(gpuslice_config::host::cgroup::PAGE)
}

/// The path `/proc/PID/…`. None: it does not fit with its NUL.
pub(crate) fn path_of_process<'a>(
    path: &'a mut [u8; 32],
    pid: u32,
    file: &[u8],
) -> Option<&'a CStr> {
    let mut digits = [0u8; 10];
    let (mut rest, mut first) = (pid, digits.len());
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0'.saturating_add((rest % 10) as u8);
        (rest, first) = (rest / 10, place);
        if rest == 0 {
            break;
        }
    }
    let number = digits.get(first..)?;
    let parts = b"/proc/".iter().chain(number).chain(file);
    path.iter_mut()
        .zip(parts)
        .for_each(|(to, from)| *to = *from);
    CStr::from_bytes_until_nul(path).ok()
}

/// This process's id.
pub(crate) fn pid() -> u64 {
    // SAFETY: takes no arguments.
    unsafe { syscall(number::GETPID, [0; 6]) }.map_or(0, |pid| pid as u64)
}

/// This thread's id.
pub(crate) fn tid() -> u64 {
    // SAFETY: takes no arguments.
    unsafe { syscall(number::GETTID, [0; 6]) }.map_or(0, |tid| tid as u64)
}

/// Sleeps for about 70 µs. A mere yield would wait for a full time slice of each other thread on
/// the processor.
pub(crate) fn nap() {
    let time = [0u64, 20_000];
    let place = (&raw const time) as usize;
    // SAFETY: the kernel reads a `struct timespec`; the null pointer means that the rest is not
    // reported.
    let _ = unsafe { syscall(number::NANOSLEEP, [place, 0, 0, 0, 0, 0]) };
}
