//! Admits a run on cards with memory of their own: checks its limits beside those of the other
//! slices, and records them.
//! Touches: the folder of tenants and the lock on it; for root, the hook's lock; the registry.
//! Law: a card's slices never add up to more than its driver's total, unless --overcommit is given.
//!
//! The tenants of a machine are recorded in `/run/gpuslice/tenants` if root has created it, and
//! otherwise in a folder of this user's. A simulated machine has its own.

use crate::former::{self, Owners};
use crate::inventory::{Inventory, Target};
use crate::registry;
use crate::visible_gpus;
use gpuslice_config::device::DeviceUuid;
use gpuslice_config::slice::Slice;
use gpuslice_config::units::Bytes;
use gpuslice_oci::admission::{AdmissionError, Holders};
use gpuslice_oci::place::Places;
use gpuslice_oci::registry::{Budget, Registry};
use gpuslice_oci::tenants::{self, FOLDER, Process, Tenant};
use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A card, and what a run asks for of it.
#[derive(Clone, Debug)]
pub struct Card {
    uuid: DeviceUuid,
    shown: String,
    total: Bytes,
    asked: Bytes,
}

/// A run has no place.
#[derive(Debug, thiserror::Error)]
#[error(
    "no room for {name}: {full}{hint}\n--overcommit starts it all the same; its FREE is then the \
     memory that is free on the GPU"
)]
pub struct NoRoom {
    name: String,
    full: AdmissionError,
    hint: String,
}

/// A run's own place. Dropping it gives it back; a run that becomes its command leaves that to its
/// watcher.
#[derive(Debug, Default)]
pub struct Tenancy {
    /// The record; None for a run that was admitted for nothing.
    pub file: Option<PathBuf>,
    /// The messages for the user.
    pub warnings: Vec<String>,
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

/// The cards with memory of their own that a slice counts on: those that are `named` with a limit
/// of their own, and of the others those that `CUDA_VISIBLE_DEVICES` leaves visible.
#[must_use]
pub fn cards(
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
        // A device that does not tell its memory cannot be full.
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

/// How long a run waits for memory that another run is about to release, and for the lock.
const PATIENCE: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(20);

/// Admits a run and writes down what it was admitted for. `simulated` is the state of a machine
/// that has tenants of its own.
///
/// # Errors
/// When a card has no room, and not `overcommit`.
pub fn claim(
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
    let start = Instant::now();
    let (lock, ended, held, full) = loop {
        let lock = folders.lock();
        let (ended, held) = folders.tenants(owners.own);
        let full = full(cards, &held);
        match full {
            // Its watcher is about to give it back, unless something was left in the background.
            Some(_) if start.elapsed() < PATIENCE && held.iter().any(is_ending) => {}
            full => break (lock, ended, held, full),
        }
        drop(lock);
        std::thread::sleep(INTERVAL);
    };
    let mut tenancy = Tenancy::default();
    let own = geteuid().as_raw();
    let mut others = held
        .iter()
        .filter(|tenant| tenant.uid == own && tenant.name == name);
    if let Some(owner) = others.find_map(|tenant| tenant.owner) {
        tenancy.warnings.push(same_name(name, owner.pid));
    }
    match full {
        Some(full) if !overcommit => return Err(Box::new(no_room(name, full, cards))),
        Some(full) => tenancy.warnings.push(format!(
            "{full}; the run starts all the same, and slices on this GPU can be refused memory below \
             their limits"
        )),
        None => {}
    }
    // More would be taken from those that were admitted.
    let budgets: Vec<Budget> = cards
        .iter()
        .map(|card| Budget {
            uuid: card.uuid,
            memory: card.asked.at_most(card.left(&held).0),
            integrated: false,
        })
        .filter(|budget| budget.memory > Bytes::ZERO)
        .collect();
    if !budgets.is_empty() {
        let is_taken = held.iter().any(|tenant| tenant.owner == Some(owners.own));
        match folders.write(&owners.of_record(is_taken), name, &budgets) {
            Ok(file) => tenancy.file = Some(file),
            Err(error) => tenancy.warnings.push(format!(
                "other runs cannot count this run: cannot write to {}: {error}",
                folders.own.display()
            )),
        }
    }
    // Of the former slices of this process, of which the new record may have replaced one.
    for former in ended
        .iter()
        .filter(|file| tenancy.file.as_ref() != Some(*file))
    {
        let _ = fs::remove_file(former);
    }
    drop(lock);
    Ok(tenancy)
}

/// The warning about another run of the same name.
#[must_use]
pub fn same_name(name: &str, pid: i32) -> String {
    let name = crate::text::printable(name);
    format!("another slice is called {name} already (pid {pid}); each has a limit of its own")
}

fn is_ending(tenant: &Tenant) -> bool {
    tenant.owner.is_some_and(|owner| !owner.lives())
}

impl Card {
    /// The memory that other slices leave on the card, and those slices.
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

/// The first card that has no room.
fn full(cards: &[Card], held: &[Tenant]) -> Option<AdmissionError> {
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
        name: crate::text::printable(name),
        full,
        hint,
    }
}

/// Where tenants are.
struct Folders {
    /// This machine's, which root makes.
    machine: Option<PathBuf>,
    /// This user's, or the simulated machine's.
    own: PathBuf,
}

/// Held while a run is admitted.
struct Lock<'a> {
    _hooks: Option<Registry<'a>>,
    _folder: Option<File>,
}

impl Folders {
    fn of(simulated: Option<&Path>) -> Folders {
        match simulated {
            Some(state) => Folders {
                machine: None,
                own: state.join(FOLDER),
            },
            None => {
                let machine = machine().run().join(FOLDER);
                let own = registry::shared_folder().join(FOLDER);
                Folders {
                    machine: (machine != own).then(|| machine.clone()),
                    own,
                }
            }
        }
    }

    fn is_simulated(&self) -> bool {
        self.machine.is_none() && self.own != machine().run().join(FOLDER)
    }

    fn each(&self) -> impl Iterator<Item = &PathBuf> {
        self.machine.iter().chain([&self.own])
    }

    /// The records of former slices of this process that have ended, and the tenants.
    fn tenants(&self, own: Process) -> (Vec<PathBuf>, Vec<Tenant>) {
        self.each().for_each(|folder| tenants::remove_dead(folder));
        let living = self.each().flat_map(|folder| tenants::living(folder));
        let user = geteuid().as_raw();
        let has_ended = |tenant: &Tenant| {
            tenant.owner == Some(own) && tenant.uid == user && !former::is_used(&tenant.file, LINK)
        };
        let (ended, held): (Vec<Tenant>, Vec<Tenant>) = living.partition(has_ended);
        (ended.into_iter().map(|tenant| tenant.file).collect(), held)
    }

    /// A lock that is held too long does not keep other runs from starting.
    fn lock(&self) -> Lock<'static> {
        let hooks = match geteuid().is_root() && !self.is_simulated() {
            // It makes the folders of this machine, too.
            true => Registry::lock(machine()).ok(),
            false => None,
        };
        self.make();
        let mut folders = self.each().filter_map(|folder| File::open(folder).ok());
        let folder = folders.next();
        let start = Instant::now();
        while let Some(folder) = &folder
            && folder.try_lock().is_err()
            && start.elapsed() < PATIENCE
        {
            std::thread::sleep(INTERVAL);
        }
        Lock {
            _hooks: hooks,
            _folder: folder,
        }
    }

    /// A folder that cannot be created is reported when a record is to be written to it.
    fn make(&self) {
        if !self.is_simulated() {
            if let Some(above) = self.own.parent() {
                let _ = registry::make(above);
            }
            if geteuid().is_root() {
                let _ = tenants::make(machine());
            }
        }
        let _ = DirBuilder::new().mode(0o700).create(&self.own);
    }

    fn write(&self, owner: &Process, name: &str, budgets: &[Budget]) -> io::Result<PathBuf> {
        let machine = self.machine.as_ref();
        if let Some(Ok(written)) =
            machine.map(|folder| tenants::write(folder, owner, name, budgets))
        {
            return Ok(written);
        }
        tenants::write(&self.own, owner, name, budgets)
    }
}

fn machine() -> &'static Places {
    static PLACES: std::sync::LazyLock<Places> = std::sync::LazyLock::new(Places::default);
    &PLACES
}

/// In a private folder: the link to the run's record.
const LINK: &str = "tenant";

/// Remembers a run's record in its private folder, for the watcher.
///
/// # Errors
/// When the folder cannot be written to.
pub fn remember(private: &Path, tenancy: &Tenancy) -> io::Result<()> {
    match &tenancy.file {
        Some(file) => symlink(file, private.join(LINK)),
        None => Ok(()),
    }
}

/// Removes the record of a run that has ended, unless it is by now that of a later run of the same
/// process.
pub fn forget(private: &Path) {
    let Ok(file) = fs::read_link(private.join(LINK)) else {
        return;
    };
    let is_record = file.parent().and_then(Path::file_name) == Some(FOLDER.as_ref());
    if is_record && !former::is_used(&file, LINK) {
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
#[path = "tenancy_tests.rs"]
mod tests;
