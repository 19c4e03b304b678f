//! One snapshot of this machine: its GPUs, the slices, and warnings.
//! Touches: everything `gather` and `cards` touch; the hook's list of GPUs.
//! Law: /proc and each folder are read once per snapshot, and each driver is queried once. CUDA is
//! queried only for the first snapshot that a `Drivers` is used for.

pub(crate) mod refresh;

use super::cards;
use super::driver::{Drivers, Machine};
use super::gather::gather_and_query;
use super::model::{CardStatus, SliceStatus};
use super::process::Processes;
use super::warnings::{self, Warning};
use crate::commands::devices::stale;
use gpuslice_host::base::paths::HostPaths;
use std::path::Path;

/// The GPUs and slices at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// The GPUs and MIG instances of this machine and of the simulated machines with slices.
    pub(crate) cards: Vec<CardStatus>,
    /// The slices that are visible here.
    pub(crate) slices: Vec<SliceStatus>,
    /// What an operator should look at.
    pub(crate) warnings: Vec<Warning>,
    /// The difference between the hook's list of GPUs and this machine's GPUs.
    pub(crate) device_list: Option<String>,
}

impl Snapshot {
    /// Takes a snapshot. Keep `drivers` for the next one; take new `processes` for each.
    pub(crate) fn take(
        places: &HostPaths,
        processes: &Processes,
        drivers: &mut Drivers,
    ) -> Snapshot {
        let slices = gather_and_query(places, processes, drivers, &[Machine::Real]);
        let cards = cards::cards(places, drivers, &slices);
        let is_this_host = places.root() == Path::new("/");
        let inventory = drivers.inventory(&Machine::Real);
        let device_list = is_this_host
            .then(|| stale::of_this_host_with(inventory))
            .flatten();
        let warnings = warnings::warnings(&slices, drivers, device_list.as_deref());
        Snapshot {
            cards,
            slices,
            warnings,
            device_list,
        }
    }
}
