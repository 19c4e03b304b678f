//! Files that the library opens itself: slice files, its log, the kernel's own files.
//! Touches: the kernel.
//! Law: no descriptor outlives the `File` that opened it.

use core::ffi::{CStr, c_int};

use super::{EFBIG, EINVAL, ENOENT, Errno, Stat, int, stderr, syscall, unmap};
use gpuslice_config::sys::{Fd, Placeholders, map_file};

/// An open file, closed on drop.
pub(crate) struct File(Fd);

impl File {
    /// Opens a file for reading.
    pub(crate) fn open(path: &CStr) -> Result<File, Errno> {
        Fd::open_at(libc::AT_FDCWD, path, libc::O_RDONLY, 0).map(File)
    }

    /// Opens a log for appending, or creates it. Its path is from the environment, which a root
    /// program may have inherited from another user. So the file must be this user's own and not a
    /// link, and existing content must begin as a log does: `is_log` decides.
    pub(crate) fn append_to_log<const N: usize>(
        path: &CStr,
        is_log: impl Fn(&[u8; N]) -> bool,
    ) -> Result<File, Errno> {
        match open_in(libc::AT_FDCWD, path, libc::O_RDWR | libc::O_APPEND) {
            Ok(file) => file.is_own_log(is_log).then_some(file).ok_or(EINVAL),
            Err(ENOENT) => File::new_log(path),
            Err(error) => Err(error),
        }
    }

    fn new_log(path: &CStr) -> Result<File, Errno> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_APPEND;
        let made = Fd::open_at(libc::AT_FDCWD, path, flags, 0o644)?;
        made.not_standard().map(File)
    }

    fn is_own_log<const N: usize>(&self, is_log: impl Fn(&[u8; N]) -> bool) -> bool {
        // SAFETY: takes no arguments.
        let user = unsafe { syscall(libc::SYS_geteuid, [0; 6]) };
        let Ok(stat) = self.stat() else { return false };
        let own = user.is_ok_and(|user| user == stat.owner as usize);
        let takes_lines =
            stat.stream || stat.regular && (stat.length == 0 || begins(self.number(), is_log));
        own && takes_lines
    }

    /// Opens a file for writing, without following a link.
    pub(crate) fn open_itself(path: &CStr) -> Result<File, Errno> {
        open_in(libc::AT_FDCWD, path, libc::O_WRONLY)
    }

    /// Opens a file of this folder for reading, without following a link.
    pub(crate) fn open_entry(&self, name: &CStr) -> Result<File, Errno> {
        self.entry(name, libc::O_RDONLY)
    }

    /// Opens a file of this folder for writing, without following a link.
    pub(crate) fn open_entry_to_write(&self, name: &CStr) -> Result<File, Errno> {
        self.entry(name, libc::O_WRONLY)
    }

    fn entry(&self, name: &CStr, flags: c_int) -> Result<File, Errno> {
        let folder = c_int::try_from(self.number()).map_err(|_| EINVAL)?;
        open_in(folder, name, flags)
    }

    /// Opens a folder.
    pub(crate) fn open_folder(path: &CStr) -> Result<File, Errno> {
        Fd::open_at(libc::AT_FDCWD, path, libc::O_DIRECTORY, 0).map(File)
    }

    fn number(&self) -> usize {
        self.0.number()
    }

    /// Reads the next entries of a folder, as `linux_dirent64`s; empty at its end.
    pub(crate) fn list<'a, const N: usize>(
        &self,
        buffer: &'a mut Listing<N>,
    ) -> Result<&'a [u8], Errno> {
        let (place, length) = (buffer.0.as_mut_ptr() as usize, buffer.0.len());
        // SAFETY: the kernel writes at most `length` bytes into the buffer.
        let listed = unsafe {
            syscall(
                libc::SYS_getdents64,
                [self.number(), place, length, 0, 0, 0],
            )
        }?;
        Ok(buffer.0.get(..listed).unwrap_or_default())
    }

    /// Creates a sealed file in memory with this text: it cannot be changed any more.
    pub(crate) fn of_text(name: &CStr, text: &[u8]) -> Result<File, Errno> {
        let make = |flags: u32| {
            let arguments = [name.as_ptr() as usize, flags as usize, 0, 0, 0, 0];
            // SAFETY: the name ends in NUL (CStr).
            let made = unsafe { syscall(libc::SYS_memfd_create, arguments) };
            made.map(|number| File(Fd::numbered(number)))
        };
        // `MFD_NOEXEC_SEAL` exists since kernel 6.3, which can be set to refuse a file without it.
        const FLAGS: u32 = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // Until it is sealed, other threads could write into it.
        let _placeholders = Placeholders::of_standard_streams();
        let made = make(FLAGS | libc::MFD_NOEXEC_SEAL);
        let file = made.or_else(|_| make(FLAGS))?;
        if file.write_at_start(text)? != text.len() {
            return Err(EFBIG);
        }
        let seal = [
            file.number(),
            int(libc::F_ADD_SEALS),
            int(ALL_SEALS),
            0,
            0,
            0,
        ];
        // SAFETY: takes numbers only.
        unsafe { syscall(libc::SYS_fcntl, seal) }?;
        Ok(file)
    }

    /// Replaces a descriptor that the program has just opened by this file, with the descriptor's
    /// close-on-exec flag.
    pub(crate) fn replace(&self, descriptor: i32) -> Result<(), Errno> {
        let descriptor = usize::try_from(descriptor).map_err(|_| EINVAL)?;
        // SAFETY: takes numbers only.
        let flags = unsafe {
            syscall(
                libc::SYS_fcntl,
                [descriptor, int(libc::F_GETFD), 0, 0, 0, 0],
            )
        }?;
        let flags = match flags & int(libc::FD_CLOEXEC) {
            0 => 0,
            _ => int(libc::O_CLOEXEC),
        };
        // SAFETY: takes numbers only; the program has just opened this descriptor.
        unsafe { syscall(libc::SYS_dup3, [self.number(), descriptor, flags, 0, 0, 0]) }.map(|_| ())
    }

    /// Writes at the start of the file. Returns the number of bytes written.
    pub(crate) fn write_at_start(&self, text: &[u8]) -> Result<usize, Errno> {
        let (place, length) = (text.as_ptr() as usize, text.len());
        if !may_reach(length) {
            return Err(EFBIG);
        }
        // SAFETY: the kernel reads `length` bytes of `text`.
        unsafe { syscall(libc::SYS_pwrite64, [self.number(), place, length, 0, 0, 0]) }
    }

    /// The file's metadata.
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        self.0.stat()
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
            match unsafe { syscall(libc::SYS_read, [self.number(), place, length, 0, 0, 0]) }? {
                0 => break,
                count => done = done.saturating_add(count),
            }
        }
        Ok(buffer.get(..done).unwrap_or_default())
    }

    /// Writes a line; errors are ignored.
    pub(crate) fn write(&self, line: &[u8]) {
        stderr::write(self.number(), line);
    }
}

/// Opens a file of a folder, without following a link.
fn open_in(folder: c_int, path: &CStr, flags: c_int) -> Result<File, Errno> {
    let opened = Fd::open_at(folder, path, flags | libc::O_NOFOLLOW, 0)?;
    match flags {
        libc::O_RDONLY => Ok(File(opened)),
        _ => opened.not_standard().map(File),
    }
}

/// The seals against sealing, shrinking, growing and writing.
const ALL_SEALS: c_int =
    libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// Whether a descriptor of the program refers to a sealed file in memory that begins with `start`.
pub(crate) fn is_sealed_text(descriptor: i32, start: &[u8; 9]) -> bool {
    let Ok(descriptor) = usize::try_from(descriptor) else {
        return false;
    };
    // SAFETY: takes numbers only.
    let seals = unsafe {
        syscall(
            libc::SYS_fcntl,
            [descriptor, int(libc::F_GET_SEALS), 0, 0, 0, 0],
        )
    };
    if !seals.is_ok_and(|seals| seals & int(ALL_SEALS) == int(ALL_SEALS)) {
        return false;
    }
    begins(descriptor, |read| read == start)
}

/// Whether the first bytes of a file are the wanted ones.
fn begins<const N: usize>(descriptor: usize, wanted: impl Fn(&[u8; N]) -> bool) -> bool {
    let mut read = [0u8; N];
    let (place, length) = ((&raw mut read) as usize, read.len());
    // SAFETY: the kernel writes at most `length` bytes into `read`.
    let count = unsafe { syscall(libc::SYS_pread64, [descriptor, place, length, 0, 0, 0]) };
    count.is_ok_and(|count| count == length) && wanted(&read)
}

/// Whether this process may write a file of this length. Beyond the limit (`ulimit -f`) a write
/// kills it by SIGXFSZ, and the library's writes must never kill a program.
fn may_reach(end: usize) -> bool {
    let mut limits = [u64::MAX; 2];
    let place = (&raw mut limits) as usize;
    // SAFETY: the kernel writes a `struct rlimit64`, which is two 64-bit words; 0 is this process.
    let asked = unsafe {
        syscall(
            libc::SYS_prlimit64,
            [0, libc::RLIMIT_FSIZE as usize, 0, place, 0, 0],
        )
    };
    let [soft, _] = limits;
    asked.is_err() || end as u64 <= soft
}

/// A buffer for the entries of a folder.
#[repr(align(8))]
pub(crate) struct Listing<const N: usize>([u8; N]);

impl Listing<2048> {
    pub(crate) const fn new() -> Self {
        Listing([0; 2048])
    }
}

impl Listing<512> {
    /// A buffer for the small stack of a signal handler.
    pub(crate) const fn small() -> Self {
        Listing([0; 512])
    }
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
        let length = file.length()?;
        let place = map_file(&file.0, length, libc::PROT_READ, libc::MAP_PRIVATE)?;
        let place = place.cast_const();
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
