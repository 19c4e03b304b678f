//! Loom tests: a limit is lowered while processes claim memory.
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p gpuslice-config --release ledger`

use super::{LIMIT_UNIT, SetLimit, load, store};
use crate::ledger::protocol::claims::{self, Outcome};
use crate::ledger::protocol::columns::Amount;
use crate::ledger::protocol::layout::Kind;
use crate::ledger::protocol::model::{GPU, Process, World};
use crate::ledger::protocol::sync::AtomicU32;
use crate::ledger::protocol::totals;
use crate::words::units::Bytes;
use loom::sync::Arc;
use loom::thread;
use std::vec::Vec;

const UNIT: u64 = LIMIT_UNIT.get();

struct Slice {
    world: World,
    limit: AtomicU32,
}

impl Slice {
    fn of(processes: usize, units: u64) -> Arc<Slice> {
        Arc::new(Slice {
            world: World::with_processes(processes),
            limit: AtomicU32::new(limit(units).0),
        })
    }

    fn amount(units: u64) -> Amount {
        let kind = Kind::Linear;
        let bytes = units * UNIT;
        Amount { bytes, kind }
    }

    /// Claims as the library does.
    fn claim(&self, slot: usize, units: u64) -> bool {
        let (process, own) = (Process::of(&self.world), self.world.own(slot));
        let (table, amount) = (self.world.table(), Slice::amount(units));
        loop {
            let set = load(&self.limit);
            let limit = set.bytes().unwrap().get();
            match claims::claim(table, &process, &own, GPU, amount, limit) {
                Outcome::Refused { .. } => return false,
                Outcome::Granted if load(&self.limit) == set => return true,
                Outcome::Granted => claims::release(table, &process, slot, own.holding, amount),
            }
        }
    }

    /// Lowers the limit as `gpuslice resize` does.
    fn lower(&self, units: u64) -> bool {
        let former = load(&self.limit);
        store(&self.limit, limit(units));
        let fits = self.sum() <= units;
        if !fits {
            store(&self.limit, former);
        }
        fits
    }

    fn sum(&self) -> u64 {
        totals::sum(self.world.table(), &Process::of(&self.world), GPU) / UNIT
    }
}

fn limit(units: u64) -> SetLimit {
    SetLimit::of(Bytes::new(units * UNIT)).unwrap()
}

fn explore(preemptions: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.check(run);
}

/// Claims of each slot's units while the limit of 10 is lowered to 6.
fn lowered_during(claimed: &'static [u64], preemptions: Option<usize>) {
    explore(preemptions, move || {
        let slice = Slice::of(claimed.len(), 10);
        let claims: Vec<_> = (0..claimed.len())
            .map(|slot| {
                let slice = Arc::clone(&slice);
                thread::spawn(move || slice.claim(slot, claimed[slot]))
            })
            .collect();
        let is_lower = slice.lower(6);
        let granted = claims.into_iter().zip(claimed);
        let granted: u64 = granted
            .map(|(claim, units)| u64::from(claim.join().unwrap()) * units)
            .sum();
        assert_eq!(slice.sum(), granted);
        assert!(granted <= if is_lower { 6 } else { 10 }, "{granted}");
    });
}

#[test]
fn a_claim_and_a_lower_limit_never_miss_each_other() {
    lowered_during(&[8], None);
}

#[test]
fn two_claims_and_a_lower_limit_never_miss_each_other() {
    lowered_during(&[4, 4], Some(2));
}
