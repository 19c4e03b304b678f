//! Tests of one call after another on a pool. The loom tests are those of calls at once.
//! Touches: a driver and a ledger of a few words.

use super::protocol::step::STEP;
use super::reservation::{Account, Grant, Growth, Patience, Reservable, Reserve};
use crate::words::units::Bytes;
use core::cell::Cell;

const UNIT: u64 = 512;

fn units(count: u64) -> Bytes {
    Bytes::new(count.saturating_mul(UNIT))
}

fn steps(count: u64) -> Bytes {
    Bytes::new(count.saturating_mul(STEP))
}

/// A pool, its driver and its ledger.
#[derive(Default)]
struct Pool {
    reserve: Reserve,
    /// The driver's figures; None where it does not report what is reserved.
    reserved: Cell<Option<Bytes>>,
    used: Cell<Bytes>,
    ledger: Cell<Bytes>,
    limit: Cell<Bytes>,
    clock: Cell<u64>,
    waits: Cell<u32>,
    /// The memory that the driver has reserved after a wait.
    after_a_wait: Cell<Option<Bytes>>,
}

impl Reservable for Pool {
    fn reserved(&self) -> Option<Bytes> {
        self.reserved.get()
    }

    fn used(&self) -> Bytes {
        self.used.get()
    }

    fn account(&self) -> &impl Account {
        self
    }
}

impl Account for Pool {
    fn claim(&self, bytes: Bytes) -> bool {
        let fits = self.ledger.get().plus(bytes) <= self.limit.get();
        if fits {
            self.record(bytes);
        }
        fits
    }

    fn record(&self, bytes: Bytes) {
        self.ledger.set(self.ledger.get().plus(bytes));
    }

    fn release(&self, bytes: Bytes) {
        assert!(bytes <= self.ledger.get(), "more than was claimed");
        self.ledger.set(self.ledger.get().minus(bytes));
    }

    fn wait(&self) {
        self.waits.set(self.waits.get().saturating_add(1));
        if let Some(reserved) = self.after_a_wait.get() {
            self.reserved.set(Some(reserved));
        }
    }

    fn clock(&self) -> u64 {
        self.clock.get()
    }
}

impl Pool {
    /// A pool with this much reserved, which the ledger counts, and a limit.
    fn with(reserved: Bytes, limit: Bytes) -> Pool {
        let pool = Pool::default();
        pool.limit.set(limit);
        pool.reserves(reserved);
        assert!(pool.settle(Growth::Asked));
        assert_eq!(pool.ledger.get(), reserved);
        pool
    }

    fn reserves(&self, bytes: Bytes) {
        self.reserved.set(Some(bytes));
    }

    fn count_on(&self, wanted: Bytes) -> Bytes {
        self.reserve.count_on(wanted, self)
    }

    fn settle(&self, growth: Growth) -> bool {
        self.reserve.settle(growth, self)
    }

    /// A call begins, for which this much was claimed.
    fn begins(&self, claimed: Bytes) -> Grant {
        assert!(self.claim(claimed));
        let grant = Grant {
            claimed,
            idle: Bytes::ZERO,
        };
        self.reserve.begin(grant);
        grant
    }

    fn ends(&self, grant: Grant, growth: Growth) -> bool {
        self.reserve.end(grant, growth, self)
    }
}

#[test]
fn idle_memory_is_assigned_once() {
    let pool = Pool::with(units(8), units(8));
    pool.used.set(units(1));
    assert_eq!(pool.count_on(units(5)), units(5));
    assert_eq!(pool.count_on(units(5)), units(2), "what is left");
    assert_eq!(pool.count_on(units(5)), Bytes::ZERO);
    pool.reserve.let_go(units(5));
    assert_eq!(pool.count_on(Bytes::new(1)), units(1), "whole units");
    assert_eq!(pool.count_on(units(9)), units(4));
}

#[test]
fn only_whole_units_that_the_ledger_counts_are_assigned() {
    let pool = Pool::with(units(8), units(8));
    pool.used.set(Bytes::new(UNIT + 100));
    assert_eq!(pool.count_on(units(8)), units(6));
    let unsettled = Pool::with(units(2), units(8));
    unsettled.reserves(units(8));
    assert_eq!(unsettled.count_on(units(8)), units(2));
    unsettled.reserved.set(None);
    assert_eq!(unsettled.count_on(units(8)), Bytes::ZERO);
}

#[test]
fn a_call_keeps_what_the_driver_reserves_and_releases_the_rest() {
    let pool = Pool::with(units(2), units(20));
    let grant = pool.begins(units(6));
    pool.reserves(units(5));
    assert!(pool.ends(grant, Growth::Asked));
    assert_eq!(pool.ledger.get(), units(5));
    // The idle memory that a call has used is no longer assigned to it.
    let idle = pool.count_on(units(5));
    pool.used.set(units(5));
    let claimed = Bytes::ZERO;
    assert!(pool.ends(Grant { claimed, idle }, Growth::Asked));
    pool.used.set(Bytes::ZERO);
    assert_eq!(pool.count_on(units(5)), units(5));
}

#[test]
fn a_call_without_a_report_of_the_driver_releases_its_claim() {
    let pool = Pool::with(units(2), units(20));
    let grant = pool.begins(units(6));
    pool.reserved.set(None);
    assert!(pool.ends(grant, Growth::Asked));
    assert_eq!(pool.ledger.get(), units(2));
    assert_eq!(pool.reserve.under_way(), None);
}

#[test]
fn growth_beyond_the_claim_is_claimed_too() {
    let pool = Pool::with(units(2), units(20));
    let grant = pool.begins(units(3));
    pool.reserves(units(9));
    assert!(pool.ends(grant, Growth::Asked));
    assert_eq!(pool.ledger.get(), units(9));
}

#[test]
fn growth_without_room_is_reported_or_recorded() {
    let full = || {
        let pool = Pool::with(units(2), units(6));
        let grant = pool.begins(units(4));
        pool.reserves(units(9));
        (pool, grant)
    };
    let (pool, grant) = full();
    assert!(!pool.ends(grant, Growth::Asked));
    assert_eq!(pool.ledger.get(), units(6), "what was granted");
    pool.reserves(units(6));
    assert!(pool.settle(Growth::Asked), "the call has released the rest");

    let (pool, grant) = full();
    assert!(pool.ends(grant, Growth::Kept));
    assert_eq!(pool.ledger.get(), units(9), "beyond the limit, once");

    let pool = Pool::with(units(2), units(6));
    pool.reserves(units(9));
    assert!(!pool.settle(Growth::OfOthers));
    assert_eq!(pool.ledger.get(), units(2));
    // Where there is room, memory that the call keeps is counted once, too.
    pool.reserves(units(5));
    assert!(pool.settle(Growth::Kept));
    assert_eq!(pool.ledger.get(), units(5));
}

#[test]
fn trimmed_memory_leaves_the_ledger() {
    let pool = Pool::with(units(8), units(8));
    pool.reserves(units(3));
    assert!(pool.settle(Growth::OfOthers));
    assert_eq!(pool.ledger.get(), units(3));
}

#[test]
fn memory_that_calls_rely_on_stays_counted_in_whole_steps_if_it_is_trimmed() {
    let pool = Pool::with(steps(4), steps(4));
    let idle = pool.count_on(Bytes::new(STEP + UNIT));
    pool.used.set(Bytes::new(UNIT));
    pool.reserves(Bytes::new(UNIT));
    assert!(pool.settle(Growth::OfOthers));
    assert_eq!(pool.ledger.get(), steps(2));
    pool.reserve.let_go(idle);
    assert!(pool.settle(Growth::OfOthers));
    assert_eq!(pool.ledger.get(), units(1));
}

#[test]
fn a_settlement_waits_only_for_calls_that_may_release_memory() {
    let pool = Pool::with(units(2), units(6));
    pool.reserves(units(9));
    assert!(!pool.settle(Growth::Asked), "there are no other calls");
    assert_eq!(pool.waits.get(), 0);

    let _other = pool.begins(units(2));
    pool.after_a_wait.set(Some(units(6)));
    assert!(!pool.settle(Growth::OfOthers));
    assert_eq!(pool.waits.get(), 0);
    assert!(pool.settle(Growth::Asked), "the other call has trimmed");
    assert_eq!(pool.waits.get(), 1);

    pool.after_a_wait.set(Some(units(9)));
    pool.reserves(units(9));
    assert!(!pool.settle(Growth::Asked), "the time is over");
    assert_eq!(pool.waits.get(), 1 + 999);
}

#[test]
fn patience_ends_with_time_or_rounds() {
    let pool = Pool::default();
    let mut patience = Patience::new(&pool);
    let waits = std::iter::from_fn(|| patience.wait(&pool).then_some(()));
    assert_eq!(waits.count(), 999);
    let mut patience = Patience::new(&pool);
    assert!(patience.wait(&pool));
    pool.clock.set(9_999_999);
    assert!(patience.wait(&pool));
    pool.clock.set(10_000_000);
    assert!(!patience.wait(&pool));
}

#[test]
fn calls_under_way_have_a_number_that_changes_with_them() {
    let pool = Pool::with(steps(4), steps(20));
    assert_eq!(pool.reserve.under_way(), None);
    let idle = pool.count_on(units(1));
    let one = pool.reserve.under_way();
    assert!(one.is_some());
    let grant = pool.begins(units(2));
    let two = pool.reserve.under_way();
    assert!(two.is_some() && two != one);
    assert!(pool.settle(Growth::OfOthers));
    assert_eq!(pool.reserve.under_way(), two, "nothing has changed");
    pool.reserves(steps(3));
    assert!(pool.settle(Growth::OfOthers));
    let trimmed = pool.reserve.under_way();
    assert!(trimmed.is_some() && trimmed != two);
    pool.reserve.let_go(idle);
    assert!(pool.reserve.under_way().is_some());
    assert!(pool.ends(grant, Growth::Asked));
    assert_eq!(pool.reserve.under_way(), None);
}

#[test]
fn a_closed_reserve_returns_what_the_ledger_counts() {
    let pool = Pool::with(units(4), units(20));
    pool.count_on(units(1));
    let _grant = pool.begins(units(2));
    assert_eq!(pool.reserve.close(), units(4));
    assert_eq!(pool.reserve.under_way(), None);
    assert_eq!(pool.reserve.close(), Bytes::ZERO);
}
