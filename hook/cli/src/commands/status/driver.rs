//! Queries the memory that NVML reports for each process, to compare it with the ledgers.
//! Touches: a child process that queries NVML; environments of processes of this user.
//! Law: a driver that does not answer delays the status by three seconds, at most once in 30
//! seconds. The status is printed even then.

use super::process::{Processes, variable};
use super::users::User;
use crate::driver::ask;
use crate::driver::processes::{DriverProcess, DriverProcesses};
use crate::driver::sim::{self, Sim};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::{Duration, Instant};

/// The longest wait for a driver's answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time before a driver that did not answer is queried again.
const PAUSE: Duration = Duration::from_secs(30);
/// The most machines queried for one status: this one, and simulated ones.
const MACHINES: usize = 8;

/// A machine with GPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Machine {
    /// This machine.
    Real,
    /// A machine that a run of this user simulates.
    Simulated {
        /// The simulated machine's name.
        name: OsString,
        /// The folder of its state.
        state: OsString,
    },
}

impl Machine {
    /// Determines a run's machine from the environment of its command.
    pub(super) fn of(pid: Option<u32>, processes: &Processes) -> Machine {
        let simulated = || {
            let pid = pid.filter(|pid| processes.user(*pid) == Some(User::own()))?;
            let value = |name: &str| {
                let value = variable(pid, format!("{name}=").as_bytes())?;
                Some(OsString::from_vec(value))
            };
            let (name, state) = (value(sim::SIM)?, value(sim::STATE)?);
            Some(Machine::Simulated { name, state })
        };
        simulated().unwrap_or(Machine::Real)
    }

    /// Returns the environment variables with which a child queries the machine. The machine's name
    /// is looked up in the simulator of this installation.
    fn variables(&self) -> Option<Vec<(OsString, OsString)>> {
        let Machine::Simulated { name, state } = self else {
            return Some(Vec::new());
        };
        let own = std::env::current_exe().ok()?;
        let simulated = Sim::find(name.to_str()?, own.parent()?).ok()?;
        let mut variables = simulated.vars(None);
        variables.push((sim::STATE.into(), state.clone()));
        Some(variables)
    }

    fn ask(&self) -> Option<DriverProcesses> {
        let question = [OsStr::from_bytes(b"driver-processes")];
        let why = "querying the driver for its processes";
        let variables = self.variables()?;
        let answer =
            ask::child_within::<Option<DriverProcesses>>(&question, &variables, why, PATIENCE);
        answer.ok().flatten()
    }
}

/// The drivers' answers, kept over all refreshes of `--watch`.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    silent: BTreeMap<Machine, Instant>,
    answers: BTreeMap<Machine, DriverProcesses>,
}

impl Drivers {
    /// Queries each of these machines.
    pub(super) fn look(&mut self, machines: BTreeSet<Machine>) {
        self.answers.clear();
        self.silent.retain(|_, since| since.elapsed() < PAUSE);
        for machine in machines.into_iter().take(MACHINES) {
            if self.silent.contains_key(&machine) {
                continue;
            }
            match machine.ask() {
                Some(answer) => self.answers.insert(machine, answer).map_or((), drop),
                None => self.silent.insert(machine, Instant::now()).map_or((), drop),
            }
        }
    }

    /// Returns the processes on a GPU of a machine; empty if NVML does not report them.
    pub(super) fn processes(&self, machine: &Machine, uuid: &str) -> &[DriverProcess] {
        let answer = self.answers.get(machine);
        let listed = answer.and_then(|answer| answer.get(uuid));
        listed.map_or(&[], Vec::as_slice)
    }
}
