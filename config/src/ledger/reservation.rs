//! Tracks the memory that a memory pool, or the graphs of a device, have reserved. One part of it
//! is counted in the ledger. Running calls rely on the idle part.
//! Touches: three words of one process; the driver and the ledger through traits, so that loom can
//! replace both.
//! Law: a call that makes the driver reserve more memory writes to `held` afterwards. A writer of
//! `held` has queried the driver since the previous write. So at rest `held` is the reserved
//! memory. While calls are under way, the reserved memory never exceeds `held` plus their claims,
//! unless the driver adds memory for a call that was taken to need none (`Growth::Kept` records it).
//!
//! A thread that is cancelled in the driver leaves behind what it has claimed and relied on. Then
//! too much is reported as held, never too little.

use super::protocol::step::STEP;
use super::protocol::sync::AtomicU64;
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::SeqCst;

/// A memory pool or the graphs of a device: the driver's figures, and the account to charge.
pub trait Reservable {
    /// The bytes that the driver has reserved; `None` if it does not report them.
    fn reserved(&self) -> Option<Bytes>;
    /// The bytes of it that a call cannot count on, because they are in use.
    fn used(&self) -> Bytes;
    /// The account that is charged for it.
    fn account(&self) -> &impl Account;
}

/// The account that is charged for reserved memory: a device's account in the ledger.
pub trait Account {
    /// Claims more memory from the ledger; returns whether that was granted.
    fn claim(&self, bytes: Bytes) -> bool;
    /// Records more memory as held in the ledger, whatever the limit.
    fn record(&self, bytes: Bytes);
    /// Releases memory to the ledger.
    fn release(&self, bytes: Bytes);
    /// Lets other threads run for a moment.
    fn wait(&self);
    /// Nanoseconds since an arbitrary moment.
    fn clock(&self) -> u64;
}

/// The reserved memory of one pool, or of a device's graphs. All zeros: nothing.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Reserve {
    /// The bytes counted in the ledger, and the number of writes to this word.
    held: AtomicU64,
    /// The idle bytes that running calls rely on, and the number of writes to this word. A thread
    /// that sees memory disappear writes to it, too, so that no call relies on an outdated value.
    counted_on: AtomicU64,
    /// The bytes that running calls have claimed for memory that the driver may add.
    claimed: AtomicU64,
}

/// The memory assigned to a running call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grant {
    /// Claimed from the ledger, for memory that the driver may have to add.
    pub claimed: Bytes,
    /// Assigned from the idle memory.
    pub idle: Bytes,
}

/// The reaction when more is reserved than the ledger has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// This call has taken memory, and can release it.
    Asked,
    /// This call may have taken memory, and cannot release it, so it is recorded.
    Kept,
    /// Other calls have taken it, and handle it.
    OfOthers,
}

/// The low bits of a word. The others count how often it was written.
const AMOUNT: u64 = (1 << 41) - 1;
const ONCE: u64 = AMOUNT + 1;
const UNIT: u64 = 512;

/// How often the idle memory is read again while other threads change it.
const ROUNDS: u32 = 1000;
/// How long to wait for other threads, in nanoseconds. A refusal must be immediate, even if another
/// thread is stuck.
#[cfg(not(all(test, loom)))]
const PATIENCE: u64 = 10_000_000;
#[cfg(all(test, loom))]
const PATIENCE: u64 = 2;

/// The remaining time to wait for other threads.
#[derive(Debug)]
pub struct Patience {
    end: u64,
    rounds: u32,
}

impl Patience {
    /// Starts the wait.
    pub fn new(account: &impl Account) -> Patience {
        Patience {
            end: account.clock().saturating_add(PATIENCE),
            rounds: ROUNDS,
        }
    }

    /// Lets other threads run; returns false once the time is over.
    pub fn wait(&mut self, account: &impl Account) -> bool {
        // The round count limits the wait where there is no clock.
        self.rounds = self.rounds.saturating_sub(1);
        if self.rounds == 0 || account.clock() >= self.end {
            return false;
        }
        account.wait();
        true
    }
}

fn amount(word: u64) -> Bytes {
    Bytes::new((word & AMOUNT).wrapping_mul(UNIT))
}

/// The word after one more write, with this amount, rounded up to whole units.
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

/// Rounds up to whole steps of the driver.
fn stepped(bytes: Bytes) -> Bytes {
    let whole = bytes.get().checked_next_multiple_of(STEP);
    Bytes::new(whole.unwrap_or(u64::MAX))
}

impl Reserve {
    /// Reserves for this call as much of `wanted` as is idle, counted in the ledger, and not
    /// assigned to another call. It stays in the ledger until [`Reserve::end`].
    pub fn count_on(&self, wanted: Bytes, driver: &impl Reservable) -> Bytes {
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

    /// Returns idle memory that was assigned; the driver has not been called.
    pub fn let_go(&self, idle: Bytes) {
        change(&self.counted_on, idle, Bytes::minus);
    }

    /// Marks the start of the driver call that `grant` was assigned to.
    pub fn begin(&self, grant: Grant) {
        change(&self.claimed, grant.claimed, Bytes::plus);
    }

    /// Marks the end of the driver call: its assigned memory is used up or released. Returns false
    /// if the call has made more memory reserved than is granted, and `growth` is
    /// [`Growth::Asked`].
    pub fn end(&self, grant: Grant, growth: Growth, driver: &impl Reservable) -> bool {
        change(&self.counted_on, grant.idle, Bytes::minus);
        if grant.claimed != Bytes::ZERO {
            // This call's claim must stay visible until the memory is written down, or other calls
            // would claim it once more. After that, another call may already have relied on it.
            self.write(grant.claimed, growth, driver);
            change(&self.claimed, grant.claimed, Bytes::minus);
        }
        self.settle(growth, driver)
    }

    /// Updates the ledger to the driver's figures. Returns false if there is no room for them.
    pub fn settle(&self, growth: Growth, driver: &impl Reservable) -> bool {
        let mut patience = None;
        while !self.write(Bytes::ZERO, growth, driver) {
            let nobody = amount(self.claimed.load(SeqCst)) == Bytes::ZERO;
            if growth == Growth::OfOthers || nobody {
                return false;
            }
            // The other calls may release what they do not need.
            let patience = patience.get_or_insert_with(|| Patience::new(driver.account()));
            if !patience.wait(driver.account()) {
                return false;
            }
        }
        true
    }

    /// Records the reserved memory, as far as `own` and the granted memory suffice, and releases
    /// the rest of both. `own` is part of `claimed`.
    fn write(&self, own: Bytes, growth: Growth, driver: &impl Reservable) -> bool {
        let account = driver.account();
        let mut left = own;
        loop {
            let seen = self.held.load(SeqCst);
            let held = amount(seen);
            let counted_on = self.counted_on.load(SeqCst);
            let Some(reserved) = driver.reserved() else {
                account.release(left);
                return true;
            };
            // Other calls record their own claims.
            let others = amount(self.claimed.load(SeqCst)).minus(own);
            let lacking = reserved.minus(held).minus(left).minus(others);
            let mut fits = true;
            if lacking != Bytes::ZERO {
                if self.held.load(SeqCst) != seen {
                    // The memory was recorded by a call whose claim has since ended, so none is
                    // lacking.
                    continue;
                }
                fits = growth == Growth::Kept || account.claim(lacking);
                if growth == Growth::Kept {
                    account.record(lacking);
                }
                if fits {
                    left = left.plus(lacking);
                }
            }
            // Memory that other calls rely on may have disappeared; those calls reserve it again.
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
                account.release(there.minus(wanted));
                return fits;
            }
        }
    }

    /// Whether calls are under way; returns a number that changes when their state does. A call
    /// counts until its memory is written down, even if the driver has just finished it.
    pub fn under_way(&self) -> Option<u64> {
        let words = [&self.counted_on, &self.claimed].map(|word| word.load(SeqCst));
        let some = words.iter().any(|word| amount(*word) != Bytes::ZERO);
        some.then_some(words[0].wrapping_add(words[1]))
    }

    /// Ends the reserve and all of its calls. Returns the bytes that the ledger still counts for
    /// it.
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
