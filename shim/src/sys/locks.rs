//! Locks on files: those that mean "I still need these bytes", and those of this process.
//! Touches: the kernel; `/proc/thread-self/fdinfo`.
//! Law: if the kernel does not report this process's locks, assume that it holds one.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use gpuslice_config::promises::directory;
use gpuslice_config::sys::{Lock, set_lock};

use super::file::{File, Listing};
use super::file_calls::{Descriptor, Identity};
use super::{int, syscall};

/// The offset from which locks mean "I still need these bytes": beyond the end of any file.
pub(crate) const LOCKS: u64 = 1 << 62;

/// Whether a lock other than this descriptor's is held in a range. A network file system asks its
/// server's lock manager, for as long as that takes.
pub(crate) fn is_locked(fd: Descriptor, start: u64, length: u64) -> bool {
    gpuslice_config::sys::is_locked(fd.raw(), start, length) == Ok(true)
}

/// Sets or removes the lock that means "I still need these bytes". As [`is_locked`], it may wait
/// for a lock manager.
pub(crate) fn need(fd: Descriptor, offset: u64, length: u64, needed: bool) {
    let lock = if needed { Lock::Read } else { Lock::None };
    // On file systems without locks this fails, and other processes cannot see the need.
    let _ = set_lock(fd.raw(), lock, LOCKS.saturating_add(offset), length);
}

/// Whether this process may have locked a file by `fcntl` or `lockf`. Closing any descriptor of the
/// file would release such a lock.
///
/// The kernel lists a lock with the descriptor that has set it, and that one is open as long as the
/// lock exists. No server is asked.
pub(crate) fn may_be_own(identity: Identity) -> bool {
    let Ok(folder) = File::open_folder(c"/proc/thread-self/fdinfo") else {
        return true;
    };
    let mut listing = Listing::small();
    loop {
        match folder.list(&mut listing) {
            Ok([]) => return false,
            Ok(listed) => {
                if directory::names(listed).any(|name| has_lock(&folder, name, identity)) {
                    return true;
                }
            }
            Err(_) => return true,
        }
    }
}

/// Whether a lock may have been set by the descriptor that `name` numbers, on this file.
fn has_lock(folder: &File, name: &CStr, identity: Identity) -> bool {
    let number = core::str::from_utf8(name.to_bytes()).ok();
    let Some(number) = number.and_then(|number| number.parse::<i32>().ok()) else {
        return false;
    };
    if inode(number).is_some_and(|inode| inode != identity.ino) {
        return false;
    }
    let mut text = [0u8; 512];
    let room = text.len();
    let read = folder
        .open_entry(name)
        .and_then(|entry| entry.read(&mut text));
    match read {
        Ok(text) => text.len() == room || text.windows(5).any(|word| word == b"POSIX"),
        // It was closed meanwhile, and its locks were released.
        Err(super::ENOENT) => false,
        Err(_) => true,
    }
}

/// The inode that a descriptor is open on, as it is known without asking a server.
fn inode(fd: i32) -> Option<u64> {
    const WITHOUT_SERVER: i32 = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let to = found.as_mut_ptr() as usize;
    let path = c"".as_ptr() as usize;
    let flags = [
        int(fd),
        path,
        int(WITHOUT_SERVER),
        libc::STATX_INO as usize,
        to,
        0,
    ];
    // SAFETY: the kernel writes one struct statx, and the path ends in NUL.
    unsafe { syscall(libc::SYS_statx, flags) }.ok()?;
    // SAFETY: a struct statx is integers only, which zeros are, too.
    Some(unsafe { found.assume_init() }.stx_ino)
}
