//! The kernel's error numbers.
//! Touches: nothing.

/// The kernel's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The call is not permitted.
pub const EPERM: Errno = Errno(libc::EPERM);
/// There is no such file.
pub const ENOENT: Errno = Errno(libc::ENOENT);
/// There is no such process or thread.
pub const ESRCH: Errno = Errno(libc::ESRCH);
/// A signal interrupted the call.
pub const EINTR: Errno = Errno(libc::EINTR);
/// The kernel has no memory for the call.
pub const ENOMEM: Errno = Errno(libc::ENOMEM);
/// This user may not open the file.
pub const EACCES: Errno = Errno(libc::EACCES);
/// A part of the path is not a directory.
pub const ENOTDIR: Errno = Errno(libc::ENOTDIR);
/// The file is of an unsuitable kind, or an argument is invalid.
pub const EINVAL: Errno = Errno(libc::EINVAL);
/// The machine has reached its limit of open files.
pub const ENFILE: Errno = Errno(libc::ENFILE);
/// The process has no free descriptor.
pub const EMFILE: Errno = Errno(libc::EMFILE);
/// The file is too large.
pub const EFBIG: Errno = Errno(libc::EFBIG);
/// The path is a link, and links are not followed.
pub const ELOOP: Errno = Errno(libc::ELOOP);
/// Another open file description has the lock.
pub const EAGAIN: Errno = Errno(libc::EAGAIN);
/// The kernel does not have the call.
pub const ENOSYS: Errno = Errno(libc::ENOSYS);
/// The wait timed out.
pub const ETIMEDOUT: Errno = Errno(libc::ETIMEDOUT);
/// The file at this path is not the expected one.
pub const ESTALE: Errno = Errno(libc::ESTALE);

impl Errno {
    /// Whether the same call may succeed in a moment.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        matches!(self, EINTR | ENOMEM | ENFILE | EMFILE)
    }

    /// Whether a lock is refused because another open file description has it.
    pub(super) const fn is_locked(self) -> bool {
        matches!(self, EAGAIN | EACCES)
    }

    /// A hint at the reason why the kernel refuses a call that needs no permission.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            EPERM | ENOSYS => " (a seccomp filter may forbid it)",
            _ => "",
        }
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        #[cfg(any(feature = "std", test))]
        return std::io::Error::from_raw_os_error(self.0).fmt(out);
        #[cfg(not(any(feature = "std", test)))]
        write!(out, "errno {}", self.0)
    }
}

impl core::error::Error for Errno {}
