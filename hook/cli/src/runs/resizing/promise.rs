//! Another size of a run on unified memory: its promise gets the name for the new budget.
//! Touches: the promises' folder and the lock beside it; the host's meminfo.

use super::{Size, SizeError};
use crate::runs::admission::{Full, Room};
use crate::runs::host_memory;
use crate::runs::promise::Promises;
use crate::runs::promise_maker::id_of;
use crate::runs::registry::Remains;
use crate::runs::tenancy::Card;
use anyhow::Context;
use gpuslice_config::promises::{self, ReadPromise};
use gpuslice_config::slice::host_reserve;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::fs::File;
use std::path::PathBuf;

/// The promise of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunPromise {
    /// A path of its file: that of the start, or a later one.
    pub(crate) file: PathBuf,
    /// Whether the run is on a simulated machine.
    pub(crate) simulated: bool,
    /// The meminfo of its host.
    pub(crate) meminfo: PathBuf,
    /// The host's reserve, if the slice names it.
    pub(crate) reserve: Option<Bytes>,
}

/// The lock on the promises, and the run's own promise, read under it.
pub(crate) struct PromiseAdmission<'a> {
    _lock: File,
    of: &'a RunPromise,
    promises: Promises,
    own: ReadPromise,
}

impl PromiseAdmission<'_> {
    pub(super) fn begin(of: &RunPromise) -> anyhow::Result<PromiseAdmission<'_>> {
        let promises = Promises::beside(&of.file, of.simulated);
        let cannot = || format!("cannot use the promises in {}", promises.folder().display());
        let lock = promises.lock().with_context(cannot)?;
        let held = promises::read_folder(promises.folder()).with_context(cannot)?;
        let id = id_of(&of.file).unwrap_or_default();
        let own = held.into_iter().find(|held| held.slice == id);
        let own = own.with_context(|| format!("{} does not exist any more", of.file.display()))?;
        Ok(PromiseAdmission {
            _lock: lock,
            of,
            promises,
            own,
        })
    }

    /// Checks whether the host has room. The slice's own spent memory counts as available to it.
    pub(super) fn admit(&self, cards: &[Card]) -> Result<(), SizeError> {
        let host = || host_memory::read(&self.of.meminfo);
        let unreadable = |error| SizeError::Unusable(anyhow::Error::new(error));
        let total = host().map_err(unreadable)?.total;
        let reserve = self.of.reserve;
        let reserve = reserve.unwrap_or(host_reserve::default_reserve(total));
        let others = || {
            let own = Some(self.own.slice.as_str());
            self.promises.standing_beside(own, Remains::Keep)
        };
        let spent = self.own.budget.minus(self.own.unused);
        let mut room = Room::beside(others, host, reserve).map_err(unreadable)?;
        room.available = room.available.plus(spent);
        let admitted = cards.iter().try_for_each(|card| room.admit(card.asked));
        admitted.map_err(|full: Full| {
            SizeError::NoRoom(format!(
                "{full}\n  what is available includes {spent} that the slice holds itself"
            ))
        })
    }

    pub(super) fn record(&mut self, sizes: &[(DeviceUuid, Size)]) -> anyhow::Result<()> {
        for (_, size) in sizes {
            let (folder, own) = (self.promises.folder(), &mut self.own);
            let to = size.after(own.budget);
            promises::rename(folder, &own.slice, own.budget, to)
                .with_context(|| format!("cannot change the promise in {}", folder.display()))?;
            own.budget = to;
        }
        Ok(())
    }
}
