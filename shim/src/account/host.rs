//! The host's part of an account of unified memory: checks that the host has the memory, and
//! publishes the memory that this slice holds to the other slices.
//! Touches: the host's meminfo, the promises.

use gpuslice_config::answer::admit::{self, Refusal};
use gpuslice_config::answer::reclaim;
use gpuslice_config::answer::view::Host;
use gpuslice_config::ledger::{self, Ledger};
use gpuslice_config::slice::DeviceSlice;
use gpuslice_config::slice::thresholds::Thresholds;
use gpuslice_config::words::units::Bytes;

use super::Account;
use crate::answer::{self, Moment};
use crate::answer::{device, host};
use crate::log::Piece::{Size, SizeBeside, Str};
use crate::log::counters;
use crate::slice::loaded_slice::LoadedSlice;

impl Account {
    /// The slice's thresholds below which memory is short.
    pub(crate) fn thresholds(&self) -> &'static Thresholds {
        self.slice.thresholds()
    }

    /// Whether memory is short for this request, in the slice or on the host.
    pub(crate) fn is_short(&self, request: Bytes) -> bool {
        let budget = self.budget().budget;
        let held = self.ledger.sum(self.listed);
        let reading = match self.unified() {
            true => host::now(self.slice, &self.device, &budget, Some(held), None),
            false => None,
        };
        let charged = reading.map_or(held, |reading| held.plus(reading.charge));
        let host = reading.as_ref().map(|reading| &reading.host);
        reclaim::is_short(self.thresholds(), budget.memory, charged, request, host)
    }

    /// Publishes that the slice's holdings have changed. Neighbours need it only where the machine
    /// has promised memory to each slice.
    #[inline]
    pub(super) fn changed(&self) {
        if self.unified() && self.slice.promise().is_some() {
            host::changed(self.slice, &self.device, self.ledger);
        }
    }

    /// The memory that the host has available, on unified memory.
    pub(crate) fn host(&self) -> Option<u64> {
        let host = self.unified().then(|| self.slice.host())?;
        host.ok().map(|host| host.available.get())
    }

    /// Checks a request against the host's available memory, on unified memory. Granted: returns
    /// the part of the host's memory that is charged to the slice.
    #[cold]
    pub(super) fn check_host(&self, budget: &DeviceSlice, bytes: Bytes) -> Result<Bytes, Refusal> {
        let ask = |moment| answer::host_facts(self.slice, &self.device, budget, moment);
        if let Some((facts, charge)) = ask(Moment::Lately)
            && admit::leaves_margin(&facts, bytes)
            && admit::admit(&facts, Some(budget), bytes).is_ok()
        {
            return Ok(charge);
        }
        let Some((facts, charge)) = ask(Moment::Now) else {
            return Ok(Bytes::ZERO);
        };
        admit::admit(&facts, Some(budget), bytes).map(|()| charge)
    }
}

/// Logs a refusal that is due to the host's memory.
#[cold]
pub(super) fn say_refused(bytes: Bytes, host: &Host) {
    // Under pressure the host keeps more.
    let keeps = host.pressed.map_or(host.reserve(), |pressed| pressed.keeps);
    let pressed = match host.pressed {
        Some(_) => " (under memory pressure); other slices may still take ",
        None => "; other slices may still take ",
    };
    let line = [
        Str("refused "),
        SizeBeside(bytes, host.memory.available),
        Str(": the host has "),
        SizeBeside(host.memory.available, bytes),
        Str(" available and keeps "),
        Size(keeps),
        Str(pressed),
        Size(host.others_unused),
    ];
    counters::REFUSED_BY_HOST.warn(&line);
}

/// Publishes to the neighbours that memory was released, on unified memory.
#[cold]
pub(super) fn publish_release(slice: &LoadedSlice, ledger: &Ledger, listed: ledger::Device) {
    let device = device::unified(slice).filter(|device| device.listed == Some(listed));
    if let Some(device) = device {
        host::changed(slice, &device, ledger);
    }
}
