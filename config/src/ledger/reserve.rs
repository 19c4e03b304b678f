//! Tracks the memory that a memory pool, or the graphs of a device, have reserved: the part that
//! the ledger counts, and the idle part that running calls count on.
//! Touches: three words of one process; the driver and the ledger through traits, so that loom can
//! be both.
//! Law: whoever has made the driver reserve more writes to `held` after that, and whoever writes
//! there has asked the driver since the write before. So at rest `held` is what is reserved, and
//! while calls are under way what is reserved is never more than `held` and what they have claimed.
//!
//! A thread that is cancelled in the driver leaves what it has claimed and counted on: too much is
//! said to be held, never too little.

use super::step::STEP;
use super::sync::AtomicU64;
use crate::units::Bytes;
use core::sync::atomic::Ordering::SeqCst;

/// What reserves, as the driver tells of it, and who is charged for it.
pub trait Reserving {
    /// What the driver has reserved. None: it does not say.
    fn reserved(&self) -> Option<Bytes>;
    /// What of it is in use.
    fn used(&self) -> Bytes;
    /// Who is charged for it.
    fn charged(&self) -> &impl Charged;
}

/// Who is charged for what is reserved: a device's account in the ledger.
pub trait Charged {
    /// Claims more of the ledger; whether that was granted.
    fn claim(&self, bytes: Bytes) -> bool;
    /// Has the ledger say that more is held, whatever the limit.
    fn record(&self, bytes: Bytes);
    /// Gives back to the ledger.
    fn release(&self, bytes: Bytes);
    /// Lets others run for a moment.
    fn wait(&self);
    /// Nanoseconds since some moment.
    fn clock(&self) -> u64;
}

/// What one of them has reserved. All zeros: nothing.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Reserve {
    /// What the ledger has of it, and how often it was written.
    held: AtomicU64,
    /// What calls that are under way count on of what is idle, and how often it was written: who
    /// sees something gone writes too, so that nobody counts on what was there before.
    counted_on: AtomicU64,
    /// What calls that are under way have claimed for what the driver may add.
    claimed: AtomicU64,
}

/// What a call has been given while it is under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// By the ledger, for what the driver may have to add.
    pub claimed: Bytes,
    /// Of what is idle.
    pub idle: Bytes,
}

/// What follows when more is reserved than the ledger has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// This call has taken memory, and can give it back.
    Asked,
    /// This call may have taken memory, and cannot give it back: it is recorded.
    Kept,
    /// Others have taken it, and see to it.
    OfOthers,
}

/// The low bits of a word. The others: how often it was written.
const AMOUNT: u64 = (1 << 41) - 1;
const ONCE: u64 = AMOUNT + 1;
const UNIT: u64 = 512;

/// How often what is idle is looked at again, where others change it meanwhile.
const ROUNDS: u32 = 1000;
/// How long others are waited for, in nanoseconds: a refusal must come at once, whoever is stuck.
#[cfg(not(all(test, loom)))]
const PATIENCE: u64 = 10_000_000;
#[cfg(all(test, loom))]
const PATIENCE: u64 = 2;

/// The time for which others are waited for.
#[derive(Debug)]
pub struct Patience {
    end: u64,
    rounds: u32,
}

impl Patience {
    /// It begins.
    pub fn new(charged: &impl Charged) -> Patience {
        Patience {
            end: charged.clock().saturating_add(PATIENCE),
            rounds: ROUNDS,
        }
    }

    /// Lets others run; false: they were waited for long enough.
    pub fn wait(&mut self, charged: &impl Charged) -> bool {
        // Where there is no clock it counts.
        self.rounds = self.rounds.saturating_sub(1);
        if self.rounds == 0 || charged.clock() >= self.end {
            return false;
        }
        charged.wait();
        true
    }
}

fn amount(word: u64) -> Bytes {
    Bytes::new((word & AMOUNT).wrapping_mul(UNIT))
}

/// A word that is written once more, and says this: whole units, and not less.
fn written(word: u64, bytes: Bytes) -> u64 {
    let units = bytes.get().div_ceil(UNIT).min(AMOUNT);
    (word & !AMOUNT).wrapping_add(ONCE) | units
}

fn replace(word: &AtomicU64, seen: u64, by: u64) -> bool {
    word.compare_exchange(seen, by, SeqCst, SeqCst).is_ok()
}

fn change(word: &AtomicU64, by: Bytes, change: fn(Bytes, Bytes) -> Bytes) {
    if by == Bytes::ZERO {
        return;
    }
    loop {
        let seen = word.load(SeqCst);
        if replace(word, seen, written(seen, change(amount(seen), by))) {
            return;
        }
    }
}

/// Whole steps of the driver's.
fn stepped(bytes: Bytes) -> Bytes {
    let whole = bytes.get().checked_next_multiple_of(STEP);
    Bytes::new(whole.unwrap_or(u64::MAX))
}

impl Reserve {
    /// Counts on as much of `wanted` as is idle, in the ledger, and counted on by nobody else. It
    /// stays in the ledger until [`Reserve::end`].
    pub fn count_on(&self, wanted: Bytes, driver: &impl Reserving) -> Bytes {
        for _ in 0..ROUNDS {
            let seen = self.counted_on.load(SeqCst);
            let held = amount(self.held.load(SeqCst));
            let there = driver.reserved().unwrap_or(Bytes::ZERO).at_most(held);
            let idle = there.minus(driver.used()).minus(amount(seen));
            let whole = Bytes::new(idle.get() & !(UNIT - 1));
            let taken = Bytes::new(wanted.get().div_ceil(UNIT).saturating_mul(UNIT)).at_most(whole);
            if taken == Bytes::ZERO {
                break;
            }
            if replace(
                &self.counted_on,
                seen,
                written(seen, amount(seen).plus(taken)),
            ) {
                return taken;
            }
        }
        Bytes::ZERO
    }

    /// Counts on it no more: the driver has not been called.
    pub fn let_go(&self, idle: Bytes) {
        change(&self.counted_on, idle, Bytes::minus);
    }

    /// The driver is about to be called by who was given this.
    pub fn begin(&self, given: Given) {
        change(&self.claimed, given.claimed, Bytes::plus);
    }

    /// The driver has done with the call: what it was given is used up or goes back. False: it has
    /// made more be reserved than is granted, and [`Growth::Asked`] was said.
    pub fn end(&self, given: Given, growth: Growth, driver: &impl Reserving) -> bool {
        change(&self.counted_on, given.idle, Bytes::minus);
        if given.claimed != Bytes::ZERO {
            // Until it is written down, what this call has claimed is still said to be claimed, or
            // others would claim it once more; afterwards somebody may have gone by that.
            self.write(given.claimed, growth, driver);
            change(&self.claimed, given.claimed, Bytes::minus);
        }
        self.settle(growth, driver)
    }

    /// Makes the ledger say what the driver says. False: there is no room for it, and it does not.
    pub fn settle(&self, growth: Growth, driver: &impl Reserving) -> bool {
        let mut patience = None;
        while !self.write(Bytes::ZERO, growth, driver) {
            let nobody = amount(self.claimed.load(SeqCst)) == Bytes::ZERO;
            if growth == Growth::OfOthers || nobody {
                return false;
            }
            // They may give back what they do not need.
            let patience = patience.get_or_insert_with(|| Patience::new(driver.charged()));
            if !patience.wait(driver.charged()) {
                return false;
            }
        }
        true
    }

    /// Writes down what is reserved, as far as `own` and what is granted suffice, and gives back
    /// what it does not need of them. `own` is part of what is said to be claimed.
    fn write(&self, own: Bytes, growth: Growth, driver: &impl Reserving) -> bool {
        let charged = driver.charged();
        let mut left = own;
        loop {
            let seen = self.held.load(SeqCst);
            let held = amount(seen);
            let counted_on = self.counted_on.load(SeqCst);
            let Some(reserved) = driver.reserved() else {
                charged.release(left);
                return true;
            };
            // What others have claimed is theirs to write down.
            let others = amount(self.claimed.load(SeqCst)).minus(own);
            let lacking = reserved.minus(held).minus(left).minus(others);
            let mut fits = true;
            if lacking != Bytes::ZERO {
                if self.held.load(SeqCst) != seen {
                    // By one whose claim is not said any more: it is not lacking.
                    continue;
                }
                fits = growth == Growth::Kept || charged.claim(lacking);
                if growth == Growth::Kept {
                    charged.record(lacking);
                }
                if fits {
                    left = left.plus(lacking);
                }
            }
            // What others count on may be gone, and is reserved again by those that do.
            let soon = match amount(counted_on) {
                Bytes::ZERO => Bytes::ZERO,
                bytes => stepped(bytes.plus(driver.used())),
            };
            let there = held.plus(left);
            let wanted = reserved.at_least(soon).at_most(there);
            if wanted < there
                && !replace(&self.counted_on, counted_on, counted_on.wrapping_add(ONCE))
            {
                continue;
            }
            let unchanged = wanted == held && growth == Growth::OfOthers;
            if unchanged || replace(&self.held, seen, written(seen, wanted)) {
                charged.release(there.minus(wanted));
                return fits;
            }
        }
    }

    /// Whether calls are under way: one that the driver has just done with still counts on what it
    /// uses by now, or has claimed what it did not need. Some: another number when that changes.
    pub fn under_way(&self) -> Option<u64> {
        let words = [&self.counted_on, &self.claimed].map(|word| word.load(SeqCst));
        let some = words.iter().any(|word| amount(*word) != Bytes::ZERO);
        some.then_some(words[0].wrapping_add(words[1]))
    }

    /// It is gone, and all calls with it: what the ledger has of it, which is nobody's now.
    pub fn close(&self) -> Bytes {
        for word in [&self.counted_on, &self.claimed] {
            change(word, Bytes::MAX, Bytes::minus);
        }
        loop {
            let seen = self.held.load(SeqCst);
            if replace(&self.held, seen, written(seen, Bytes::ZERO)) {
                return amount(seen);
            }
        }
    }
}
