//! The cheap figure: the memory in use on each GPU, which is asked often. It tells when the list of
//! processes is worth its price.
//! Touches: the child that asks NVML, the host's meminfo.

use super::memory::watch::Host;
use crate::commands::status::driver::Machine;
use crate::commands::status::snapshot::Snapshot;
use crate::commands::status::snapshot::refresh::Ledgers;
use crate::driver::memory_watch::{MemoryWatch, Used};
use std::time::{Duration, Instant};

/// The longest wait for an answer, and the time after which the driver counts as silent.
const WAIT: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(3);
/// A driver that was silent is asked again after this time.
const PAUSE: Duration = Duration::from_secs(30);

/// The key of the host's memory, for GPUs that share it: NVML reports no memory for most of these.
const HOST: u32 = u32::MAX;

/// The cheap figure, and what it was compared with.
#[derive(Debug, Default)]
pub(super) struct Cheap {
    child: Option<MemoryWatch>,
    silent: Option<Instant>,
    host: Option<Host>,
    /// The lowest figure since the last comparison with the ledgers.
    seen: Used,
    /// The part of the figure that no ledger explained at the last snapshot.
    unexplained: Used,
}

impl Cheap {
    /// The figure of a host with this memory.
    pub(super) fn of(host: Option<Host>) -> Cheap {
        Cheap {
            host,
            ..Cheap::default()
        }
    }

    /// Whether more memory is in use than the ledgers and the last snapshot explain, by more than
    /// `slack`. The snapshot gets the ledgers' newest numbers.
    pub(super) fn has_grown(
        &mut self,
        snapshot: &mut Snapshot,
        ledgers: &mut Ledgers,
        slack: u64,
    ) -> bool {
        let used = self.used(snapshot);
        let grew = |(key, used): (&u32, &u64)| {
            let seen = self.seen.get(key).copied();
            seen.is_none_or(|seen| *used > seen.saturating_add(slack / 2))
        };
        let has_grown = used.iter().any(grew);
        for (key, now) in &used {
            let seen = self.seen.entry(*key).or_insert(*now);
            *seen = (*seen).min(*now);
        }
        if !has_grown {
            return false;
        }
        ledgers.refresh(snapshot);
        self.seen.clone_from(&used);
        unexplained(&used, snapshot).iter().any(|(key, now)| {
            let before = self.unexplained.get(key).copied().unwrap_or(0);
            *now > before.saturating_add(slack)
        })
    }

    /// Remembers what no ledger explains at a snapshot.
    pub(super) fn remember(&mut self, snapshot: &Snapshot) {
        let used = self.used(snapshot);
        self.unexplained.extend(unexplained(&used, snapshot));
    }

    fn used(&mut self, snapshot: &Snapshot) -> Used {
        let mut used = self.of_cards().unwrap_or_default();
        if snapshot.cards.iter().any(|card| card.unified) {
            let host = self.host.as_ref().and_then(Host::memory);
            used.extend(host.map(|host| (HOST, host.total.minus(host.available).get())));
        }
        used
    }

    fn of_cards(&mut self) -> Option<Used> {
        if self.silent.is_some_and(|at| at.elapsed() < PAUSE) {
            return None;
        }
        if self.child.is_none() {
            self.child = MemoryWatch::start().ok();
        }
        let answer = self.child.as_mut()?.ask(WAIT, PATIENCE);
        if answer.is_err() {
            // Snapshots without a reason go on.
            self.child = None;
            self.silent = Some(Instant::now());
        }
        answer.ok()?
    }
}

/// The part of each figure that no ledger explains.
fn unexplained(used: &Used, snapshot: &Snapshot) -> Used {
    let mut rest = used.clone();
    for card in &snapshot.cards {
        let key = if card.unified { HOST } else { card.index };
        // The child asks this machine only.
        if let (Machine::Real, Some(rest)) = (&card.machine, rest.get_mut(&key)) {
            *rest = rest.saturating_sub(card.in_slices);
        }
    }
    rest
}
