//! The mappings of the ledger: the shared file, the page that a fork wipes, the pages that hold
//! this process's locks.
//! Touches: the address space. Nothing here is ever unmapped but what nobody has seen.
//! Law: a lock lives as long as the address space that it speaks for, and no longer.
//!
//! A lock of an open file description lasts until its last reference goes, and a mapping is one.
//! So the description is mapped (one page that nobody can touch), marked as not to be inherited,
//! and the descriptor is closed: no program can close it, no fork or raw clone can keep it, it
//! takes no descriptor from the program, and execve and any death end it.
//!
//! A file that becomes shorter under a mapping raises SIGBUS in whoever touches the lost pages.
//! The kernel has no way to forbid that to those who may write (seals are for memfd, which no
//! path leads to), a read that cannot fault is a system call of 320 ns, and a library installs
//! no signal handlers. Who may write is decided by the file's mode: processes of this slice. So
//! a slice can end itself in this way, as it can with kill(2), and nobody else can; and who
//! looks from outside (`snapshot`) reads, and maps nothing.
#![expect(unsafe_code, reason = "mappings")]

use super::file::File;
use super::layout::SIZE;
use super::private::Private;
use super::sys::{self, Errno, Fd};
use core::ptr::NonNull;

const PAGE: usize = 4096;
const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
const MADV_DONTFORK: usize = 10;
const MADV_WIPEONFORK: usize = 18;

/// Maps a ledger file. Its length has been checked.
pub(super) fn file(fd: &Fd) -> Result<&'static File, Errno> {
    let at = sys::mmap(SIZE, PROT_READ_WRITE, MAP_SHARED, Some(fd))?;
    let at = NonNull::new(at as *mut File).ok_or(Errno(0))?;
    // SAFETY: the pages are mapped for good, as long as a File and aligned to a page. A File is
    // atomics only: others may write to it, and any bits are a value.
    Ok(unsafe { at.as_ref() })
}

/// Takes back a mapping that turned out to be no ledger's.
pub(super) fn forget(file: &'static File) {
    // SAFETY: `Ledger::open` calls this on the only reference, before it gives up.
    unsafe { sys::munmap(&raw const *file as usize, SIZE) };
}

/// The page of this process: zeros at first, and zeros again in every child that it forks.
pub(super) fn private() -> Result<&'static Private, Errno> {
    const { assert!(size_of::<Private>() <= PAGE) };
    let at = sys::mmap(PAGE, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, None)?;
    // SAFETY: nobody else knows of the page yet; zeros are what its users expect after a fork.
    if let Err(errno) = unsafe { sys::madvise(at, PAGE, MADV_WIPEONFORK) } {
        // SAFETY: nobody else knows of the page.
        unsafe { sys::munmap(at, PAGE) };
        return Err(errno);
    }
    let at = NonNull::new(at as *mut Private).ok_or(Errno(0))?;
    // SAFETY: the page is mapped for good and aligned; zeros are a Private, which is atomics only.
    Ok(unsafe { at.as_ref() })
}

/// Keeps a description's locks until this address space ends.
pub(super) struct Hold(usize);

impl Hold {
    /// Keeps the locks of this description, those that it has and those that it will get.
    pub(super) fn of(fd: &Fd) -> Result<Hold, Errno> {
        let at = sys::mmap(PAGE, PROT_NONE, MAP_SHARED, Some(fd))?;
        // SAFETY: nobody touches the page, in this process or in a child.
        match unsafe { sys::madvise(at, PAGE, MADV_DONTFORK) } {
            Ok(()) => Ok(Hold(at)),
            Err(errno) => {
                Hold(at).release();
                Err(errno)
            }
        }
    }

    /// Lets go of them at once.
    pub(super) fn release(self) {
        // SAFETY: the page is this Hold's own, and nobody can touch it.
        unsafe { sys::munmap(self.0, PAGE) };
    }
}
