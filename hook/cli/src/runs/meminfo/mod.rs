//! The memory of a slice as its meminfo page shows it, read from outside of the slice.
//! Touches: the slice's ledger, by reading it; the host's meminfo, pressure and promises; /proc and
//! the cgroups of containers.
//! Law: nothing of a slice is mapped or locked, so neither a damaged ledger nor a stopped process can
//! hold up the writer of a page.

mod charge;
mod host;
pub(crate) mod run_page;

pub(crate) use charge::{Charged, cgroups_of};
pub(crate) use host::HostReading;

use gpuslice_config::answer::observed::{observed, shared_device};
use gpuslice_config::answer::view::{Host, MemoryView};
use gpuslice_config::ledger::{LedgerError, Record, Snapshot};
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::ffi::CString;

/// Where the ledger of a slice is.
#[derive(Debug)]
pub(crate) enum LedgerAt {
    /// At a path.
    Path(CString),
    /// At a descriptor of this process.
    Link(CString),
    /// The slice has none, and its memory is not counted.
    Nowhere,
}

/// A slice of unified memory that is looked at again and again.
#[derive(Debug)]
pub(crate) struct Observer {
    slice: Slice,
    device: DeviceUuid,
    /// The id of the slice's own promise.
    own: Option<String>,
    ledger: LedgerAt,
    charged: Charged,
    /// Room for a copy of the ledger.
    place: Vec<u8>,
}

impl Observer {
    /// Prepares to look at a slice. `length` is that of its ledger. None: the slice has no device that
    /// shares the host's memory, or presents it as a card.
    pub(crate) fn new(
        slice: Slice,
        own: Option<String>,
        ledger: LedgerAt,
        charged: Charged,
        length: usize,
    ) -> Option<Observer> {
        let device = shared_device(&slice)?.uuid;
        Some(Observer {
            slice,
            device,
            own,
            ledger,
            charged,
            place: vec![0; length],
        })
    }

    /// Returns what is charged to the slice in addition to its device memory.
    pub(crate) fn charged(&mut self) -> &mut Charged {
        &mut self.charged
    }

    /// Returns the memory that the slice's programs are shown at this moment.
    pub(crate) fn view(&mut self, host: &HostReading) -> Option<MemoryView> {
        let mut budget = self.slice.device(self.device)?;
        let counted = match self.count() {
            Ok(counted) => counted,
            // The library grants nothing either where it cannot count.
            Err(_) if self.slice.enforce => Some((Bytes::MAX, None)),
            Err(_) => None,
        };
        if let Some((_, Some(limit))) = counted {
            budget.memory = limit;
        }
        let now = Host {
            memory: host.memory,
            reserve: self.slice.reserve,
            others_unused: host.others_unused(self.own.as_deref()),
            pressed: None,
        };
        let file = self.slice.thresholds.file;
        let full = || host.full(file.as_ref().map(|file| file.as_str()));
        let held = counted.map(|(held, _)| held);
        Some(observed(&self.slice, &budget, held, now, full))
    }

    /// Counts the memory that the slice's processes hold, and reads the limit in force if it was
    /// changed. None: the slice does not count.
    fn count(&mut self) -> Result<Option<(Bytes, Option<Bytes>)>, LedgerError> {
        let snapshot = match &self.ledger {
            LedgerAt::Nowhere => return Ok(None),
            LedgerAt::Path(path) => Snapshot::read(path, &mut self.place)?,
            LedgerAt::Link(link) => Snapshot::read_link(link, &mut self.place)?,
        };
        let its = |record: &Record| record.alive && record.device == Some(self.device);
        let records: Vec<Record> = snapshot.slots().filter(its).collect();
        let held = records.iter().map(|record| Bytes::new(record.used));
        let held = held.fold(Bytes::ZERO, Bytes::plus);
        let mut limits = snapshot.limits();
        let limit = limits.find(|(uuid, _)| *uuid == self.device);
        let charge = self.charged.of(&records, self.slice.host_allowance);
        Ok(Some((held.plus(charge), limit.map(|(_, limit)| limit))))
    }
}
