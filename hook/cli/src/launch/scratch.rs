//! The simulated machine of a command that only previews: it runs in a temporary folder.
//! Touches: that folder; the simulator's tool.

use crate::driver::ask::AskError;
use crate::driver::sim::{self, Sim};
use crate::driver::sim_host;
use crate::launch::facts::Facts;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The folders of a simulated machine. Dropping it removes the temporary one.
pub(crate) struct Scratch {
    folder: Option<TempDir>,
    /// The folder of a machine that runs already: it is queried there.
    running: Option<PathBuf>,
}

impl Scratch {
    /// Makes the temporary folder, if the options name a simulated machine.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new(is_simulated: bool) -> anyhow::Result<Scratch> {
        let folder = is_simulated.then(TempDir::new).transpose();
        let folder = folder.context("cannot make a temporary folder")?;
        let running = std::env::var_os(sim::STATE).map(PathBuf::from);
        let is_started =
            |state: &PathBuf| fs::read_dir(state).is_ok_and(|mut it| it.next().is_some());
        let running = running.filter(|state| folder.is_some() && is_started(state));
        Ok(Scratch { folder, running })
    }

    /// Returns the temporary folder.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// Returns the state folder in which the simulated driver is queried.
    pub(crate) fn state(&self) -> Option<&Path> {
        self.running.as_deref().or(self.folder())
    }

    /// Returns the folder of the records of slices.
    pub(crate) fn records<'a>(&'a self, facts: &'a Facts) -> Option<&'a Path> {
        facts.state.as_deref().or(self.folder())
    }

    /// Returns the meminfo of the simulated machine, if its GPUs share the host's memory. Starts the
    /// machine in the temporary folder unless it runs already.
    ///
    /// # Errors
    /// When the machine cannot be started.
    pub(crate) fn meminfo(&self, facts: &Facts) -> anyhow::Result<Option<PathBuf>> {
        let (Some(sim), Some(folder)) = (&facts.sim, self.folder()) else {
            return Ok(None);
        };
        let running = self.running.as_ref().map(|state| state.join("meminfo"));
        match running.filter(|meminfo| meminfo.exists()) {
            Some(meminfo) => Ok(Some(meminfo)),
            None => Ok(sim_host::start(&sim.driver, &sim.machine, folder)?),
        }
    }

    /// Replaces a driver error by the simulator's own message if the simulated machine does not
    /// exist.
    pub(crate) fn explain(&self, error: anyhow::Error, machine: Option<&str>) -> anyhow::Error {
        let (Some(machine), Some(folder), true) = (machine, self.folder(), error.is::<AskError>())
        else {
            return error;
        };
        let beside = std::env::current_exe().unwrap_or_default();
        let beside = beside.parent().unwrap_or(&beside);
        let Ok(sim) = Sim::find(machine, beside) else {
            return error;
        };
        let started = sim_host::start(&sim.driver, &sim.machine, folder);
        started.err().map_or(error, Into::into)
    }
}
