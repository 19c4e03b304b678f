//! The library's own descriptor of a model file, through which the file is evicted when the program
//! has closed all of its own.
//! Touches: the kernel; the entries of the table of files.
//! Law: closing any descriptor of a file releases the locks that the process has set on it by
//! `fcntl` or `lockf`. Ours is closed only if there is no such lock, or if the program closes a
//! descriptor of the file itself.

use core::sync::atomic::{AtomicU32, Ordering};

use super::file_systems::FileSystem;
use super::files::{BUSY, FREE, KEPT, ModelFile, Number};
use crate::sys::file_calls::{self, Descriptor, Identity};
use crate::sys::locks::{self, LOCKS};

/// The word of an entry whose descriptor a thread is just opening.
pub(super) const OPENING: i32 = -1;

/// The number of entries whose file is no longer in use, but whose descriptor cannot be closed yet.
static KEPT_ENTRIES: AtomicU32 = AtomicU32::new(0);

/// The descriptor that a word of the table stands for.
fn descriptor(plus_one: i32) -> Option<Descriptor> {
    let number = plus_one.checked_sub(1)?;
    (number >= 0).then_some(Descriptor(number))
}

impl ModelFile {
    /// Our own descriptor of the file, if there is one and it is still open on the file: the
    /// program may have closed ours with all its others, and the number may be another file's.
    pub(super) fn own(&self) -> Option<Descriptor> {
        descriptor(self.own.load(Ordering::Acquire)).filter(|own| self.is(*own))
    }

    /// Opens a descriptor of our own if there is none: programs close theirs before they read
    /// mapped data. The caller must be one of the file's users.
    pub(super) fn hold(&self, fd: Descriptor) -> bool {
        let old = self.own.load(Ordering::Acquire);
        if old == OPENING || descriptor(old).is_some_and(|own| self.is(own)) {
            return true;
        }
        // Reserves the entry before it opens the file. If two threads opened a descriptor, one would have to
        // be closed, which would release the program's locks.
        let first = self
            .own
            .compare_exchange(old, OPENING, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_err() {
            return true;
        }
        let own = file_calls::open_again(fd).ok();
        let own = own.map(|own| match self.may_be_locked(own) {
            true => own,
            false => file_calls::move_up(own),
        });
        let word = own.map_or(0, |own| own.0.saturating_add(1));
        self.own.store(word, Ordering::Release);
        own.is_some()
    }

    /// Whether the program may have a lock on the file, which closing `own` would release.
    fn may_be_locked(&self, own: Descriptor) -> bool {
        match self.file_system() {
            FileSystem::Network => locks::may_be_own(self.identity()),
            // The server keeps the locks, and the kernel lists them nowhere.
            FileSystem::Fuse => locks::is_locked(own, 0, LOCKS),
            FileSystem::Local | FileSystem::Memory => {
                locks::is_locked(own, 0, LOCKS) && locks::may_be_own(self.identity())
            }
        }
    }

    /// Closes our own descriptor, and returns the entry's next state. `closing`: the program is
    /// about to close a descriptor of the file, which releases its locks anyway.
    pub(super) fn close_own(&self, closing: bool) -> u8 {
        if let Some(own) = self.own() {
            if !closing && self.may_be_locked(own) {
                KEPT_ENTRIES.fetch_add(1, Ordering::AcqRel);
                return KEPT;
            }
            file_calls::close(own);
        }
        self.own.store(0, Ordering::Release);
        FREE
    }
}

/// Takes the entry of a file whose descriptor was kept. Closes the other kept descriptors whose
/// files are no longer locked.
pub(super) fn take_kept(identity: Identity) -> Option<Number> {
    if KEPT_ENTRIES.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut taken = None;
    for number in Number::all() {
        let file = number.file();
        let state = &file.state;
        let kept = state.compare_exchange(KEPT, BUSY, Ordering::AcqRel, Ordering::Relaxed);
        if kept.is_err() {
            continue;
        }
        KEPT_ENTRIES.fetch_sub(1, Ordering::AcqRel);
        if taken.is_none() && file.identity() == identity {
            taken = Some(number);
        } else {
            state.store(file.close_own(false), Ordering::Release);
        }
    }
    taken
}
