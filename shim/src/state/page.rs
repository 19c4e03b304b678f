//! The page with all private state of this process.
//! Touches: one page and the mappings it points to. In a forked child all of it reads as zeros,
//! because a child inherits none of the driver's state.
//! Law: atomics only. No lock that a thread could leave held, except for `making`, for which nothing
//! waits longer than seconds. No malloc.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use gpuslice_config::ledger;

use crate::state::allocations::{Leaf, Root};
use crate::state::contexts::CONTEXTS;
use crate::state::handles::{Bucket, FIRST, SEGMENTS};
use crate::state::reading::KeptReading;
use crate::state::reclaim::Reclaim;
use crate::state::reservations::Reserves;
use crate::sys;

/// The page and the tables behind it, in one mapping: a second mapping would cost more than pages
/// that are never touched. All zeros is the initial state.
#[repr(C)]
pub(crate) struct ProcessState {
    /// The first of the `segments`: a program that allocates only linear memory needs no other.
    pub(crate) first: [Bucket; FIRST],
    /// This process's slots of the ledger.
    pub(crate) ledger: ledger::Private,
    /// See `handles`.
    pub(crate) segments: [AtomicPtr<Bucket>; SEGMENTS],
    /// See `allocations`: the range of the near leaf. 0: not chosen yet.
    pub(crate) near: AtomicU64,
    /// See `allocations`: whether any address is in another leaf.
    pub(crate) far: AtomicU32,
    /// See `contexts`.
    pub(crate) contexts: [AtomicU64; CONTEXTS],
    /// See `contexts`: the ordinals whose primary contexts are being made, a bit each.
    pub(crate) making: AtomicU64,
    /// See `reading`.
    pub(crate) host: KeptReading,
    /// See `reclaim`.
    pub(crate) release: Reclaim,
    /// See `reservations`.
    pub(crate) reserves: Reserves,
    /// Whether there is device memory in `segments`.
    pub(crate) strays: AtomicU32,
    /// Whether this process has ever had more than one context.
    pub(crate) several_contexts: AtomicU32,
    /// Whether a pool was ever destroyed while memory from it was in use.
    pub(crate) dooms: AtomicU32,
    /// Whether linear memory was ever exported.
    pub(crate) exports: AtomicU32,
    /// Whether memory of another process was ever opened.
    pub(crate) imports: AtomicU32,
    /// Whether physical memory was ever mapped into an array.
    pub(crate) tiles: AtomicU32,
    /// See `allocations`. It begins on the page of all other fields.
    pub(crate) leaf: Leaf,
    /// See `allocations`: the other leaves.
    pub(crate) root: Root,
}

/// The words of the first allocations, at least 64, lie on the page.
const _: () = assert!(core::mem::offset_of!(ProcessState, leaf) <= 3584);

#[unsafe(link_section = ".data")]
static PAGES: AtomicPtr<ProcessState> = AtomicPtr::new(core::ptr::null_mut());

/// The page of this process. None: the kernel refuses memory for it.
#[inline]
pub(crate) fn page() -> Option<&'static ProcessState> {
    existing().or_else(first)
}

/// The page of this process, if it has one already.
#[inline]
pub(crate) fn existing() -> Option<&'static ProcessState> {
    // SAFETY: the stored pointer is mapped for good, and all zeros is a valid ProcessState.
    unsafe { PAGES.load(Ordering::Acquire).as_ref() }
}

/// The page of this process, or one that never holds an entry. The latter serves an enforced limit
/// where the kernel refuses the page; no memory is granted then.
#[inline(always)]
pub(crate) fn page_or_none(enforced: bool) -> Option<&'static ProcessState> {
    page().or_else(|| enforced.then(unused))
}

#[cold]
fn unused() -> &'static ProcessState {
    struct Unused(MaybeUninit<ProcessState>);
    // SAFETY: a ProcessState consists of atomics only.
    unsafe impl Sync for Unused {}
    static UNUSED: Unused = Unused(MaybeUninit::zeroed());
    // SAFETY: all zeros is a valid ProcessState.
    unsafe { UNUSED.0.assume_init_ref() }
}

#[cold]
fn first() -> Option<&'static ProcessState> {
    let ours = get(&PAGES, size_of::<ProcessState>())?;
    // SAFETY: `get` returned it: mapped for good, and all zeros is a valid ProcessState.
    let ours = unsafe { ours.as_ref() }?;
    // A page whose first access is a write costs one fault; a read first costs two.
    ours.near.store(0, Ordering::Relaxed);
    Some(ours)
}

/// The mapping that a pointer of the page leads to; creates it if it does not exist yet.
pub(crate) fn get<T>(place: &AtomicPtr<T>, length: usize) -> Option<*mut T> {
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let fresh = sys::map_wiped(length).ok()?.cast::<T>();
    let null = core::ptr::null_mut();
    match place.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(fresh),
        Err(other) => {
            // SAFETY: the mapping was never published.
            unsafe { sys::unmap(fresh.cast(), length) };
            Some(other)
        }
    }
}
