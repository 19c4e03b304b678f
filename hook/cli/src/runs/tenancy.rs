//! Admits a run on GPUs with memory of their own: checks its limits beside those of the other
//! slices, and records them.
//! Touches: the folder of tenants and the lock on it; for root, the hook's lock; the registry.
//! Law: the slices of a card never add up to more than the driver's total, unless --overcommit is
//! given. LIMITS.md ("Admission") lists the exceptions.
//!
//! The tenants of a machine are recorded in `/run/gpuslice/tenants` if root has created that
//! folder, and otherwise in a folder of this user's. A simulated machine has a folder of its own.

use crate::driver::inventory::{Inventory, Target};
use crate::runs::former::{self, Owners};
use crate::runs::registry::Remains;
use crate::runs::run_dir;
use crate::runs::tenant_folders::{Folders, Tenants};
use crate::slice::visible_gpus;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::admission::{AdmissionError, Holders};
use gpuslice_host::slices::records::DeviceBudget;
use gpuslice_host::slices::tenants::{self, FOLDER, Tenant};
use nix::unistd::geteuid;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A GPU, and the memory that a run asks for on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) uuid: DeviceUuid,
    /// The GPU as messages name it.
    pub(crate) shown: String,
    pub(crate) total: Bytes,
    pub(crate) asked: Bytes,
}

/// The error when a GPU has no room for the run.
#[derive(Debug, thiserror::Error)]
#[error(
    "no room for {name}: {full}{hint}\nUse --overcommit to start anyway; FREE is then the \
     memory that is actually free on the GPU"
)]
pub(crate) struct NoRoom {
    name: String,
    full: AdmissionError,
    hint: String,
}

/// The memory recorded for a run on its GPUs. Dropping it removes the record. If the run executes
/// its command, the watcher removes the record instead.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    /// The record's file; None for a run that was admitted for no memory.
    pub file: Option<PathBuf>,
    /// Messages for the user.
    pub warnings: Vec<String>,
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns the GPUs with memory of their own on which a slice counts. A GPU that is `named` with a
/// limit of its own always counts. Any other GPU counts only if `CUDA_VISIBLE_DEVICES` leaves it
/// visible.
#[must_use]
pub(crate) fn cards(
    named: &[DeviceUuid],
    inventory: &Inventory,
    slice: &Slice,
    visible: Option<&str>,
) -> Vec<Card> {
    let visible = visible.and_then(|text| visible_gpus::named(text, inventory));
    let is_seen = |uuid: &DeviceUuid| visible.as_ref().is_none_or(|seen| seen.contains(uuid));
    let card = |target: Target<'_>| {
        let memory = slice.device(target.uuid)?.memory;
        let counts = named.contains(&target.uuid) || is_seen(&target.uuid);
        // A device that does not report its memory cannot be full.
        let known = target.total > Bytes::ZERO;
        (counts && known && !target.integrated).then(|| Card {
            uuid: target.uuid,
            shown: target.to_string(),
            total: target.total,
            asked: memory.at_most(target.total),
        })
    };
    inventory.targets().filter_map(card).collect()
}

/// The longest time a run waits for the lock, and for memory that another run is about to free.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
pub(super) const INTERVAL: Duration = Duration::from_millis(20);

/// Admits a run and records the memory it was admitted for. `simulated` is the state folder of a
/// simulated machine, which has tenants of its own.
///
/// # Errors
/// When a GPU has no room and `overcommit` is false.
pub(crate) fn claim(
    simulated: Option<&Path>,
    name: &str,
    cards: &[Card],
    overcommit: bool,
    owners: Owners,
) -> Result<Tenancy, Box<NoRoom>> {
    if cards.is_empty() {
        return Ok(Tenancy::default());
    }
    let folders = Folders::of(simulated);
    // Only a decision under the lock counts: a plan made before may be outdated.
    let (lock, held) = wait_for_room(cards, || {
        let lock = folders.lock();
        (lock, folders.tenants(owners, Remains::Remove))
    });
    let Tenants { ended, held } = held;
    let Admitted {
        mut warnings,
        budgets,
    } = decide(name, cards, &held, overcommit)?;
    let mut tenancy = Tenancy::default();
    tenancy.warnings.append(&mut warnings);
    if !budgets.is_empty() {
        let is_taken = held.iter().any(|tenant| tenant.owner == Some(owners.own));
        match folders.write(&owners.of_record(is_taken), name, &budgets) {
            Ok((file, uncounted)) => {
                tenancy.file = Some(file);
                tenancy.warnings.extend(uncounted);
            }
            Err(error) => tenancy.warnings.push(format!(
                "other runs cannot count this run: cannot write to {}: {error}",
                folders.own.display()
            )),
        }
    }
    // The records of ended former slices of this process are removed, unless the new record has
    // replaced them.
    for former in ended
        .iter()
        .filter(|file| tenancy.file.as_ref() != Some(*file))
    {
        let _ = fs::remove_file(former);
    }
    drop(lock);
    Ok(tenancy)
}

/// Returns the outcome of [`claim`] at this moment. Takes no lock and changes no file, so another
/// run may be admitted before this one.
///
/// # Errors
/// When a GPU has no room and `overcommit` is false.
pub(crate) fn preview(
    simulated: Option<&Path>,
    name: &str,
    cards: &[Card],
    overcommit: bool,
) -> Result<Admitted, Box<NoRoom>> {
    if cards.is_empty() {
        return Ok(Admitted::default());
    }
    let folders = Folders::of(simulated);
    let owners = Owners::of(None, None);
    let ((), tenants) = wait_for_room(cards, || ((), folders.tenants(owners, Remains::Keep)));
    decide(name, cards, &tenants.held, overcommit)
}

/// The outcome of an admission.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Messages for the user.
    pub warnings: Vec<String>,
    /// The memory that is recorded for each GPU.
    pub budgets: Vec<DeviceBudget>,
}

/// Removes the records of runs that have ended. The next admission would do so too.
pub(crate) fn remove_ended(simulated: Option<&Path>) {
    Folders::of(simulated).remove_dead();
}

/// Returns the slices admitted on a machine's GPUs. `simulated` is the state folder of a simulated
/// machine.
#[must_use]
pub(crate) fn standing(simulated: Option<&Path>, places: &HostPaths) -> Vec<Tenant> {
    match simulated.is_none() && places.root() != Path::new("/") {
        true => tenants::living(&places.run().join(FOLDER), |_| false),
        false => Folders::of(simulated).living(),
    }
}

/// Decides whether a run fits beside the slices that hold memory of its GPUs.
///
/// # Errors
/// When a GPU has no room and `overcommit` is false.
fn decide(
    name: &str,
    cards: &[Card],
    held: &[Tenant],
    overcommit: bool,
) -> Result<Admitted, Box<NoRoom>> {
    let mut warnings = Vec::new();
    let own = geteuid().as_raw();
    let mut others = held
        .iter()
        .filter(|tenant| tenant.uid == own && tenant.name == name);
    if let Some(owner) = others.find_map(|tenant| tenant.owner) {
        warnings.push(same_name(name, owner.pid));
    }
    match full(cards, held) {
        Some(full) if !overcommit => return Err(Box::new(no_room(name, full, cards))),
        Some(full) => warnings.push(format!(
            "{full}; the run starts all the same, and slices on this GPU can be refused memory below \
             their limits"
        )),
        None => {}
    }
    // Recording the whole budget would take memory from slices that were already admitted.
    let budgets = cards.iter().map(|card| DeviceBudget {
        uuid: card.uuid,
        memory: card.asked.at_most(card.left(held).0),
        integrated: false,
    });
    let budgets = budgets.filter(|budget| budget.memory > Bytes::ZERO);
    Ok(Admitted {
        warnings,
        budgets: budgets.collect(),
    })
}

/// Reads the tenants, under a lock, until the run fits or no run is about to free its memory. Gives
/// up when the wait has taken too long.
fn wait_for_room<L>(cards: &[Card], read: impl Fn() -> (L, Tenants)) -> (L, Tenants) {
    let start = Instant::now();
    loop {
        let (lock, tenants) = read();
        // The watcher of an ending run is about to remove its record, unless the command has left
        // processes in the background.
        let waits = full(cards, &tenants.held).is_some()
            && start.elapsed() < PATIENCE
            && tenants.held.iter().any(is_ending);
        if !waits {
            return (lock, tenants);
        }
        drop(lock);
        std::thread::sleep(INTERVAL);
    }
}

/// Returns the warning about another run of that name.
#[must_use]
pub(crate) fn same_name(name: &str, pid: i32) -> String {
    let name = crate::base::text::printable(name);
    format!("another slice is called {name} already (pid {pid}); each has a limit of its own")
}

fn is_ending(tenant: &Tenant) -> bool {
    tenant.owner.is_some_and(|owner| !owner.lives())
}

impl Card {
    /// Returns the memory that the other slices leave on the GPU, and the memory that each of them
    /// takes.
    fn left(&self, held: &[Tenant]) -> (Bytes, Holders) {
        let reader = geteuid().as_raw();
        let holders = held
            .iter()
            .map(|tenant| (tenant.shown(reader), tenant.of_card(self.uuid, self.total)));
        let holders: Vec<_> = holders
            .filter(|(_, memory)| *memory > Bytes::ZERO)
            .collect();
        let sum = holders
            .iter()
            .fold(Bytes::ZERO, |sum, (_, memory)| sum.plus(*memory));
        (self.total.minus(sum), Holders(holders))
    }
}

/// Returns the error for the first GPU that has no room, if any.
pub(super) fn full(cards: &[Card], held: &[Tenant]) -> Option<AdmissionError> {
    cards.iter().find_map(|card| {
        let (left, holders) = card.left(held);
        (card.asked > left).then(|| AdmissionError::Full {
            device: card.shown.clone(),
            left,
            asked: card.asked,
            holders,
        })
    })
}

fn no_room(name: &str, full: AdmissionError, cards: &[Card]) -> NoRoom {
    let hint = match cards {
        [_] => String::new(),
        cards => format!(
            "\nits memory counts on {} GPUs: --device GPU=SIZE or CUDA_VISIBLE_DEVICES names those \
             that it uses",
            cards.len()
        ),
    };
    NoRoom {
        name: crate::base::text::printable(name),
        full,
        hint,
    }
}

/// Links a run's record into its private folder, for the watcher.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn remember(private: &Path, tenancy: &Tenancy) -> io::Result<()> {
    match &tenancy.file {
        Some(file) => symlink(file, private.join(run_dir::TENANT)),
        None => Ok(()),
    }
}

/// Removes the record of a run that has ended, as its private folder names it.
pub(crate) fn forget(private: &Path) {
    if let Ok(file) = fs::read_link(private.join(run_dir::TENANT)) {
        withdraw(&file);
    }
}

/// Removes the record of a run that has ended, unless a later run of the same process owns the file
/// now. Leaves every other file.
pub(crate) fn withdraw(file: &Path) {
    let is_record = file.parent().and_then(Path::file_name) == Some(FOLDER.as_ref());
    let is_used = || former::is_held(file) || former::is_used(run_dir::TENANT, |used| used == file);
    if is_record && !is_used() {
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
#[path = "tenancy_tests.rs"]
mod tests;
