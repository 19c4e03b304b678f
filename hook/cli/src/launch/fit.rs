//! Checks whether several slices fit together on one machine.
//! Touches: what `facts` touches; the promises of running slices, by reading them. A simulated
//! machine runs in a temporary folder.
//! Law: slices that run now are not counted: the machine is taken as if none ran. It decides as the
//! admission of runs does, in the order of the slices.

use crate::base::text::printable;
use crate::driver::inventory::{Inventory, Target};
use crate::launch::facts::{Facts, Source};
use crate::launch::plan::Plan;
use crate::launch::scratch::Scratch;
use crate::runs::admission::{self, Neighbour, Room};
use crate::runs::host_memory;
use crate::runs::promise::Promises;
use crate::runs::registry::Remains;
use crate::runs::tenancy::Card;
use crate::slice::options::SliceOptions;
use crate::slice::slices_file::keys::named_by_keys;
use crate::slice::slices_file::places::Found;
use crate::slice::visible_gpus::Seen;
use gpuslice_config::answer::view::{self, DriverMemory, MemoryView};
use gpuslice_config::host::meminfo::HostMemory;
use gpuslice_config::slice::{Slice, host_reserve};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::slices::admission::{AdmissionError, Holders};
use std::collections::BTreeMap;
use std::path::Path;

/// The outcome for all slices.
pub(crate) struct Fit {
    pub(crate) gpus: Vec<Gpu>,
    /// The host, if a GPU shares its memory.
    pub(crate) host: Option<Host>,
    /// The slices, in the order in which they were given.
    pub(crate) slices: Vec<SliceFit>,
}

/// A GPU, or an instance of one.
pub(crate) struct Gpu {
    pub(crate) uuid: DeviceUuid,
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) total: Bytes,
    /// Whether it shares the host's memory.
    pub(crate) integrated: bool,
    /// The limits of slices on it, by the slice's place in the list.
    pub(crate) limits: Vec<(usize, Bytes)>,
    /// The memory that the slices that fit leave on it.
    pub(crate) left: Bytes,
}

/// A host that shares its memory with a GPU.
pub(crate) struct Host {
    /// Its available memory if no slice ran.
    pub(crate) available: Bytes,
    /// The memory that it keeps for itself, unless a slice says otherwise.
    pub(crate) reserve: Bytes,
    promised: Vec<Neighbour>,
}

/// The outcome for one slice.
pub(crate) struct SliceFit {
    /// Why it cannot start; None if it fits.
    pub(crate) refusal: Option<String>,
    /// Whether it starts only because it may overcommit.
    pub(crate) overcommits: bool,
    /// The largest limit with which it would fit, if a smaller one would.
    pub(crate) fits_with: Option<Bytes>,
    pub(crate) warnings: Vec<String>,
    /// The memory that its programs are shown at the start, on the GPU where this is least.
    pub(crate) shown: Option<MemoryView>,
}

impl Host {
    /// Returns the memory that may still be promised.
    pub(crate) fn left(&self) -> Bytes {
        self.room(self.reserve).left()
    }

    fn room(&self, reserve: Bytes) -> Room {
        Room {
            available: self.available,
            reserve,
            neighbours: self.promised.clone(),
        }
    }
}

/// Checks whether the slices fit together, on this machine or on a simulated one.
///
/// # Errors
/// When the driver does not answer, or the host's memory cannot be read.
pub(crate) fn fit(found: &[Found], sim: Option<&str>) -> anyhow::Result<Fit> {
    let scratch = Scratch::new(sim.is_some())?;
    let machine = SliceOptions {
        sim: sim.map(str::to_owned),
        ..SliceOptions::default()
    };
    let gather = |options: &SliceOptions| {
        let facts = Facts::gather_of(Source::Options, options, scratch.state());
        facts.map_err(|error| scratch.explain(error, sim))
    };
    let facts = gather(&machine)?;
    let inventory = facts.inventory.clone().unwrap_or_default();
    let mut books = Books::of(&inventory, host(&facts, &scratch)?);
    let mut slices = Vec::new();
    for (place, found) in found.iter().enumerate() {
        let options = found.options(&machine);
        // Such a variable changes the order in which CUDA lists the GPUs.
        let reorders = options
            .env
            .iter()
            .any(|(name, _)| name == "CUDA_DEVICE_ORDER");
        let facts = match reorders {
            true => gather(&options)?,
            false => facts.for_slice(&options),
        };
        slices.push(match Plan::make(&options, &facts) {
            Ok(plan) => books.enter(place, found.slice.name(), plan, &facts, &inventory),
            Err(error) => SliceFit {
                refusal: Some(named_by_keys(&format!("{error:#}"))),
                overcommits: false,
                fits_with: None,
                warnings: Vec::new(),
                shown: None,
            },
        });
    }
    let Books { mut gpus, host, .. } = books;
    let room = host.as_ref().map(Host::left);
    for gpu in gpus.iter_mut().filter(|gpu| gpu.integrated) {
        gpu.left = room.unwrap_or_default();
    }
    Ok(Fit { gpus, host, slices })
}

/// Reads the host's memory, if a GPU shares it. Memory that running slices use counts as available.
fn host(facts: &Facts, scratch: &Scratch) -> anyhow::Result<Option<Host>> {
    let inventory = facts.inventory.as_ref();
    if !inventory.is_some_and(|all| all.targets().any(|target| target.integrated)) {
        return Ok(None);
    }
    let meminfo = scratch.meminfo(facts)?;
    let meminfo = meminfo
        .as_deref()
        .unwrap_or(Path::new(host_memory::MEMINFO));
    let HostMemory {
        total, available, ..
    } = host_memory::read(meminfo)?;
    let running = Promises::of(scratch.records(facts)).standing_and(Remains::Keep);
    let used = running.iter().map(|one| one.budget.minus(one.unused));
    Ok(Some(Host {
        available: used.fold(available, Bytes::plus).at_most(total),
        reserve: host_reserve::default_reserve(total),
        promised: Vec::new(),
    }))
}

/// What the slices before hold of each GPU and of the host.
struct Books {
    gpus: Vec<Gpu>,
    host: Option<Host>,
    held: BTreeMap<DeviceUuid, Vec<(String, Bytes)>>,
}

impl Books {
    fn of(inventory: &Inventory, host: Option<Host>) -> Books {
        let gpu = |target: Target<'_>| Gpu {
            uuid: target.uuid,
            index: target.device.index,
            name: target.device.name.clone(),
            total: target.total,
            integrated: target.integrated,
            limits: Vec::new(),
            left: target.total,
        };
        Books {
            gpus: inventory.targets().map(gpu).collect(),
            host,
            held: BTreeMap::new(),
        }
    }

    /// Enters a slice, if it fits beside those before.
    fn enter(
        &mut self,
        place: usize,
        name: &str,
        plan: Plan,
        facts: &Facts,
        inventory: &Inventory,
    ) -> SliceFit {
        let mut warnings = plan.warnings;
        warnings.extend(plan.gaps);
        let mut warnings: Vec<String> = warnings.iter().map(|it| named_by_keys(it)).collect();
        let slice = plan.slice.unwrap_or_default();
        for gpu in &mut self.gpus {
            let asked = plan.cards.iter().find(|card| card.uuid == gpu.uuid);
            let shared = slice.device(gpu.uuid).filter(|_| gpu.integrated);
            let limit = match (asked, shared) {
                (Some(card), _) => Some(card.asked),
                (None, Some(device)) => Some(device.memory.at_most(gpu.total)),
                (None, None) => None,
            };
            gpu.limits.extend(limit.map(|limit| (place, limit)));
        }
        let refused = self.refusal(&plan.cards, plan.promise, &slice);
        let overcommits = refused.is_some() && plan.overcommit;
        let (refusal, fits_with) = match (refused, plan.overcommit) {
            (Some((why, _)), true) => {
                warnings.push(format!("it starts only by overcommit: {why}"));
                (None, None)
            }
            // One limit for all GPUs takes more than the slice asks for, where some have their own.
            (Some((why, most)), false) => (Some(why), most.filter(|_| !plan.has_own_limits)),
            (None, _) => (None, None),
        };
        if refusal.is_none() {
            self.hold(name, &plan.cards, plan.promise, &slice);
        }
        let visible = facts.environment.visible.as_deref();
        SliceFit {
            refusal,
            overcommits,
            fits_with,
            warnings,
            shown: shown(&slice, &Seen::with(visible, inventory), inventory),
        }
    }

    /// Returns why a slice does not fit, and the largest limit that would.
    fn refusal(
        &self,
        cards: &[Card],
        promise: Option<Bytes>,
        slice: &Slice,
    ) -> Option<(String, Option<Bytes>)> {
        let full = cards.iter().find_map(|card| {
            let left = self.left_on(card);
            let full = || AdmissionError::Full {
                device: card.shown.clone(),
                left,
                asked: card.asked,
                holders: Holders(self.held.get(&card.uuid).cloned().unwrap_or_default()),
            };
            (card.asked > left).then(full)
        });
        if let Some(full) = full {
            let least = cards.iter().map(|card| self.left_on(card)).min();
            return Some((
                full.to_string(),
                least.filter(|left| *left >= Bytes::mib(1)),
            ));
        }
        let (budget, host) = (promise?, self.host.as_ref()?);
        let room = host.room(slice.reserve.unwrap_or(host.reserve));
        let full = admission::promise(&room, budget, false).err()?;
        let left = Some(room.left()).filter(|left| *left >= Bytes::mib(1));
        Some((full.to_string(), left))
    }

    fn left_on(&self, card: &Card) -> Bytes {
        let held = self.held.get(&card.uuid).into_iter().flatten();
        held.fold(card.total, |left, (_, memory)| left.minus(*memory))
    }

    fn hold(&mut self, name: &str, cards: &[Card], promise: Option<Bytes>, slice: &Slice) {
        for card in cards {
            // As in admission: a slice that overcommits takes nothing from those before.
            let memory = card.asked.at_most(self.left_on(card));
            let held = self.held.entry(card.uuid).or_default();
            held.push((printable(name), memory));
            let mut gpus = self.gpus.iter_mut();
            if let Some(gpu) = gpus.find(|gpu| gpu.uuid == card.uuid) {
                gpu.left = gpu.left.minus(memory);
            }
        }
        if let (Some(budget), Some(host)) = (promise, &mut self.host) {
            let room = host.room(slice.reserve.unwrap_or(host.reserve));
            let budget = budget.at_most(room.left());
            host.promised.push(Neighbour {
                name: name.to_owned(),
                budget,
                unused: budget,
            });
        }
    }
}

/// Returns what an empty slice shows of the GPU on which it shows least, among those that its
/// program sees.
fn shown(slice: &Slice, seen: &Seen<'_>, inventory: &Inventory) -> Option<MemoryView> {
    let targets = inventory
        .targets()
        .filter(|target| seen.contains(target.uuid));
    let views = targets.filter_map(|target| {
        let device = slice.device(target.uuid)?;
        let facts = view::Facts {
            driver: DriverMemory {
                total: target.total,
                free: target.total,
            },
            own_use: Some(Bytes::ZERO),
            host: None,
        };
        Some(view::view(&facts, Some(&device)))
    });
    views.min_by_key(|view| view.free)
}
