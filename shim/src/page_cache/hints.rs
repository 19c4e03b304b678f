//! For each descriptor, the model file that it was last seen open on.
//! Touches: atomics. Maps a second table when a model file is opened at descriptor 4096 or above.
//! Law: only a hint, because some ways to close a descriptor bypass the hooks.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering};

use super::files::{Number, any};
use crate::sys;
use crate::sys::file_calls::Descriptor;

/// Descriptors below this have their hints in the library's own memory.
const FDS: usize = 1 << 12;
/// The kernel's default limit of descriptors; with a raised `fs.nr_open`, higher ones are ignored.
const MOST_FDS: usize = 1 << 20;

/// For each descriptor, the file that it was last seen open on.
static HINTS: [Hint; FDS] = [const { Hint(AtomicU16::new(0)) }; FDS];

/// The file's number, and above it the number of times, modulo 256, that the descriptor was opened
/// on a model file. A thread that finds a descriptor closed must not forget one opened under its
/// number meanwhile.
pub(super) struct Hint(AtomicU16);

impl Hint {
    const FILE: u16 = 0xff;

    fn number(value: u16) -> Option<Number> {
        Number::from_raw(value.to_le_bytes()[0])
    }

    fn get(&self) -> Option<Number> {
        Hint::number(self.0.load(Ordering::Acquire))
    }

    #[inline]
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Hint::FILE != 0
    }

    /// Stores a file's number; returns the previous one.
    pub(super) fn set(&self, number: Number) -> Option<Number> {
        let next = |old: u16| {
            let opened = (old & !Hint::FILE).wrapping_add(Hint::FILE.wrapping_add(1));
            Some(opened | u16::from(number.raw()))
        };
        let old = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        Hint::number(old.unwrap_or_else(core::convert::identity))
    }

    pub(super) fn take(&self) -> Option<Number> {
        Hint::number(self.0.fetch_and(!Hint::FILE, Ordering::AcqRel))
    }

    /// Forgets the file if `is_closed` reports that the descriptor is no longer open on it.
    pub(super) fn forget(&self, number: Number, is_closed: impl FnOnce() -> bool) -> bool {
        let seen = self.0.load(Ordering::Acquire);
        Hint::number(seen) == Some(number)
            && is_closed()
            && self
                .0
                .compare_exchange(
                    seen,
                    seen & !Hint::FILE,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
    }
}

/// One more than the highest descriptor with a hint.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// Records that a descriptor has a hint.
pub(super) fn raise_highest(fd: Descriptor) {
    let next = u32::try_from(fd.0).unwrap_or(0).saturating_add(1);
    HIGHEST.fetch_max(next, Ordering::AcqRel);
}

/// The hints of descriptors from `FDS` on; mapped once one of them is a model's.
static MORE_HINTS: AtomicPtr<Hint> = AtomicPtr::new(null_mut());

pub(super) fn hint(fd: Descriptor) -> Option<&'static Hint> {
    let number = usize::try_from(fd.0).ok()?;
    match HINTS.get(number) {
        None => high_hint(number),
        low => low,
    }
}

#[cold]
fn high_hint(number: usize) -> Option<&'static Hint> {
    let place = MORE_HINTS.load(Ordering::Acquire);
    if place.is_null() || number >= MOST_FDS {
        return None;
    }
    // SAFETY: mapped for good, for all numbers from `FDS` up to `MOST_FDS`; all zeros is a valid
    // Hint.
    unsafe { place.wrapping_add(number.wrapping_sub(FDS)).as_ref() }
}

/// Maps the hints of high descriptors. A forked child inherits them with its descriptors.
fn more_hints() -> Option<()> {
    const LENGTH: usize = (MOST_FDS - FDS) * size_of::<Hint>();
    if MORE_HINTS.load(Ordering::Acquire).is_null() {
        let fresh = sys::map(LENGTH).ok()?.cast::<Hint>();
        let (set, seen) = (Ordering::AcqRel, Ordering::Acquire);
        let known = MORE_HINTS.compare_exchange(null_mut(), fresh, set, seen);
        if known.is_err() {
            // SAFETY: the mapping was never published.
            unsafe { sys::unmap(fresh.cast(), LENGTH) };
        }
    }
    Some(())
}

/// The hint of a descriptor, for writing: maps the high ones if needed.
pub(super) fn new_hint(fd: Descriptor) -> Option<&'static Hint> {
    if usize::try_from(fd.0).is_ok_and(|number| number >= FDS) {
        more_hints()?;
    }
    hint(fd)
}

/// Whether a descriptor may be a model file's. High descriptors are not looked up here: a call
/// would cost every caller a stack frame.
#[inline]
pub(super) fn may_be(fd: Descriptor) -> bool {
    any()
        && usize::try_from(fd.0).is_ok_and(|number| match HINTS.get(number) {
            Some(hint) => hint.is_set(),
            None => !MORE_HINTS.load(Ordering::Relaxed).is_null(),
        })
}

/// The file that a descriptor was last seen to be open on.
pub(super) fn hinted_at(fd: Descriptor) -> Option<Number> {
    hint(fd)?.get()
}

/// The descriptors of a range that have hints.
pub(super) fn hinted(first: u32, last: u32) -> impl Iterator<Item = Descriptor> {
    let end = HIGHEST.load(Ordering::Acquire).min(last.saturating_add(1));
    let fds = (first..end).filter_map(|fd| i32::try_from(fd).ok());
    fds.map(Descriptor)
        .filter(|fd| hint(*fd).is_some_and(Hint::is_set))
}
