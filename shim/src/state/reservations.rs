//! The pools of this process, and the devices that graphs of it have memory on: each with what it
//! has reserved.
//! Touches: places of this process's page, and a mapping where a program has more pools than those.
//! Law: a place is one pool's from when it is known until it is destroyed, and each pool has one
//! place: an unknown one is put where the first is free that never was another's, and there a
//! second thread finds it. Only who has just been given a pool by the driver takes a used place.
//!
//! A handle is a pointer: the driver is called with it only between `enter` and `leave`, and whoever
//! is about to destroy it closes its place first and waits until all have left.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};

use gpuslice_config::device::CudaOrdinal;
use gpuslice_config::ledger::{Charged, Patience, Reserve};
use gpuslice_config::units::Bytes;

use crate::state::page::{self, Private};
use crate::sys;

/// One pool, or the graphs of one device.
#[derive(Debug)]
#[repr(C)]
struct Place {
    key: AtomicU64,
    /// How many threads have entered, how often the place has had another, and how many threads
    /// are about to destroy what is there.
    users: AtomicU64,
    reserve: Reserve,
}

/// How many places there are before a mapping is needed.
const FIRST: usize = 8;
/// How many a mapping has, and how many mappings there are. The pools of a program that has more of
/// them at once, 65,544, are not counted.
const MORE: usize = 4096;
const MAPPINGS: usize = 16;

/// All places. All zeros: none is used.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Reserves {
    first: [Place; FIRST],
    more: [AtomicPtr<[Place; MORE]>; MAPPINGS],
}

/// A key: a handle, or a number of a device; above it the ordinal that it is charged to, plus one;
/// above that how often the place has had another.
const NUMBER: u64 = (1 << 53) - 1;
const ORDINAL: u64 = ((1 << 6) - 1) << ORDINAL_AT;
const ORDINAL_AT: u32 = 53;
const TIMES: u64 = !(NUMBER | ORDINAL);
const ONCE: u64 = NUMBER + ORDINAL + 1;
/// Memory of the host, which no device is charged for.
const HOST: u64 = 0;
/// Nobody's: what was there is gone, ...
const GONE: u64 = ORDINAL;
/// ... or is going.
const GOING: u64 = ORDINAL + 1;

const ENTERED: u64 = (1 << 32) - 1;
const GENERATION: u64 = 1 << 32;
const GENERATIONS: u64 = 0xffff << 32;
const CLOSED: u64 = 1 << 48;

/// How long those that have entered are waited for, in nanoseconds: a thread that was cancelled in
/// the driver never leaves.
const DESTROY_PATIENCE: u64 = 1_000_000_000;

/// That a thread has entered a place. It has no destructor: the thread may be cancelled meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Entered {
    generation: u64,
}

/// A pool, or a device's graphs, as they are known.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    place: &'static Place,
    key: u64,
}

/// What a place is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A pool, by its handle.
    Pool(u64),
    /// What graphs have on the device that they are charged to.
    Graphs,
}

fn key(what: What, device: Option<CudaOrdinal>) -> Option<u64> {
    let above = match device {
        None => HOST,
        Some(ordinal) => u64::from(ordinal.0).checked_add(1)?,
    };
    let number = match what {
        What::Pool(handle) => handle,
        // No handle is as small as that.
        What::Graphs => above,
    };
    let is_one = above < ORDINAL >> ORDINAL_AT && number != 0 && number <= NUMBER;
    is_one.then_some(above << ORDINAL_AT | number)
}

fn is_used(key: u64) -> bool {
    key & ORDINAL != ORDINAL
}

impl Known {
    /// What it has reserved.
    pub(crate) fn reserve(&self) -> &'static Reserve {
        &self.place.reserve
    }

    /// The device that is charged for it. None: none is.
    pub(crate) fn ordinal(&self) -> Option<CudaOrdinal> {
        let above = (self.key & ORDINAL) >> ORDINAL_AT;
        u32::try_from(above.checked_sub(1)?).ok().map(CudaOrdinal)
    }

    /// What it is.
    pub(crate) fn what(&self) -> What {
        let number = self.key & NUMBER;
        match number == (self.key & ORDINAL) >> ORDINAL_AT {
            true => What::Graphs,
            false => What::Pool(number),
        }
    }

    /// Keeps it from being destroyed until [`Known::leave`]. None: it is about to be, or is gone.
    pub(crate) fn enter(&self) -> Option<Entered> {
        let Known { place, key } = self;
        let open = |seen: u64| (seen < CLOSED).then(|| seen.wrapping_add(1));
        let seen = place.users.fetch_update(SeqCst, SeqCst, open).ok()?;
        let entered = Entered {
            generation: seen & GENERATIONS,
        };
        // Another pool may have this place by now.
        if place.key.load(SeqCst) == *key {
            return Some(entered);
        }
        self.leave(entered);
        None
    }

    /// The same; waits for the thread that may be about to destroy it.
    pub(crate) fn enter_later(&self) -> Option<Entered> {
        let end = sys::clock().saturating_add(DESTROY_PATIENCE);
        loop {
            let entered = self.enter();
            let here = self.place.key.load(SeqCst) == self.key;
            if entered.is_some() || !here || sys::clock() >= end {
                return entered;
            }
            sys::nap();
        }
    }

    /// The driver is not called with it any more by who has entered.
    pub(crate) fn leave(&self, entered: Entered) {
        let fewer = |seen: u64| {
            let same = seen & GENERATIONS == entered.generation && seen & ENTERED != 0;
            same.then(|| seen.wrapping_sub(1))
        };
        let _ = self.place.users.fetch_update(SeqCst, SeqCst, fewer);
    }

    /// It is about to be destroyed: nobody enters any more.
    pub(crate) fn close(&self) {
        self.place.users.fetch_add(CLOSED, SeqCst);
    }

    /// Waits until all have left that entered before.
    pub(crate) fn wait_until_left(&self) {
        let end = sys::clock().saturating_add(DESTROY_PATIENCE);
        while self.place.users.load(SeqCst) & ENTERED != 0 && sys::clock() < end {
            sys::nap();
        }
    }

    /// It was not destroyed after all.
    pub(crate) fn open(&self) {
        let less = |seen: u64| seen.checked_sub(CLOSED);
        let _ = self.place.users.fetch_update(SeqCst, SeqCst, less);
    }

    /// Forgets what is gone. What the ledger has of it is the caller's to release. None: it is
    /// another's place by now.
    pub(crate) fn forget(&self) -> Option<Bytes> {
        let Known { place, key } = self;
        let times = key & TIMES;
        let going = place
            .key
            .compare_exchange(*key, times | GOING, SeqCst, SeqCst);
        going.is_ok().then(|| {
            let held = place.reserve.close();
            let next = place.users.load(SeqCst).wrapping_add(GENERATION);
            place.users.store(next & GENERATIONS, SeqCst);
            place.key.store(times.wrapping_add(ONCE) | GONE, SeqCst);
            held
        })
    }
}

/// The places that there are by now.
fn places(private: &'static Private) -> impl Iterator<Item = &'static Place> {
    let reserves = &private.reserves;
    // SAFETY: what is stored there is mapped for good, and zeros are places.
    let mapped = |more: &AtomicPtr<[Place; MORE]>| unsafe { more.load(SeqCst).as_ref() };
    let later = reserves.more.iter().map_while(mapped).flatten();
    reserves.first.iter().chain(later)
}

/// The places that there can be.
fn all_places(private: &'static Private) -> impl Iterator<Item = &'static Place> {
    let reserves = &private.reserves;
    let later = reserves.more.iter().map_while(more).flatten();
    reserves.first.iter().chain(later)
}

fn more(place: &AtomicPtr<[Place; MORE]>) -> Option<&'static [Place; MORE]> {
    let places = page::get(place, size_of::<[Place; MORE]>())?;
    // SAFETY: it is mapped for good, and zeros are places.
    unsafe { places.as_ref() }
}

fn look(place: &'static Place, number: u64) -> Option<Known> {
    let key = place.key.load(SeqCst);
    (key & NUMBER == number && is_used(key)).then_some(Known { place, key })
}

/// The pool of a handle, as far as it is known.
#[inline]
pub(crate) fn pool(private: &'static Private, handle: u64) -> Option<Known> {
    let used = places(private).take_while(|place| place.key.load(SeqCst) != 0);
    used.filter(|_| handle != 0)
        .find_map(|place| look(place, handle))
}

/// The same, or what it is from now on. None: there is no place for it.
pub(crate) fn known(
    private: &'static Private,
    what: What,
    device: Option<CudaOrdinal>,
) -> Option<Known> {
    let key = key(what, device)?;
    let take = |place: &'static Place| {
        if place.key.load(SeqCst) == 0 {
            let _ = place.key.compare_exchange(0, key, SeqCst, SeqCst);
        }
        look(place, key & NUMBER)
    };
    all_places(private).find_map(take)
}

/// One that the driver has just made: no other thread knows of it yet.
pub(crate) fn made(
    private: &'static Private,
    what: What,
    device: Option<CudaOrdinal>,
) -> Option<Known> {
    let fresh = key(what, device)?;
    let take = |place: &'static Place| {
        let seen = place.key.load(SeqCst);
        if is_used(seen) && seen != 0 || seen & NUMBER == GOING & NUMBER {
            return None;
        }
        let key = seen & TIMES | fresh;
        let taken = place.key.compare_exchange(seen, key, SeqCst, SeqCst);
        taken.is_ok().then_some(Known { place, key })
    };
    all_places(private).find_map(take)
}

/// All that are known, as they are at that moment.
pub(crate) fn each(private: &'static Private, mut visit: impl FnMut(Known)) {
    for place in places(private) {
        match place.key.load(SeqCst) {
            0 => return,
            key if is_used(key) => visit(Known { place, key }),
            _ => {}
        }
    }
}

/// Lets some time pass, and tries again, as long as calls are under way on any of them: what they
/// have claimed and do not need comes back.
pub(crate) fn wait_for_others<T>(
    private: &'static Private,
    charged: &impl Charged,
    mut again: impl FnMut() -> Option<T>,
) -> Option<T> {
    let used = || places(private).take_while(|place| place.key.load(SeqCst) != 0);
    let under_way = || {
        let each = used().filter_map(|place| place.reserve.under_way());
        each.reduce(u64::wrapping_add)
    };
    let mut patience = Patience::new(charged);
    let mut seen = under_way();
    while seen.is_some() && patience.wait(charged) {
        let now = under_way();
        if now != seen
            && let Some(got) = again()
        {
            return Some(got);
        }
        seen = now;
    }
    None
}
