//! What this process holds of device memory, by address: one word for each 2 MiB of addresses.
//! Touches: two levels of tables, mapped as addresses turn up; 8 bytes for an allocation of its
//! own, nothing more for a small one.
//! Law: atomics only; a thread that is killed or cancelled anywhere leaves nothing locked.
//!
//! The driver hands out memory in steps of 2 MiB, which begin where an address is a multiple of
//! that, and puts requests of up to 1 MiB together in one step. Which of them share a step is
//! seen by their addresses, once the driver has given them: the first that comes to a step pays
//! for it, the last that leaves gives it back. Should a driver put things where this has no word
//! for them, `held` remembers them instead.
//!
//! Whoever frees looks a word up, calls the driver, and takes the word away only if it still is
//! the same. Whoever allocates and finds its address in use takes that away: the driver has freed
//! it, or it would not have given the address again.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gpuslice_config::ledger::{Device, Kind};
use gpuslice_config::units::Bytes;

use crate::held::Held;
use crate::private::{self, Private};

/// The driver's step.
pub(crate) const STEP: u64 = 2 << 20;
/// Requests up to this size share steps.
pub(crate) const SMALL: u64 = 1 << 20;

/// Addresses have 49 bits at most: 15 choose a leaf, 13 a word of it.
const LEAVES: usize = 1 << 15;
const GRAINS: usize = 1 << 13;

/// The first level.
pub(crate) struct Root([AtomicPtr<Leaf>; LEAVES]);

/// 16 GiB of addresses.
pub(crate) struct Leaf([AtomicU64; GRAINS]);

// A word: what is there, how much, where it begins, and how often the word was written.
const LIVE: u64 = 1 << 63;
const SHARED: u64 = 1 << 62;
/// Steps of an allocation, or how many share the step.
const AMOUNT: u64 = (1 << 29) - 1;
const START_AT: u32 = 29;
const START: u64 = 0xfff << START_AT;
const KIND_AT: u32 = 41;
const DEVICE_AT: u32 = 44;
const CONTEXT_AT: u32 = 50;
const TIMES_AT: u32 = 56;
const TIMES: u64 = 63 << TIMES_AT;

fn start(address: u64) -> u64 {
    (address % STEP / 512) << START_AT
}

/// The word of an address. None: it cannot have one.
#[inline]
fn word(private: &Private, address: u64) -> Option<&'static AtomicU64> {
    if !address.is_multiple_of(512) {
        return None;
    }
    let number = usize::try_from(address / STEP).ok()?;
    let near = private::near()?;
    let leaf = near.root.0.get(number / GRAINS)?;
    let begun = private.near.load(Ordering::Relaxed) != 0;
    let known = if begun {
        leaf.load(Ordering::Acquire)
    } else {
        null_mut()
    };
    let known = if known.is_null() {
        grow(private, leaf, &near.leaf, number % GRAINS)?
    } else {
        known
    };
    // SAFETY: mapped for good, and zeros are a Leaf.
    let leaf = unsafe { known.as_ref() }?;
    leaf.0.get(number % GRAINS)
}

/// A leaf where there is none yet: the one that is mapped already, or a new one.
///
/// A page that is first written to costs one fault, one that is first read two: so both tables
/// are written to before anybody reads them.
#[cold]
fn grow(
    private: &Private,
    place: &AtomicPtr<Leaf>,
    near: &'static Leaf,
    grain: usize,
) -> Option<*mut Leaf> {
    let free = (private.near).compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
    if free.is_err() {
        return private::get(place, size_of::<Leaf>());
    }
    if let Some(word) = near.0.get(grain) {
        word.store(0, Ordering::Relaxed);
    }
    let near = core::ptr::from_ref(near).cast_mut();
    match place.compare_exchange(null_mut(), near, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(near),
        Err(other) => Some(other),
    }
}

fn unpack(word: u64) -> Held {
    let [kind, device, context] =
        [KIND_AT, DEVICE_AT, CONTEXT_AT].map(|at| (word >> at).to_le_bytes()[0] & 63);
    let kind = Kind::ALL.get(usize::from(kind & 7)).copied();
    let steps = match word & SHARED {
        0 => word & AMOUNT,
        _ => 1,
    };
    Held {
        bytes: Bytes::new(steps.wrapping_mul(STEP)),
        device: Device::numbered(device),
        kind: kind.unwrap_or(Kind::Linear),
        context,
    }
}

fn pack(held: Held, amount: u64) -> u64 {
    LIVE | (amount & AMOUNT)
        | (held.kind as u64) << KIND_AT
        | u64::from(held.device.number()) << DEVICE_AT
        | u64::from(held.context & 63) << CONTEXT_AT
}

fn written(old: u64) -> u64 {
    (old & TIMES).wrapping_add(1 << TIMES_AT) & TIMES
}

/// A word, as it was when it was found.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    word: &'static AtomicU64,
    value: u64,
}

/// What became of something that was to be remembered.
pub(crate) enum Put {
    /// It has the word, in which was something that is gone.
    Kept(Option<Held>),
    /// It shares a step that is paid for.
    Joined,
    /// There is no word for it.
    Elsewhere,
}

/// Remembers an allocation that has its steps for itself.
#[inline]
pub(crate) fn put(private: &Private, address: u64, held: Held) -> Put {
    let Some(word) = word(private, address) else {
        return Put::Elsewhere;
    };
    let fresh = pack(held, held.bytes.get() / STEP) | start(address);
    let mut old = word.load(Ordering::Relaxed);
    loop {
        if old & LIVE != 0 && old & (SHARED | START) != start(address) {
            return Put::Elsewhere;
        }
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        match word.compare_exchange(old, fresh | written(old), acquire, relaxed) {
            Ok(_) if old & LIVE != 0 => return Put::Kept(Some(unpack(old))),
            Ok(_) => return Put::Kept(None),
            Err(now) => old = now,
        }
    }
}

/// Remembers a small allocation; `held` is what its step holds.
pub(crate) fn join(private: &Private, address: u64, held: Held) -> Put {
    let Some(word) = word(private, address) else {
        return Put::Elsewhere;
    };
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let (fresh, put) = match old & (LIVE | SHARED) {
            0 | SHARED => (pack(held, 1) | SHARED, Put::Kept(None)),
            LIVE if old & START == start(address) => {
                (pack(held, 1) | SHARED, Put::Kept(Some(unpack(old))))
            }
            LIVE => return Put::Elsewhere,
            _ => ((old & !TIMES).wrapping_add(1), Put::Joined),
        };
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        match word.compare_exchange(old, fresh | written(old), acquire, relaxed) {
            Ok(_) => return put,
            Err(now) => old = now,
        }
    }
}

/// What is known of an address.
#[inline]
pub(crate) fn find(private: &Private, address: u64) -> Option<Found> {
    if private.near.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let word = word(private, address)?;
    let value = word.load(Ordering::Acquire);
    let own = value & (LIVE | SHARED | START) == LIVE | start(address);
    (own || value & (LIVE | SHARED) == LIVE | SHARED).then_some(Found { word, value })
}

impl Found {
    /// Takes away one that has its steps for itself, or one of those that share a step; what is
    /// no longer held.
    #[inline]
    pub(crate) fn take(&self) -> Option<Held> {
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

    /// Takes away all that a context had here; what is no longer held.
    fn take_all(&self) -> Option<Held> {
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        let dead = self.value & TIMES;
        let taken = self
            .word
            .compare_exchange(self.value, dead, acquire, relaxed);
        taken.ok().map(unpack)
    }

    /// What it says.
    pub(crate) fn held(&self) -> Held {
        unpack(self.value)
    }

    /// Says another size of one that has its steps for itself; whether it was still there.
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

/// Takes away all that a context has; says each.
pub(crate) fn take_of_context(private: &Private, context: u8, mut gone: impl FnMut(Held)) {
    let used = private.near.load(Ordering::Acquire) != 0;
    let Some(near) = used.then(private::near).flatten() else {
        return;
    };
    for leaf in &near.root.0 {
        // SAFETY: null, or mapped for good, and zeros are a Leaf.
        let Some(leaf) = (unsafe { leaf.load(Ordering::Acquire).as_ref() }) else {
            continue;
        };
        for word in &leaf.0 {
            let value = word.load(Ordering::Acquire);
            if value & LIVE != 0
                && unpack(value).context == context
                && let Some(held) = (Found { word, value }).take_all()
            {
                gone(held);
            }
        }
    }
}
