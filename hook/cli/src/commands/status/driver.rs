//! Queries the memory that NVML reports for each GPU and each process, to compare it with the
//! ledgers.
//! Touches: a child process that queries NVML and CUDA; environments of processes.
//! Law: the drivers are queried at once, while this process reads what the answers do not change. A
//! driver that does not answer costs one wait of three seconds in half a minute. The status is
//! printed even then. CUDA is asked once: the GPUs of a machine and their sizes do not change.

use super::process::{Environment, Processes};
use crate::driver::ask::{self, AskError};
use crate::driver::inventory::Inventory;
use crate::driver::processes::{DriverAnswer, DriverCard, DriverProcess};
use crate::driver::sim::{self, Sim};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest wait for a driver's answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time before a driver that did not answer is queried again.
const PAUSE: Duration = Duration::from_secs(30);
/// The most machines queried for one status: this one, and simulated ones.
const MACHINES: usize = 8;

/// A machine with GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Machine {
    /// This machine; for a program of `gpuslice run --sim`, the machine on which it runs.
    #[default]
    Real,
    /// A machine that a run simulates.
    Simulated {
        /// The simulated machine's name.
        name: OsString,
        /// The folder of its state.
        state: OsString,
    },
}

/// null for this machine; an object with name and state for a simulated one.
impl Serialize for Machine {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let Machine::Simulated { name, state } = self else {
            return out.serialize_none();
        };
        let mut map = out.serialize_map(Some(2))?;
        map.serialize_entry("simulated", &name.to_string_lossy())?;
        map.serialize_entry("state", &state.to_string_lossy())?;
        map.end()
    }
}

/// The place of a run's variables.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run<'a> {
    /// The environment of the command's process.
    Command(u32),
    /// A file of `gpuslice env`.
    Printed(&'a Path),
}

impl Machine {
    /// Determines the machine of a run from the environment of its command, or from the variables
    /// that `gpuslice env` has printed.
    pub(super) fn of(run: Run<'_>, processes: &Processes) -> Machine {
        let simulated = || {
            let environment = match run {
                Run::Command(pid) => processes.environment(pid)?,
                Run::Printed(file) => Rc::new(Environment::read(file)?),
            };
            let value = |name: &str| Some(OsString::from_vec(environment.get(name)?.to_vec()));
            let (name, state) = (value(sim::SIM)?, value(sim::STATE)?);
            // From inside, the simulated machine is this machine.
            let is_ours = std::env::var_os(sim::SIM).as_ref() == Some(&name)
                && std::env::var_os(sim::STATE).as_ref() == Some(&state)
                && sim::of_environment().is_some();
            (!is_ours).then_some(Machine::Simulated { name, state })
        };
        simulated().unwrap_or_default()
    }

    /// Returns the simulated machine of that name whose state is in the folder that the environment
    /// names, if any.
    pub(crate) fn named(name: &str) -> Option<Machine> {
        let state = std::env::var_os(sim::STATE).filter(|value| !value.is_empty())?;
        let own = std::env::current_exe().ok()?;
        let found = Sim::find(name, own.parent()?).ok()?;
        let state = std::path::absolute(state).ok()?.into_os_string();
        let name = found.machine;
        Some(Machine::Simulated { name, state })
    }

    /// Returns the folder of a simulated machine's state. From inside, the environment names it.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        match self {
            Machine::Real => {
                let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
                named(sim::SIM).and(named(sim::STATE)).map(PathBuf::from)
            }
            Machine::Simulated { state, .. } => Some(PathBuf::from(state)),
        }
    }

    /// Returns the environment variables with which a child queries the machine. The machine's name
    /// is looked up in the simulator of this installation.
    pub(crate) fn variables(&self) -> Option<Vec<(OsString, OsString)>> {
        let Machine::Simulated { name, state } = self else {
            return Some(Vec::new());
        };
        let own = std::env::current_exe().ok()?;
        let simulated = Sim::find(name.to_str()?, own.parent()?).ok()?;
        let mut variables = simulated.vars(None);
        variables.push((sim::STATE.into(), state.clone()));
        Some(variables)
    }

    fn ask(&self, with_inventory: bool) -> Result<ask::Asked, Option<AskError>> {
        let question =
            ["driver-processes", "--inventory"].map(|word| OsStr::from_bytes(word.as_bytes()));
        let count = if with_inventory { 2 } else { 1 };
        let variables = self.variables().ok_or(None)?;
        let question = question.get(..count).unwrap_or_default();
        ask::Asked::start(question, &variables).map_err(Some)
    }
}

/// A machine whose driver is being queried.
#[derive(Debug)]
pub(super) struct AskedMachine {
    machine: Machine,
    asks_cuda: bool,
    asked: Result<ask::Asked, Option<AskError>>,
}

/// A driver that did not answer.
#[derive(Debug)]
struct Silent {
    since: Instant,
    why: Option<String>,
}

/// The memory and processes of a GPU or MIG instance, as the driver reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) uuid: String,
    pub(super) index: u32,
    pub(super) name: String,
    /// CUDA's total; NVML's without the reserved memory if CUDA was not asked or does not answer.
    pub(super) total: Option<u64>,
    /// The memory in use by NVML.
    pub(super) used: Option<u64>,
    /// Whether it shares the host's memory; None if CUDA was not asked or does not answer.
    pub(super) unified: Option<bool>,
}

/// The drivers' answers, kept over all refreshes of `--watch`.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    silent: BTreeMap<Machine, Silent>,
    answers: BTreeMap<Machine, Vec<DriverCard>>,
    inventories: BTreeMap<Machine, AskedCuda>,
}

/// CUDA's answer for a machine.
#[derive(Debug)]
struct AskedCuda {
    /// None if CUDA does not work there, or not yet: at boot the driver may still be loading.
    inventory: Option<Inventory>,
    at: Instant,
}

impl AskedCuda {
    fn is_due(&self) -> bool {
        self.inventory.is_none() && self.at.elapsed() >= PAUSE
    }
}

impl Drivers {
    /// Starts to query each of these machines.
    pub(super) fn ask(&mut self, machines: BTreeSet<Machine>) -> Vec<AskedMachine> {
        self.silent
            .retain(|_, silent| silent.since.elapsed() < PAUSE);
        let machines = machines.into_iter().take(MACHINES);
        let machines = machines.filter(|machine| !self.silent.contains_key(machine));
        let ask = |machine: Machine| {
            let known = self.inventories.get(&machine);
            let asks_cuda = known.is_none_or(AskedCuda::is_due);
            AskedMachine {
                asked: machine.ask(asks_cuda),
                asks_cuda,
                machine,
            }
        };
        machines.map(ask).collect()
    }

    /// Waits for the answers.
    pub(super) fn hear(&mut self, asked: Vec<AskedMachine>) {
        self.answers.clear();
        for AskedMachine {
            machine,
            asks_cuda,
            asked,
        } in asked
        {
            let why = "querying the driver for its GPUs and processes";
            let answer = asked.and_then(|asked| asked.answer(why, PATIENCE).map_err(Some));
            match answer {
                Ok(answer) => self.keep(machine, answer, asks_cuda),
                Err(error) => {
                    let silent = Silent {
                        since: Instant::now(),
                        why: error.map(|error| error.to_string()),
                    };
                    self.silent.insert(machine, silent);
                }
            }
        }
    }

    fn keep(&mut self, machine: Machine, answer: DriverAnswer, asked_cuda: bool) {
        let cards = answer.cards.unwrap_or_default();
        if asked_cuda {
            let asked = AskedCuda {
                inventory: answer.inventory,
                at: Instant::now(),
            };
            self.inventories.insert(machine.clone(), asked);
        } else if let Some(known) = self.inventory(&machine) {
            let is_known = |card: &DriverCard| {
                let mut targets = known.targets();
                card.divided || targets.any(|target| target.uuid.to_string() == card.uuid)
            };
            // A GPU was added or divided by MIG: CUDA is asked again at the next refresh.
            if !cards.iter().all(is_known) {
                self.inventories.remove(&machine);
            }
        }
        self.answers.insert(machine, cards);
    }

    /// Returns the processes on a GPU of a machine; empty if NVML does not report them.
    pub(super) fn processes(&self, machine: &Machine, uuid: &str) -> &[DriverProcess] {
        let mut cards = self.answers.get(machine).into_iter().flatten();
        let card = cards.find(|card| card.uuid == uuid);
        let listed = card.and_then(|card| card.processes.as_deref());
        listed.unwrap_or_default()
    }

    /// Returns the GPUs of a machine that CUDA reports; None if CUDA does not answer.
    pub(super) fn inventory(&self, machine: &Machine) -> Option<&Inventory> {
        self.inventories.get(machine)?.inventory.as_ref()
    }

    /// Returns the reasons why drivers were given up.
    pub(super) fn failures(&self) -> impl Iterator<Item = &str> {
        self.silent
            .values()
            .filter_map(|silent| silent.why.as_deref())
    }

    /// Returns the machines that answered.
    pub(super) fn machines(&self) -> BTreeSet<&Machine> {
        let known = self.inventories.iter();
        let known = known.filter_map(|(machine, known)| known.inventory.as_ref().map(|_| machine));
        self.answers.keys().chain(known).collect()
    }

    /// Returns the devices of a machine from which programs allocate: GPUs, and MIG instances in
    /// place of the GPUs that MIG divides.
    pub(super) fn cards(&self, machine: &Machine) -> Vec<Card> {
        let inventory = self.inventory(machine);
        let targets = || inventory.into_iter().flat_map(Inventory::targets);
        let answers = self.answers.get(machine).into_iter().flatten();
        let answers = answers.filter(|card| !card.divided);
        let mut cards: Vec<Card> = answers
            .map(|card| {
                let known = targets().find(|target| target.uuid.to_string() == card.uuid);
                let memory = card.memory;
                Card {
                    uuid: card.uuid.clone(),
                    index: card.index,
                    name: card.name.clone(),
                    total: known
                        .map(|known| known.total.get())
                        .filter(|total| *total > 0)
                        .or(memory.map(|memory| memory.total)),
                    used: memory.map(|memory| memory.used),
                    unified: known.map(|known| known.integrated),
                }
            })
            .collect();
        for target in targets() {
            let uuid = target.uuid.to_string();
            if cards.iter().all(|card| card.uuid != uuid) {
                cards.push(Card {
                    uuid,
                    index: target.device.index,
                    name: target.device.name.clone(),
                    total: Some(target.total.get()).filter(|total| *total > 0),
                    used: None,
                    unified: Some(target.integrated),
                });
            }
        }
        cards.sort_by_key(|card| card.index);
        cards
    }
}
