//! The pools of this process, and the devices on which its graphs have memory, each with the memory
//! it has reserved.
//! Touches: places of this process's page, and further mappings if a program has more pools.
//! Law: a place belongs to one pool from when the pool is known until it is destroyed, and each
//! pool has one place. An unknown pool goes to the first place that was never used, so that a
//! second thread finds it there. A place may be reused by a thread that has just created a pool, and
//! by an unknown pool of the device whose reset has freed the place: no thread may use that device's
//! pools during the reset, so none has looked for the pool in later places.
//!
//! A handle is a pointer: the driver is called with it only between `enter` and `leave`. A thread
//! that is about to destroy the pool first closes its place, and waits until all others have left.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use core::time::Duration;

use gpuslice_config::ledger::{Account, Kind, Patience, Reserve};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

pub(crate) use crate::state::owner::What;
use crate::state::page::{self, ProcessState};
use crate::sys;

/// One pool, or the graphs of one device.
#[derive(Debug)]
#[repr(C)]
struct Place {
    key: AtomicU64,
    /// The number of threads that have entered, the generation of the place, the number of threads
    /// that are about to destroy its pool, and whether they take too long.
    users: AtomicU64,
    reserve: Reserve,
}

/// The number of places on the page, before a mapping is needed.
const FIRST: usize = 8;
/// The number of places in a mapping, and of mappings. A program can use 65,544 pools at once: see
/// `account::pools::Unrecorded`.
const MORE: usize = 4096;
const MAPPINGS: usize = 16;

/// All places. All zeros: none is used.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Reserves {
    first: [Place; FIRST],
    more: [AtomicPtr<[Place; MORE]>; MAPPINGS],
}

/// A key: a handle, or a device's number; above it whether the memory is pinned memory of the host, and
/// whether it is managed; above that the ordinal that is charged, plus one, and the number of times
/// the place was reused.
const NUMBER: u64 = (1 << 51) - 1;
const PINNED: u64 = 1 << 51;
const MANAGED: u64 = 1 << 52;
const ORDINAL: u64 = ((1 << 6) - 1) << ORDINAL_AT;
const ORDINAL_AT: u32 = 53;
const TIMES: u64 = !(NUMBER | PINNED | MANAGED | ORDINAL);
const ONCE: u64 = NUMBER + PINNED + MANAGED + ORDINAL + 1;
/// Memory of the host, which is charged to no device.
const HOST: u64 = 0;
/// A free place, whose pool is gone.
const GONE: u64 = ORDINAL;
/// A place whose pool is being forgotten.
const GOING: u64 = ORDINAL + 1;
/// A free place, whose pool ended with a reset of the first device; those of other devices follow.
const RESET: u64 = ORDINAL + 2;

const ENTERED: u64 = (1 << 32) - 1;
const GENERATION: u64 = 1 << 32;
const GENERATIONS: u64 = 0xffff << 32;
const CLOSED: u64 = 1 << 48;
/// A thread that destroys the pool was cancelled in the driver, or the driver does not return.
const STUCK: u64 = 1 << 63;

/// How long a thread waits for those that have entered: a thread that was cancelled in the driver
/// never leaves.
const DESTROY_PATIENCE: Duration = Duration::from_secs(1);

/// The token of a thread that has entered a place. It has no destructor: the thread may be
/// cancelled meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Entered {
    /// The generation, and `STUCK`.
    word: u64,
}

/// A known pool, or a device's graphs.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    place: &'static Place,
    key: u64,
}

fn key(what: What, device: Option<CudaOrdinal>) -> Option<u64> {
    let above = match device {
        None => HOST,
        Some(ordinal) => u64::from(ordinal.0).checked_add(1)?,
    };
    let (number, kind) = match what {
        What::Pool(handle) => (handle, 0),
        What::Managed(handle) => (handle, MANAGED),
        What::Pinned(handle) => (handle, PINNED),
        // No handle is as small as an ordinal.
        What::Graphs => (above, 0),
    };
    let is_one = above < ORDINAL >> ORDINAL_AT && number != 0 && number <= NUMBER;
    is_one.then_some(above << ORDINAL_AT | kind | number)
}

/// The key of a place that was freed by a reset of the device.
fn reset(device: CudaOrdinal) -> u64 {
    RESET.wrapping_add(u64::from(device.0))
}

fn is_used(key: u64) -> bool {
    key & ORDINAL != ORDINAL
}

impl Known {
    /// The memory that it has reserved.
    pub(crate) fn reserve(&self) -> &'static Reserve {
        &self.place.reserve
    }

    /// The device that is charged for it. None: no device.
    pub(crate) fn ordinal(&self) -> Option<CudaOrdinal> {
        let above = (self.key & ORDINAL) >> ORDINAL_AT;
        u32::try_from(above.checked_sub(1)?).ok().map(CudaOrdinal)
    }

    /// The owner of the place.
    pub(crate) fn what(&self) -> What {
        let number = self.key & NUMBER;
        match number == (self.key & ORDINAL) >> ORDINAL_AT {
            true => What::Graphs,
            false if self.key & MANAGED != 0 => What::Managed(number),
            false if self.key & PINNED != 0 => What::Pinned(number),
            false => What::Pool(number),
        }
    }

    /// The handle of the pool. None: the place belongs to graphs.
    pub(crate) fn pool(&self) -> Option<u64> {
        match self.what() {
            What::Pool(handle) | What::Managed(handle) | What::Pinned(handle) => Some(handle),
            What::Graphs => None,
        }
    }

    /// The kind of memory that it is charged as.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        // Every allocation from a pool asks: a table costs fewer instructions than `what`.
        const KINDS: [Kind; 4] = [Kind::Pool, Kind::Pinned, Kind::Managed, Kind::Pool];
        let [bits, ..] = (self.key >> PINNED.trailing_zeros() & 3).to_le_bytes();
        KINDS.get(usize::from(bits)).copied().unwrap_or(Kind::Pool)
    }

    /// Prevents the pool's destruction until [`Known::leave`]. None: the pool is about to be
    /// destroyed, or is gone.
    pub(crate) fn enter(&self) -> Option<Entered> {
        self.enter_if(|seen| seen < CLOSED)
    }

    fn enter_if(&self, may: impl Fn(u64) -> bool) -> Option<Entered> {
        let Known { place, key } = self;
        let more = |seen: u64| may(seen).then(|| seen.wrapping_add(1));
        let seen = place.users.fetch_update(SeqCst, SeqCst, more).ok()?;
        let entered = Entered {
            word: seen & (GENERATIONS | STUCK),
        };
        // By now the place may belong to another pool.
        if place.key.load(SeqCst) == *key {
            return Some(entered);
        }
        self.leave(entered);
        None
    }

    /// Like `enter`, but waits for a thread that may be about to destroy it. If that takes too long,
    /// enters all the same, so that the allocation is counted: see [`Known::may_be_used`].
    #[inline]
    pub(crate) fn enter_later(&self) -> Option<Entered> {
        self.enter().or_else(|| self.enter_closed())
    }

    #[cold]
    fn enter_closed(&self) -> Option<Entered> {
        let mut wait = sys::Wait::at_most(DESTROY_PATIENCE);
        loop {
            let entered = self.enter_if(|seen| seen < CLOSED || seen & STUCK != 0);
            let here = self.place.key.load(SeqCst) == self.key;
            if entered.is_some() || !here {
                return entered;
            }
            if !wait.goes_on() {
                self.give_up();
            }
        }
    }

    /// Whether the driver may be called with the pool's handle. Without a wait for the thread that
    /// destroys it, the pool is used until that thread has forgotten it.
    #[inline]
    pub(crate) fn may_be_used(&self, entered: Entered) -> bool {
        entered.word & STUCK == 0 || self.place.key.load(SeqCst) == self.key
    }

    /// Marks a closed place: later calls do not wait for it any more.
    #[cold]
    fn give_up(&self) {
        let stuck = |seen: u64| (seen >= CLOSED).then_some(seen | STUCK);
        let _ = self.place.users.fetch_update(SeqCst, SeqCst, stuck);
    }

    /// Ends the use that `enter` began.
    pub(crate) fn leave(&self, entered: Entered) {
        let fewer = |seen: u64| {
            let same = (seen ^ entered.word) & GENERATIONS == 0 && seen & ENTERED != 0;
            same.then(|| seen.wrapping_sub(1))
        };
        let _ = self.place.users.fetch_update(SeqCst, SeqCst, fewer);
    }

    /// Closes the place before the pool is destroyed: no thread can enter any more.
    pub(crate) fn close(&self) {
        self.place.users.fetch_add(CLOSED, SeqCst);
    }

    /// Waits until all threads that entered before have left.
    pub(crate) fn wait_until_left(&self) {
        let mut wait = sys::Wait::at_most(DESTROY_PATIENCE);
        while self.place.users.load(SeqCst) & ENTERED != 0 && wait.goes_on() {}
    }

    /// Reopens the place: the pool was not destroyed after all.
    pub(crate) fn open(&self) {
        let less = |seen: u64| match (seen & !STUCK).checked_sub(CLOSED)? {
            // The last of them is back.
            open if open < CLOSED => Some(open),
            closed => Some(closed | seen & STUCK),
        };
        let _ = self.place.users.fetch_update(SeqCst, SeqCst, less);
    }

    /// Forgets a destroyed pool. The caller releases its bytes in the ledger. None: the place
    /// belongs to another pool by now.
    pub(crate) fn forget(&self) -> Option<Bytes> {
        self.free(GONE)
    }

    /// Like `forget`, for a pool that ended with a reset of its device.
    pub(crate) fn forget_reset(&self) -> Option<Bytes> {
        self.free(self.ordinal().map_or(GONE, reset))
    }

    /// Frees the place. `mark`: its key from now on.
    fn free(&self, mark: u64) -> Option<Bytes> {
        let Known { place, key } = self;
        let times = key & TIMES;
        let going = place
            .key
            .compare_exchange(*key, times | GOING, SeqCst, SeqCst);
        going.is_ok().then(|| {
            let held = place.reserve.close();
            let next = place.users.load(SeqCst).wrapping_add(GENERATION);
            place.users.store(next & GENERATIONS, SeqCst);
            place.key.store(times.wrapping_add(ONCE) | mark, SeqCst);
            held
        })
    }
}

/// The places that exist so far.
fn places(state: &'static ProcessState) -> impl Iterator<Item = &'static Place> {
    let reserves = &state.reserves;
    // SAFETY: the stored pointer is mapped for good, and all zeros is a valid place.
    let mapped = |more: &AtomicPtr<[Place; MORE]>| unsafe { more.load(SeqCst).as_ref() };
    let later = reserves.more.iter().map_while(mapped).flatten();
    reserves.first.iter().chain(later)
}

/// All places; maps those that do not exist yet.
fn all_places(state: &'static ProcessState) -> impl Iterator<Item = &'static Place> {
    let reserves = &state.reserves;
    let later = reserves.more.iter().map_while(more).flatten();
    reserves.first.iter().chain(later)
}

fn more(place: &AtomicPtr<[Place; MORE]>) -> Option<&'static [Place; MORE]> {
    let places = page::get(place, size_of::<[Place; MORE]>())?;
    // SAFETY: it is mapped for good, and all zeros is a valid place.
    unsafe { places.as_ref() }
}

fn look(place: &'static Place, number: u64) -> Option<Known> {
    let key = place.key.load(SeqCst);
    (key & NUMBER == number && is_used(key)).then_some(Known { place, key })
}

/// Whether this process has never had a pool, nor graphs with memory.
#[inline]
pub(crate) fn are_none(state: &'static ProcessState) -> bool {
    state
        .reserves
        .first
        .first()
        .is_none_or(|place| place.key.load(SeqCst) == 0)
}

/// The pool of a handle, if it is known.
#[inline]
pub(crate) fn pool(state: &'static ProcessState, handle: u64) -> Option<Known> {
    let used = places(state).take_while(|place| place.key.load(SeqCst) != 0);
    used.filter(|_| handle != 0)
        .find_map(|place| look(place, handle))
}

/// Finds a place, or takes a new one. None: no place is left.
pub(crate) fn known(
    state: &'static ProcessState,
    what: What,
    device: Option<CudaOrdinal>,
) -> Option<Known> {
    let key = key(what, device)?;
    let freed = device.filter(|_| what != What::Graphs).map(reset);
    let take = |place: &'static Place| {
        let seen = place.key.load(SeqCst);
        if seen == 0 || freed == Some(seen & !TIMES) {
            let mine = seen & TIMES | key;
            let _ = place.key.compare_exchange(seen, mine, SeqCst, SeqCst);
        }
        look(place, key & NUMBER)
    };
    all_places(state).find_map(take)
}

/// Takes a place for a pool that the driver has just created: no other thread knows of it yet.
pub(crate) fn made(
    state: &'static ProcessState,
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
    all_places(state).find_map(take)
}

/// Visits all known owners, each as of the moment of its visit.
pub(crate) fn each(state: &'static ProcessState, mut visit: impl FnMut(Known)) {
    for place in places(state) {
        match place.key.load(SeqCst) {
            0 => return,
            key if is_used(key) => visit(Known { place, key }),
            _ => {}
        }
    }
}

/// Waits and retries while calls are in progress on any of them: memory that they have claimed but
/// do not need is released.
pub(crate) fn wait_for_others<T>(
    state: &'static ProcessState,
    account: &impl Account,
    mut again: impl FnMut() -> Option<T>,
) -> Option<T> {
    let used = || places(state).take_while(|place| place.key.load(SeqCst) != 0);
    let under_way = || {
        let each = used().filter_map(|place| place.reserve.under_way());
        each.reduce(u64::wrapping_add)
    };
    let mut patience = Patience::new(account);
    let mut seen = under_way();
    while seen.is_some() && patience.wait(account) {
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
