//! Decides whether a slice of unified memory fits on its host. The room for it is the available
//! memory, less the host's reserve and the unused part of the other slices' promises.
//! Touches: its arguments.
//! Law: a budget is admitted only if every promise could still be kept at this moment. The memory
//! of the host's other programs needs no term of its own, because MemAvailable excludes it.

use crate::base::text;
use gpuslice_config::answer::room::HostRoom;
use gpuslice_config::host::meminfo::HostMemory;
use gpuslice_config::words::units::Bytes;

/// The promise of another slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    /// The slice's name.
    pub name: String,
    /// The memory it was admitted for.
    pub budget: Bytes,
    /// The part of it that is not used yet.
    pub unused: Bytes,
}

/// The memory that may still be promised, and the amounts that reduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// MemAvailable.
    pub available: Bytes,
    /// The host's reserve, R.
    pub reserve: Bytes,
    /// The promises of all other slices.
    pub neighbours: Vec<Neighbour>,
}

impl Room {
    /// Returns the room on a host.
    #[must_use]
    pub(crate) fn on(host: &HostMemory, reserve: Bytes, neighbours: Vec<Neighbour>) -> Room {
        Room {
            available: host.available,
            reserve,
            neighbours,
        }
    }

    /// Reads the room on a host. The promises are read before and after the host's memory, because
    /// slices spend and free memory meanwhile. The larger unused part of each counts, so that no memory
    /// is both available and no part of a promise.
    ///
    /// # Errors
    /// When the host's memory cannot be read.
    pub(crate) fn beside<E>(
        standing: impl Fn() -> Vec<Neighbour>,
        host: impl Fn() -> Result<HostMemory, E>,
        reserve: Bytes,
    ) -> Result<Room, E> {
        let before = standing();
        let host = host()?;
        let mut neighbours = standing();
        for one in &mut neighbours {
            let is_same =
                |other: &&Neighbour| (&other.name, other.budget) == (&one.name, one.budget);
            let earlier = before.iter().filter(is_same).map(|other| other.unused);
            one.unused = earlier.fold(one.unused, Ord::max);
        }
        Ok(Room::on(&host, reserve, neighbours))
    }

    /// Returns the sum of the other slices' unused promises.
    #[must_use]
    pub(crate) fn unused(&self) -> Bytes {
        let each = self.neighbours.iter();
        each.fold(Bytes::ZERO, |sum, one| sum.plus(one.unused))
    }

    /// Returns the memory that a new slice may be promised.
    #[must_use]
    pub(crate) fn left(&self) -> Bytes {
        let room = HostRoom {
            available: self.available,
            reserve: self.reserve,
            promised: self.unused(),
        };
        room.left()
    }

    /// Admits a budget.
    ///
    /// # Errors
    /// When the budget exceeds the room.
    pub(crate) fn admit(&self, budget: Bytes) -> Result<(), Full> {
        match budget <= self.left() {
            true => Ok(()),
            false => Err(Full {
                budget,
                room: self.clone(),
            }),
        }
    }
}

/// The memory that a slice is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Promised {
    /// The promise: the slice's budget, or the room that is left for it.
    pub memory: Bytes,
    /// The cause, if the promise is smaller than the budget.
    pub overcommitted: Option<Full>,
}

/// Decides how much of its budget a slice is promised. A promise never exceeds the room: it would
/// take memory from slices that were already admitted.
///
/// # Errors
/// When the budget exceeds the room and `overcommit` is false.
pub(crate) fn promise(room: &Room, budget: Bytes, overcommit: bool) -> Result<Promised, Full> {
    let overcommitted = match room.admit(budget) {
        Err(full) if !overcommit => return Err(full),
        admitted => admitted.err(),
    };
    Ok(Promised {
        memory: budget.at_most(room.left()),
        overcommitted,
    })
}

/// A budget that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct Full {
    pub budget: Bytes,
    /// The room on the host.
    pub room: Room,
}

impl std::fmt::Display for Full {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Full { budget, room } = self;
        write!(
            out,
            "a slice of {} does not fit on this host, which can promise {}: {} is available, \
             {} of it stays the host's, {} is promised to other slices and not used yet{}",
            budget.beside(room.left()),
            room.left().beside(*budget),
            room.available,
            room.reserve,
            room.unused(),
            if room.neighbours.is_empty() { "" } else { ":" },
        )?;
        for Neighbour {
            name,
            budget,
            unused,
        } in &room.neighbours
        {
            let name = text::printable(name);
            write!(out, "\n  {name}  {budget}, {unused} of it not used")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(available: u64) -> HostMemory {
        HostMemory {
            total: Bytes::gib(121),
            free: Bytes::gib(40),
            available: Bytes::gib(available),
        }
    }

    fn neighbour(name: &str, budget: u64, unused: u64) -> Neighbour {
        Neighbour {
            name: name.to_owned(),
            budget: Bytes::gib(budget),
            unused: Bytes::gib(unused),
        }
    }

    #[test]
    fn what_others_have_used_already_is_not_subtracted_twice() {
        let others = vec![neighbour("one", 40, 0), neighbour("two", 20, 15)];
        let room = Room::on(&host(70), Bytes::gib(8), others);
        assert_eq!(room.left(), Bytes::gib(47));
        assert_eq!(room.admit(Bytes::gib(47)), Ok(()));
        assert!(room.admit(Bytes::gib(47).plus(Bytes::new(1))).is_err());
    }

    #[test]
    fn the_message_says_who_holds_what() {
        let others = vec![neighbour("llama (pid 12)", 40, 30)];
        let room = Room::on(&host(70), Bytes::gib(8), others);
        assert_eq!(
            room.admit(Bytes::gib(60)).unwrap_err().to_string(),
            "a slice of 60.00 GiB does not fit on this host, which can promise 32.00 GiB: 70.00 GiB \
             is available, 8.00 GiB of it stays the host's, 30.00 GiB is promised to other slices \
             and not used yet:\n  llama (pid 12)  40.00 GiB, 30.00 GiB of it not used"
        );
    }

    proptest! {
        #[test]
        fn all_that_was_admitted_can_be_kept(
            available in 0u64..200, reserve in 0u64..20, budgets in prop::collection::vec(1u64..80, 0..8),
        ) {
            let mut admitted = Vec::new();
            for budget in budgets {
                let room = Room::on(&host(available), Bytes::gib(reserve), admitted.clone());
                if room.admit(Bytes::gib(budget)).is_ok() {
                    admitted.push(neighbour("x", budget, budget));
                }
            }
            let sum: u64 = admitted.iter().map(|one| one.budget.get() >> 30).sum();
            prop_assert!(sum == 0 || sum.saturating_add(reserve) <= available);
        }
    }
}
