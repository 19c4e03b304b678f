//! What this process alone knows of what it holds.
//! Touches: one page and what it points to; in a forked child all of it reads as zeros, because
//! a child inherits nothing of the driver's.
//! Law: atomics only. No lock that a thread could leave held, no malloc.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::contexts::CONTEXTS;
use crate::grains::Root;
use crate::held::{Bucket, SEGMENTS};
use crate::host::Kept;
use crate::pools::POOLS;
use crate::release::Asked;
use crate::sys;

/// The page. All zeros is its first state.
#[repr(C)]
pub(crate) struct Private {
    /// See `held`.
    pub(crate) segments: [AtomicPtr<Bucket>; SEGMENTS],
    /// See `grains`.
    pub(crate) grains: AtomicPtr<Root>,
    /// See `contexts`.
    pub(crate) contexts: [AtomicU64; CONTEXTS],
    /// See `host`.
    pub(crate) host: Kept,
    /// See `release`.
    pub(crate) release: Asked,
    /// Whether there is device memory in `segments`.
    pub(crate) strays: AtomicU32,
    /// Whether this process has ever had more than one context.
    pub(crate) several_contexts: AtomicU32,
    /// The pools that this process knows, so that they need not be looked for.
    pub(crate) pools: [AtomicU64; POOLS],
    /// How many it has ever known: none, as every program that uses no pools, some, or more than
    /// are listed. See `pools`.
    pub(crate) pools_known: AtomicU32,
}

const PAGE: usize = 4096;
const _: () = assert!(size_of::<Private>() <= PAGE);

static PRIVATE: AtomicPtr<Private> = AtomicPtr::new(core::ptr::null_mut());

/// The page of this process. None: the kernel gives none.
#[inline]
pub(crate) fn page() -> Option<&'static Private> {
    // SAFETY: what is stored there is mapped for good, and zeros are a Private.
    let known = unsafe { PRIVATE.load(Ordering::Acquire).as_ref() };
    known.or_else(first)
}

#[cold]
fn first() -> Option<&'static Private> {
    let ours = get(&PRIVATE, PAGE)?;
    // SAFETY: as in `page`.
    unsafe { ours.as_ref() }
}

/// What a pointer of the page leads to; it is mapped when nobody has done so before.
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
            // SAFETY: nobody else has seen the mapping.
            unsafe { sys::unmap(fresh.cast(), length) };
            Some(other)
        }
    }
}
