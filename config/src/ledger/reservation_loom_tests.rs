//! Loom tests: every interleaving of two calls on one pool that allocate, free or trim.
//! Touches: a driver and a ledger of one word each.
//! Law: reserved memory is claimed at every moment, and at rest the ledger counts the reserved
//! memory.

use super::protocol::sync::AtomicU64;
use super::reservation::{Account, Grant, Growth, Patience, Reservable, Reserve};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::SeqCst;
use loom::sync::Arc;
use loom::thread;

const UNIT: u64 = 512;

fn units(count: u64) -> Bytes {
    Bytes::new(count * UNIT)
}

/// A pool whose driver adds that many units at a time, and a ledger with a limit.
struct World {
    pool: Reserve,
    /// The reserved units, and above them the used units.
    driver: AtomicU64,
    ledger: AtomicU64,
    limit: u64,
    grows_by: u64,
    /// The number of refused claims.
    refused: AtomicU64,
    ticks: std::sync::atomic::AtomicU64,
}

const USED: u64 = 1 << 32;

impl World {
    /// A pool with that many reserved units, none of them in use.
    fn new(reserved: u64, limit: u64, grows_by: u64) -> World {
        let world = World {
            pool: Reserve::default(),
            driver: AtomicU64::new(reserved),
            ledger: AtomicU64::new(0),
            limit,
            grows_by,
            refused: AtomicU64::new(0),
            ticks: std::sync::atomic::AtomicU64::new(0),
        };
        assert!(world.pool.settle(Growth::Asked, &world));
        world
    }

    /// Changes the driver's state: `change` maps the old (reserved, used) to the new one.
    fn drive(&self, change: impl Fn(u64, u64) -> (u64, u64)) -> u64 {
        let changed = self.driver.fetch_update(SeqCst, SeqCst, |both| {
            let (reserved, used) = change(both % USED, both / USED);
            Some(reserved + used * USED)
        });
        changed.unwrap()
    }

    /// A call that allocates units as the shim does; returns whether they were granted.
    fn takes(&self, wanted: u64) -> bool {
        let grant = match self.grant(wanted) {
            Some(grant) => grant,
            None => {
                self.trims();
                let mut patience = Patience::new(self);
                while self.pool.under_way().is_some() && patience.wait(self) {}
                match self.grant(wanted) {
                    Some(grant) => grant,
                    None => return false,
                }
            }
        };
        self.pool.begin(grant);
        self.drive(|reserved, used| {
            let missing = (used + wanted).saturating_sub(reserved);
            let grown = reserved + missing.next_multiple_of(self.grows_by);
            (grown, used + wanted)
        });
        self.is_covered();
        if self.pool.end(grant, Growth::Asked, self) {
            return true;
        }
        self.trims();
        if self.pool.settle(Growth::Asked, self) {
            return true;
        }
        self.gives_back(wanted);
        self.trims();
        self.pool.settle(Growth::Kept, self);
        false
    }

    fn grant(&self, wanted: u64) -> Option<Grant> {
        let idle = self.pool.count_on(units(wanted), self);
        let claimed = units(wanted).minus(idle);
        let grant = Grant { claimed, idle };
        if self.claim(claimed) {
            return Some(grant);
        }
        self.pool.let_go(idle);
        None
    }

    fn gives_back(&self, taken: u64) {
        self.drive(|reserved, used| (reserved, used - taken));
    }

    fn trims(&self) {
        self.drive(|_, used| (used.next_multiple_of(self.grows_by), used));
        self.pool.settle(Growth::OfOthers, self);
    }

    /// Checks that reserved memory was claimed before, if the driver adds no more than requested.
    fn is_covered(&self) {
        if self.grows_by == 1 {
            let reserved = self.drive(|reserved, used| (reserved, used)) % USED;
            let claimed = self.ledger.fetch_add(0, SeqCst);
            assert!(reserved <= claimed, "{reserved} of {claimed}");
        }
    }

    /// Checks the state at rest: the ledger counts the reserved memory, within its limit.
    fn rests(&self, used: u64) {
        let both = self.driver.load(SeqCst);
        assert_eq!(both / USED, used);
        assert_eq!(self.ledger.load(SeqCst), both % USED);
        assert!(
            both % USED <= self.limit,
            "{} of {}",
            both % USED,
            self.limit
        );
    }
}

impl Reservable for World {
    fn reserved(&self) -> Option<Bytes> {
        Some(units(self.driver.load(SeqCst) % USED))
    }

    fn used(&self) -> Bytes {
        units(self.driver.load(SeqCst) / USED)
    }

    fn account(&self) -> &impl Account {
        self
    }
}

impl Account for World {
    fn claim(&self, bytes: Bytes) -> bool {
        let claimed = self.ledger.fetch_update(SeqCst, SeqCst, |held| {
            let held = held + bytes.get() / UNIT;
            (held <= self.limit).then_some(held)
        });
        if claimed.is_err() {
            self.refused.fetch_add(1, SeqCst);
        }
        claimed.is_ok()
    }

    fn record(&self, bytes: Bytes) {
        self.ledger.fetch_add(bytes.get() / UNIT, SeqCst);
    }

    fn release(&self, bytes: Bytes) {
        let before = self.ledger.fetch_sub(bytes.get() / UNIT, SeqCst);
        assert!(before >= bytes.get() / UNIT, "what was never claimed");
    }

    fn wait(&self) {
        thread::yield_now();
    }

    fn clock(&self) -> u64 {
        // Not loom's atomic: reading a clock orders nothing.
        self.ticks
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

/// Runs both at once, and returns both results.
fn both<A: Send + 'static>(
    world: &Arc<World>,
    one: impl FnOnce(&World) -> A + Send + 'static,
    other: impl FnOnce(&World) -> A,
) -> (A, A) {
    let there = Arc::clone(world);
    let there = thread::spawn(move || one(&there));
    let here = other(world);
    (there.join().unwrap(), here)
}

fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(run);
}

#[test]
fn what_is_idle_serves_one_of_two() {
    explore(4, || {
        let world = Arc::new(World::new(4, 6, 1));
        let (one, other) = both(&world, |world| world.takes(4), |world| world.takes(4));
        assert!(!(one && other));
        world.rests(4 * u64::from(one || other));
    });
}

#[test]
fn two_that_grow_at_once_are_both_served_where_they_fit_exactly() {
    explore(4, || {
        let world = Arc::new(World::new(0, 7, 1));
        let served = both(&world, |world| world.takes(3), |world| world.takes(4));
        assert_eq!(served, (true, true));
        // No memory is claimed twice, even for a moment: another claim would then be refused.
        assert_eq!(world.refused.load(SeqCst), 0);
        world.rests(7);
    });
}

#[test]
fn what_is_trimmed_while_it_is_taken_again_stays_counted() {
    for limit in [4, 8] {
        explore(4, move || {
            let world = Arc::new(World::new(4, limit, 1));
            let trims = |world: &World| {
                world.trims();
                true
            };
            let (_, taken) = both(&world, trims, |world| world.takes(4));
            if limit == 8 {
                assert!(taken);
            }
            world.rests(4 * u64::from(taken));
        });
    }
}

#[test]
fn what_is_taken_given_back_and_trimmed_by_two_is_counted_once() {
    explore(3, || {
        let world = Arc::new(World::new(0, 8, 1));
        let turn = |world: &World| {
            let taken = world.takes(4);
            if taken {
                world.gives_back(4);
            }
            world.trims();
            taken
        };
        both(&world, turn, turn);
        world.rests(0);
    });
}

#[test]
fn of_two_that_make_it_grow_by_more_than_they_need_none_is_left_uncounted() {
    explore(3, || {
        let world = Arc::new(World::new(0, 6, 4));
        let (one, other) = both(&world, |world| world.takes(3), |world| world.takes(2));
        let used = 3 * u64::from(one) + 2 * u64::from(other);
        let both = world.driver.load(SeqCst);
        assert_eq!(both / USED, used);
        assert_eq!(world.ledger.load(SeqCst), both % USED);
    });
}

#[test]
fn two_that_take_and_one_that_trims_leave_what_is_reserved() {
    explore(2, || {
        let world = Arc::new(World::new(4, 8, 1));
        let trimming = Arc::clone(&world);
        let trimmer = thread::spawn(move || trimming.trims());
        let gives_back = |world: &World| {
            let taken = world.takes(4);
            if taken {
                world.gives_back(4);
            }
            taken
        };
        let (_, taken) = both(&world, gives_back, |world| world.takes(4));
        trimmer.join().unwrap();
        world.trims();
        world.rests(4 * u64::from(taken));
    });
}
