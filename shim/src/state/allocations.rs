//! Remembers device memory by address: one word for each 2 MiB of addresses.
//! Touches: two levels of tables, mapped as addresses turn up; 8 bytes for an allocation with steps
//! of its own, no more for a small one.
//! Law: atomics only; a thread that is killed or cancelled at any point leaves nothing locked.
//!
//! The driver allocates in steps of 2 MiB, aligned to 2 MiB, and places requests of up to 1 MiB
//! together in one step. Their addresses reveal which of them share a step, once the driver has
//! returned them. The first allocation in a step pays for it, and the last one freed releases it.
//! An address for which there is no word here is kept in `handles` instead.
//!
//! A free looks the word up, calls the driver, and clears the word only if it is unchanged. An
//! allocation whose address is in use replaces the old entry: the driver has freed that, or it
//! would not have returned the address again.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gpuslice_config::ledger::{Device, Kind};
use gpuslice_config::words::units::Bytes;

use crate::state::handles::Charge;
use crate::state::page::{self, ProcessState};

/// The driver's step.
pub(crate) use gpuslice_config::ledger::STEP;
/// Requests up to this size share steps.
pub(crate) const SMALL: u64 = 1 << 20;

/// Addresses have at most 49 bits: 15 select a leaf, 13 a word in it.
const LEAVES: usize = 1 << 15;
const WORDS: usize = 1 << 13;

/// The first level, for all addresses outside the near leaf.
pub(crate) struct Root([AtomicPtr<Leaf>; LEAVES]);

/// The 16 GiB range that the near leaf serves, and the word that lies first in the leaf. The range
/// is that of the first allocation, stored as the leaf's number plus one. The first word lies on a
/// page that is in use anyway.
#[derive(Clone, Copy)]
struct NearBy(u64);

impl NearBy {
    const WORD_BITS: u32 = WORDS.trailing_zeros();

    fn load(state: &ProcessState) -> NearBy {
        NearBy(state.near.load(Ordering::Acquire))
    }

    fn is_set(self) -> bool {
        self.0 != 0
    }

    /// The base for an allocation with this number as the first.
    fn of_first(number: usize) -> NearBy {
        let (leaf, index) = (number / WORDS, number % WORDS);
        // Drivers hand out addresses upwards, and sometimes downwards.
        let first = index.wrapping_sub(16) % WORDS;
        let leaf = (leaf as u64).wrapping_add(1) << Self::WORD_BITS;
        NearBy(leaf | first as u64)
    }

    /// Returns the word's index in the nearest leaf, or None if another leaf holds the word.
    #[inline]
    fn place(self, number: usize) -> Option<usize> {
        let leaf = (number / WORDS) as u64;
        let first = usize::try_from(self.0).ok()? % WORDS;
        (self.0 >> Self::WORD_BITS == leaf.wrapping_add(1))
            .then(|| number.wrapping_sub(first) % WORDS)
    }
}

/// 16 GiB of addresses.
pub(crate) struct Leaf([AtomicU64; WORDS]);

// A word: flags, amount, start of the allocation, kind, device, context, and a write counter.
const LIVE: u64 = 1 << 63;
const SHARED: u64 = 1 << 62;
/// The steps of an allocation, or the number of allocations that share the step.
const AMOUNT: u64 = (1 << 29) - 1;
const START_AT: u32 = 29;
const START: u64 = 0xfff << START_AT;
const KIND_AT: u32 = 41;
const DEVICE_AT: u32 = 44;
const CONTEXT_AT: u32 = 50;
const DEVICE: u64 = 63 << DEVICE_AT;
const TIMES_AT: u32 = 56;
const TIMES: u64 = 63 << TIMES_AT;

fn start(address: u64) -> u64 {
    (address % STEP / 512) << START_AT
}

/// Returns the word of an address, or None if no allocation can start there.
#[inline]
fn word(state: &'static ProcessState, address: u64) -> Option<&'static AtomicU64> {
    if !address.is_multiple_of(512) {
        return None;
    }
    let number = usize::try_from(address / STEP).ok()?;
    let near = NearBy::load(state);
    if let Some(place) = near.place(number) {
        return state.leaf.0.get(place);
    }
    if !near.is_set() {
        return first_of_many(state, number);
    }
    let leaf = state.root.0.get(number / WORDS)?;
    // SAFETY: null, or mapped for good; all zeros is a valid Leaf.
    match unsafe { leaf.load(Ordering::Acquire).as_ref() } {
        Some(leaf) => leaf.0.get(number % WORDS),
        None => first_of_many(state, number),
    }
}

/// The word of an address for which there is no leaf yet. The first caller decides the near range.
#[cold]
#[inline(never)]
fn first_of_many(state: &'static ProcessState, number: usize) -> Option<&'static AtomicU64> {
    let (acquire, release) = (Ordering::Acquire, Ordering::AcqRel);
    let first = NearBy::of_first(number);
    let near = match state.near.compare_exchange(0, first.0, release, acquire) {
        Ok(_) => first,
        Err(near) => NearBy(near),
    };
    if let Some(place) = near.place(number) {
        return state.leaf.0.get(place);
    }
    state.far.store(1, Ordering::Release);
    let leaf = state.root.0.get(number / WORDS)?;
    let leaf = page::get(leaf, size_of::<Leaf>())?;
    // SAFETY: mapped for good; all zeros is a valid Leaf.
    let leaf = unsafe { leaf.as_ref() }?;
    leaf.0.get(number % WORDS)
}

fn unpack(word: u64) -> Charge {
    let [kind, device, context] =
        [KIND_AT, DEVICE_AT, CONTEXT_AT].map(|at| (word >> at).to_le_bytes()[0] & 63);
    let kind = Kind::ALL.get(usize::from(kind & 7)).copied();
    let steps = match word & SHARED {
        0 => word & AMOUNT,
        _ => 1,
    };
    Charge {
        bytes: Bytes::new(steps.wrapping_mul(STEP)),
        device: Device::numbered(device),
        kind: kind.unwrap_or(Kind::Linear),
        context,
    }
}

fn pack(charge: Charge, amount: u64) -> u64 {
    LIVE | (amount & AMOUNT)
        | (charge.kind as u64) << KIND_AT
        | u64::from(charge.device.number()) << DEVICE_AT
        | u64::from(charge.context & 63) << CONTEXT_AT
}

fn written(old: u64) -> u64 {
    (old & TIMES).wrapping_add(1 << TIMES_AT) & TIMES
}

/// A word and its value when it was looked up.
#[derive(Clone, Copy)]
pub(crate) struct FoundWord {
    word: &'static AtomicU64,
    value: u64,
}

/// The outcome of remembering an allocation.
pub(crate) enum Put {
    /// It has the word; the value is the stale entry that it replaced, if any.
    Kept(Option<Charge>),
    /// It shares a step that is already paid for.
    Joined,
    /// There is no word for it.
    NoWord,
}

/// Remembers an allocation that has its steps to itself.
#[inline]
pub(crate) fn put(state: &'static ProcessState, address: u64, charge: Charge) -> Put {
    let Some(word) = word(state, address) else {
        return Put::NoWord;
    };
    let fresh = pack(charge, charge.bytes.get() / STEP) | start(address);
    let mut old = word.load(Ordering::Relaxed);
    if old & LIVE == 0 {
        // The steps belong to this allocation alone, and an absent entry is never freed. So the
        // word is this thread's until the caller gets the address.
        word.store(fresh | written(old), Ordering::Release);
        return Put::Kept(None);
    }
    loop {
        if old & LIVE != 0 && old & (SHARED | START) != start(address) {
            return Put::NoWord;
        }
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        match word.compare_exchange(old, fresh | written(old), acquire, relaxed) {
            Ok(_) if old & LIVE != 0 => return Put::Kept(Some(unpack(old))),
            Ok(_) => return Put::Kept(None),
            Err(now) => old = now,
        }
    }
}

/// Remembers a small allocation; `charge` describes its whole step.
#[inline]
pub(crate) fn join(state: &'static ProcessState, address: u64, charge: Charge) -> Put {
    let Some(word) = word(state, address) else {
        return Put::NoWord;
    };
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let (fresh, put) = match old & (LIVE | SHARED) {
            0 | SHARED => (pack(charge, 1) | SHARED, Put::Kept(None)),
            LIVE if old & START == start(address) => {
                (pack(charge, 1) | SHARED, Put::Kept(Some(unpack(old))))
            }
            LIVE => return Put::NoWord,
            // The step is released when the memory of its own device is.
            _ if (old ^ pack(charge, 1)) & DEVICE != 0 => return Put::NoWord,
            _ => ((old & !TIMES).wrapping_add(1), Put::Joined),
        };
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        match word.compare_exchange(old, fresh | written(old), acquire, relaxed) {
            Ok(_) => return put,
            Err(now) => old = now,
        }
    }
}

/// The record of an address.
#[inline]
pub(crate) fn find(state: &'static ProcessState, address: u64) -> Option<FoundWord> {
    let near = NearBy::load(state).place(usize::try_from(address / STEP).ok()?);
    if near.is_none() && state.far.load(Ordering::Acquire) == 0 {
        return None;
    }
    let word = word(state, address)?;
    let value = word.load(Ordering::Acquire);
    let own = value & (LIVE | SHARED | START) == LIVE | start(address);
    (own || value & (LIVE | SHARED) == LIVE | SHARED).then_some(FoundWord { word, value })
}

impl FoundWord {
    /// Removes an allocation: one with its own steps, or one of several that share a step. Returns
    /// the memory that is no longer held.
    #[inline]
    pub(crate) fn take(&self) -> Option<Charge> {
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.value & SHARED == 0 {
            let dead = self.value & TIMES;
            let taken = self
                .word
                .compare_exchange(self.value, dead, acquire, relaxed);
            return taken.ok().map(unpack);
        }
        let mut old = self.value;
        loop {
            if old & (LIVE | SHARED) != LIVE | SHARED {
                return None;
            }
            let last = old & AMOUNT <= 1;
            let fresh = match last {
                true => old & TIMES,
                false => (old & !TIMES).wrapping_sub(1) | written(old),
            };
            match self.word.compare_exchange(old, fresh, acquire, relaxed) {
                Ok(_) if last => return Some(unpack(old)),
                Ok(_) => return None,
                Err(now) => old = now,
            }
        }
    }

    /// Removes everything that a context has in this word. Returns the memory that is no longer
    /// held.
    fn take_all(&self) -> Option<Charge> {
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        let dead = self.value & TIMES;
        let taken = self
            .word
            .compare_exchange(self.value, dead, acquire, relaxed);
        taken.ok().map(unpack)
    }

    /// The memory that the word stands for.
    pub(crate) fn charge(&self) -> Charge {
        unpack(self.value)
    }

    /// Changes the size of an allocation with its own steps. False: it was no longer there.
    pub(crate) fn resize(&self, bytes: Bytes) -> bool {
        let fresh = self.value & !(AMOUNT | TIMES) | written(self.value);
        let fresh = fresh | (bytes.get() / STEP) & AMOUNT;
        let own = self.value & SHARED == 0;
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        own && self
            .word
            .compare_exchange(self.value, fresh, acquire, relaxed)
            .is_ok()
    }
}

/// Removes all allocations of a context; calls `gone` for each.
pub(crate) fn take_of_context(
    state: &'static ProcessState,
    context: u8,
    mut gone: impl FnMut(Charge),
) {
    if !NearBy::load(state).is_set() {
        return;
    }
    let far = match state.far.load(Ordering::Acquire) {
        0 => &[][..],
        _ => &state.root.0,
    };
    let far = far.iter().filter_map(|leaf| {
        // SAFETY: null, or mapped for good; all zeros is a valid Leaf.
        unsafe { leaf.load(Ordering::Acquire).as_ref() }
    });
    for leaf in core::iter::once(&state.leaf).chain(far) {
        for word in &leaf.0 {
            let value = word.load(Ordering::Acquire);
            if value & LIVE != 0
                && unpack(value).context == context
                && let Some(charge) = (FoundWord { word, value }).take_all()
            {
                gone(charge);
            }
        }
    }
}
