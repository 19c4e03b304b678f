//! Remembers handles: the size, device and kind of each.
//! Touches: its own memory, 16 bytes an entry and at most 48 for each handle held.
//! Law: atomics only; a thread that is killed or cancelled at any point leaves nothing locked and
//! loses at most one empty place.
//!
//! A key lies in one bucket of one of the segments; a bucket is a cache line. A full table gets
//! another segment, as large as all before it together. New entries go to the newest segment that
//! has room, so that a table that is not growing has nearly all of them in one segment.
//!
//! A free looks an entry up, calls the driver, and removes the entry only if it is still that one.
//! An allocation whose address is already in the table removes the old entry: the driver has freed
//! that, or it would not have returned the address again.

use core::sync::atomic::{AtomicU64, Ordering};

use gpuslice_config::ledger::{Device, Kind};
use gpuslice_config::words::units::Bytes;

use crate::state::page::{self, ProcessState};
pub(crate) use crate::state::space::Space;

/// The record of a handle.
#[derive(Clone, Copy)]
pub(crate) struct Charge {
    /// The bytes charged in the ledger. A multiple of 512, less than a pebibyte.
    pub(crate) bytes: Bytes,
    /// The device in the ledger.
    pub(crate) device: Device,
    /// The kind that it is charged as.
    pub(crate) kind: Kind,
    /// The number of the context that it ends with; 0: none.
    pub(crate) context: u8,
}

const UNIT: u64 = 512;
const UNITS: u32 = 41;
const KIND_AT: u32 = UNITS;
const DEVICE_AT: u32 = 45;
const CONTEXT_AT: u32 = 51;
const TIMES_AT: u32 = 57;
const LIVE: u64 = 1 << 63;
const SIX: u64 = 63;
/// The number of times a place was taken, so that a later entry is not mistaken for an earlier one.
const TIMES: u64 = SIX << TIMES_AT;
/// All other bits but `LIVE`.
const PAYLOAD: u64 = (1 << TIMES_AT) - 1;

impl Charge {
    fn pack(self) -> u64 {
        let units = (self.bytes.get() / UNIT) & ((1 << UNITS) - 1);
        units
            | (self.kind as u64) << KIND_AT
            | u64::from(self.device.number()) << DEVICE_AT
            | (u64::from(self.context) & SIX) << CONTEXT_AT
    }

    fn unpack(value: u64) -> Charge {
        let units = value & ((1 << UNITS) - 1);
        let [kind, device, context] =
            [KIND_AT, DEVICE_AT, CONTEXT_AT].map(|at| (value >> at).to_le_bytes()[0] & 63);
        let kind = Kind::ALL.get(usize::from(kind & 7)).copied();
        Charge {
            bytes: Bytes::new(units.wrapping_mul(UNIT)),
            device: Device::numbered(device),
            kind: kind.unwrap_or(Kind::Linear),
            context,
        }
    }
}

/// One place: an address or handle, and its record.
struct Entry {
    key: AtomicU64,
    value: AtomicU64,
}

const WAYS: usize = 4;

/// A cache line of entries.
#[repr(C, align(64))]
pub(crate) struct Bucket([Entry; WAYS]);

/// The number of segments: as many as a process can fill.
pub(crate) const SEGMENTS: usize = 28;
/// The number of buckets in the first segment.
pub(crate) const FIRST: usize = 16;

fn length(segment: usize) -> usize {
    let doublings = u32::try_from(segment.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST.checked_shl(doublings).unwrap_or(FIRST)
}

/// The first bit above those that addresses and handles use.
const SPACE_AT: u32 = 59;

/// The key of a number in a space. None: no address or handle has this number.
fn key(space: Space, number: u64) -> Option<u64> {
    (number >> SPACE_AT == 0).then_some(u64::from(space as u8) << SPACE_AT | number)
}

/// The bucket of a key in a segment, if that segment exists.
#[inline]
fn bucket(state: &'static ProcessState, segment: usize, key: u64) -> Option<&'static Bucket> {
    let base = base(state, segment)?;
    let bits = length(segment).trailing_zeros();
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 64u32.wrapping_sub(bits);
    let at = base.wrapping_add(usize::try_from(mixed).ok()?);
    // SAFETY: a segment has `length` buckets, and the top bits of the product are less than that.
    // The segment is mapped for good, and all zeros is a valid bucket.
    unsafe { at.as_ref() }
}

/// The start of a segment. None: it does not exist yet.
#[inline]
fn base(state: &'static ProcessState, segment: usize) -> Option<*const Bucket> {
    let Some(later) = segment.checked_sub(1) else {
        return Some(state.first.as_ptr());
    };
    let base = state.segments.get(later)?.load(Ordering::Acquire);
    (!base.is_null()).then_some(base.cast_const())
}

/// The number of segments that exist.
#[inline]
fn segments(state: &'static ProcessState) -> usize {
    let there = |segment: &&core::sync::atomic::AtomicPtr<Bucket>| {
        !segment.load(Ordering::Acquire).is_null()
    };
    let later = state.segments.iter().take_while(there).count();
    later.saturating_add(1)
}

/// An entry and its value when it was looked up.
#[derive(Clone, Copy)]
pub(crate) struct FoundEntry {
    entry: &'static Entry,
    value: u64,
}

impl FoundEntry {
    /// The record of the entry.
    pub(crate) fn charge(&self) -> Charge {
        Charge::unpack(self.value)
    }

    /// The payload of an entry that is not a [`Charge`].
    pub(crate) fn payload(&self) -> u64 {
        self.value & PAYLOAD
    }

    /// Removes the entry. False: it was no longer there. Of two threads that try, one succeeds.
    pub(crate) fn take(&self) -> bool {
        let FoundEntry { entry, value } = self;
        let dead = value & TIMES;
        let taken = entry
            .value
            .compare_exchange(*value, dead, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            entry.key.store(0, Ordering::Release);
        }
        taken.is_ok()
    }

    /// The entry with its current value. None: it was removed meanwhile.
    pub(crate) fn again(&self) -> Option<FoundEntry> {
        let value = self.entry.value.load(Ordering::Acquire);
        let same = value & (LIVE | TIMES) == self.value & (LIVE | TIMES);
        let entry = self.entry;
        same.then_some(FoundEntry { entry, value })
    }

    /// Replaces the record. False: the entry had changed or was no longer there.
    pub(crate) fn replace(&self, charge: Charge) -> bool {
        self.replace_payload(charge.pack())
    }

    /// `replace` for a payload that is not a [`Charge`].
    pub(crate) fn replace_payload(&self, payload: u64) -> bool {
        let value = LIVE | payload & PAYLOAD | self.value & TIMES;
        let FoundEntry { entry, value: old } = self;
        entry
            .value
            .compare_exchange(*old, value, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

fn look(entry: &'static Entry, key: u64) -> Option<FoundEntry> {
    if entry.key.load(Ordering::Acquire) != key {
        return None;
    }
    let value = entry.value.load(Ordering::Acquire);
    let same = entry.key.load(Ordering::Acquire) == key;
    (same && value & LIVE != 0).then_some(FoundEntry { entry, value })
}

/// Looks a number up.
#[inline]
pub(crate) fn find(state: &'static ProcessState, space: Space, number: u64) -> Option<FoundEntry> {
    let key = key(space, number)?;
    (0..segments(state)).rev().find_map(|segment| {
        let bucket = bucket(state, segment, key)?;
        bucket.0.iter().find_map(|entry| look(entry, key))
    })
}

/// All entries of a number, in one order for all threads. There are several if threads have put the
/// number at the same time.
pub(crate) fn all(
    state: &'static ProcessState,
    space: Space,
    number: u64,
) -> impl Iterator<Item = FoundEntry> {
    let key = key(space, number).unwrap_or(0);
    let buckets = (0..segments(state))
        .rev()
        .filter_map(move |segment| bucket(state, segment, key));
    let entries = buckets.flat_map(|bucket| &bucket.0);
    entries.filter_map(move |entry| look(entry, key))
}

/// Remembers a number. False: there is no room for it.
pub(crate) fn put(state: &'static ProcessState, space: Space, number: u64, charge: Charge) -> bool {
    put_payload(state, space, number, charge.pack())
}

/// `put` for a payload of up to 57 bits that is not a [`Charge`].
pub(crate) fn put_payload(
    state: &'static ProcessState,
    space: Space,
    number: u64,
    payload: u64,
) -> bool {
    let (Some(key), true) = (key(space, number), payload <= PAYLOAD) else {
        return false;
    };
    loop {
        let there = segments(state);
        for segment in (0..there).rev() {
            let Some(bucket) = bucket(state, segment, key) else {
                continue;
            };
            for entry in &bucket.0 {
                let free = entry.key.load(Ordering::Relaxed) == 0;
                if free && take_place(entry, key, payload) {
                    return true;
                }
            }
        }
        let later = there.checked_sub(1);
        let Some(next) = later.and_then(|later| state.segments.get(later)) else {
            return false;
        };
        let size = length(there).saturating_mul(size_of::<Bucket>());
        if page::get(next, size).is_none() {
            return false;
        }
    }
}

/// The end of [`put_new`].
pub(crate) enum PutNew {
    /// The number is remembered.
    Done,
    /// The number has an entry, which is stale. Nothing was put.
    Stale(FoundEntry),
    /// There is no room for it.
    Full,
}

/// `put_payload` for a new number. One pass looks for a stale entry of that number and for a place.
#[inline]
pub(crate) fn put_new(
    state: &'static ProcessState,
    space: Space,
    number: u64,
    payload: u64,
) -> PutNew {
    let (Some(key), true) = (key(space, number), payload <= PAYLOAD) else {
        return PutNew::Full;
    };
    let mut place = None;
    for segment in (0..segments(state)).rev() {
        let Some(bucket) = bucket(state, segment, key) else {
            continue;
        };
        for entry in &bucket.0 {
            let seen = entry.key.load(Ordering::Acquire);
            if seen == key
                && let Some(stale) = look(entry, key)
            {
                return PutNew::Stale(stale);
            }
            if seen == 0 && place.is_none() {
                place = Some(entry);
            }
        }
    }
    let is_put = place.is_some_and(|entry| take_place(entry, key, payload))
        || put_payload(state, space, number, payload);
    match is_put {
        true => PutNew::Done,
        false => PutNew::Full,
    }
}

/// Writes an entry to a place, unless another thread has taken the place.
#[inline]
fn take_place(entry: &Entry, key: u64, payload: u64) -> bool {
    let taken = entry
        .key
        .compare_exchange(0, key, Ordering::AcqRel, Ordering::Relaxed);
    if taken.is_err() {
        return false;
    }
    let times = entry
        .value
        .load(Ordering::Relaxed)
        .wrapping_add(1 << TIMES_AT);
    entry
        .value
        .store(LIVE | payload | times & TIMES, Ordering::Release);
    true
}

/// Visits every entry of this process, each as of the moment of its visit.
pub(crate) fn each(state: &'static ProcessState, mut visit: impl FnMut(Space, u64, FoundEntry)) {
    for segment in 0..segments(state) {
        let Some(base) = base(state, segment) else {
            return;
        };
        for place in 0..length(segment) {
            // SAFETY: a segment has `length` buckets and is mapped for good; all zeros is a valid
            // bucket.
            let Some(bucket) = (unsafe { base.wrapping_add(place).as_ref() }) else {
                return;
            };
            for entry in &bucket.0 {
                let key = entry.key.load(Ordering::Acquire);
                let space = Space::ALL
                    .iter()
                    .find(|space| **space as u64 == key >> SPACE_AT);
                if let (Some(space), Some(found)) = (space, look(entry, key)) {
                    visit(*space, key & ((1 << SPACE_AT) - 1), found);
                }
            }
        }
    }
}
