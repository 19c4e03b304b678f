//! The mappings of the ledger: the shared file, the page that a fork wipes, the pages that hold
//! this process's locks.
//! Touches: the address space. Only mappings that no other code has seen are ever unmapped.
//! Law: a lock lives exactly as long as the address space that it represents.
//!
//! A lock of an open file description lasts until its last reference goes, and a mapping is one. So
//! the description is mapped (one page without access rights), marked as not to be inherited, and
//! the descriptor is closed. Then no program can close it, and no fork or raw clone can keep it. It
//! uses no descriptor of the program, and ends at execve or at any death.
//!
//! Truncating a file under a mapping raises SIGBUS in every thread that touches the lost pages. A
//! container's ledger is sealed against that (gpuslice-hook's `seal`). Other ledgers can be
//! truncated by the processes that may write to them: by the file's mode, those of this slice. So a
//! slice can end itself in this way, as it can with kill(2), but no other process can end it.
//! Observers outside the slice (`snapshot`) read, and map nothing. A read that cannot fault is a
//! system call of 320 ns, and a library installs no signal handlers.
#![expect(unsafe_code, reason = "mappings")]

use crate::ledger::protocol::header::Header;
use crate::ledger::protocol::layout::{KINDS, Node, Table, columns_at, sharing_at};
use crate::ledger::protocol::private::{Private, Tally};
use crate::ledger::protocol::sharing::{SHARERS, Sharer};
use crate::ledger::protocol::sync::AtomicU64;
use crate::sys::{self, Errno, Fd, PAGE};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A mapped ledger file.
pub(crate) struct Mapped {
    pub(crate) header: &'static Header,
    pub(crate) table: Table<'static>,
    length: usize,
}

/// Maps a ledger file that has been checked: `length` bytes with room for `slots` slots.
pub(crate) fn file(fd: &Fd, length: usize, slots: usize) -> Result<Mapped, Errno> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let start = sys::map_file(fd, length, access, libc::MAP_SHARED)?;
    let start = NonNull::new(start).ok_or(Errno(0))?;
    let [used, pending, nodes, kinds] = columns_at(slots);
    // SAFETY: the pages are mapped for good and begin with a header. All of it is atomics: others may
    // write to it, and any bits are a value.
    let header = unsafe { start.cast::<Header>().as_ref() };
    let column = |at: usize| start.as_ptr().wrapping_add(at);
    let words = |at| {
        // SAFETY: as above; so many words lie there.
        unsafe { core::slice::from_raw_parts(column(at).cast::<AtomicU64>(), slots) }
    };
    // SAFETY: as above; so many nodes lie there.
    let nodes = unsafe { core::slice::from_raw_parts(column(nodes).cast::<Node>(), slots) };
    let kinds = column(kinds).cast::<[AtomicU64; KINDS]>();
    // SAFETY: as above; so many rows of kinds lie there.
    let kinds = unsafe { core::slice::from_raw_parts(kinds, slots) };
    let sharing = column(sharing_at(slots)).cast::<Sharer>();
    // SAFETY: as above; so many rows of sharers lie there.
    let sharing = unsafe { core::slice::from_raw_parts(sharing, SHARERS) };
    Ok(Mapped {
        header,
        table: Table {
            extent: &header.extent,
            used: words(used),
            pending: words(pending),
            nodes,
            kinds,
            sharers: &header.sharers,
            sharing,
        },
        length,
    })
}

/// Unmaps a file that turned out not to be a ledger.
pub(crate) fn forget(mapped: Mapped) {
    let at = core::ptr::from_ref(mapped.header).cast_mut().cast();
    // SAFETY: `Ledger::open` calls this with the only references, before it gives up.
    unsafe { sys::unmap(at, mapped.length) };
}

/// Maps this process's private page: zeros at first, and zeros again in every forked child.
pub(crate) fn private() -> Result<&'static Private, Errno> {
    const { assert!(size_of::<Private>() <= PAGE) };
    let at = sys::map_wiped(PAGE)?.cast::<Private>();
    let at = NonNull::new(at).ok_or(Errno(0))?;
    // SAFETY: the page is mapped for good and aligned; zeros are a Private, which is atomics only.
    Ok(unsafe { at.as_ref() })
}

/// Maps a page of zero words, which are zero again in every forked child.
pub(crate) fn tally() -> Option<NonNull<Tally>> {
    const { assert!(size_of::<Tally>() <= PAGE) };
    NonNull::new(sys::map_wiped(PAGE).ok()?.cast())
}

/// Returns the tally page, once one is stored.
pub(crate) fn tally_at(place: &AtomicPtr<Tally>) -> Option<&'static Tally> {
    // SAFETY: only pages of `tally` are stored there; they are mapped for good, and zeros are a
    // Tally, which is atomics only.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// Like [`tally_at`], but maps the page if none is stored.
pub(crate) fn tally_made(place: &AtomicPtr<Tally>) -> Option<&'static Tally> {
    if let Some(known) = tally_at(place) {
        return Some(known);
    }
    let fresh = tally()?.as_ptr();
    let null = core::ptr::null_mut();
    if place
        .compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        // SAFETY: no other code has seen the page.
        unsafe { sys::unmap(fresh.cast(), PAGE) };
    }
    tally_at(place)
}

/// A mapping that keeps a description's locks until this address space ends.
pub(crate) struct Hold(*mut u8);

impl Hold {
    /// Keeps the present and future locks of this description.
    pub(crate) fn of(fd: &Fd) -> Result<Hold, Errno> {
        let at = sys::map_file(fd, PAGE, libc::PROT_NONE, libc::MAP_SHARED)?;
        // SAFETY: no code touches the page, in this process or in a child.
        match unsafe { sys::madvise(at, PAGE, libc::MADV_DONTFORK) } {
            Ok(()) => Ok(Hold(at)),
            Err(errno) => {
                Hold(at).release();
                Err(errno)
            }
        }
    }

    /// Releases the locks at once.
    pub(crate) fn release(self) {
        // SAFETY: the page is this Hold's own, and no code can touch it.
        unsafe { sys::unmap(self.0, PAGE) };
    }
}
