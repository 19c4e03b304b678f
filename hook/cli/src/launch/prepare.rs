//! Prepares a program's environment in a slice: the slice file, the preload and the simulated
//! driver.
//! Touches: everything that `facts` and `apply` touch.

use crate::base::streams::tell;
use crate::driver::ask::AskError;
use crate::driver::sim_host;
use crate::launch::apply::apply;
use crate::launch::facts::Facts;
use crate::launch::meminfo;
use crate::launch::plan::Plan;
use crate::runs::leaf::Leaf;
use crate::runs::private_dir::PrivateDir;
use crate::runs::promise::OwnPromise;
use crate::runs::recording::LimitedDevice;
use crate::runs::tenancy::Tenancy;
use crate::slice::options::SliceOptions;
use gpuslice_config::slice::Slice;
use gpuslice_host::machine::process::ProcessId;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The prepared slice and environment. Dropping it removes the private folder. If this process
/// becomes the program, the folder lasts until the program and all processes it started have ended.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Variables to set; a variable with the value None is to be removed.
    pub vars: Vec<(OsString, Option<OsString>)>,
    /// The slice; None if no device is limited.
    pub slice: Option<Slice>,
    /// The slice file.
    pub file: Option<PathBuf>,
    /// The preloaded library; None for a bare run.
    pub library: Option<PathBuf>,
    /// Warnings for the user, reported before the program starts.
    pub warnings: Vec<String>,
    /// Messages about programs or GPUs that the slice does not limit.
    pub gaps: Vec<String>,
    /// The private folder; dropping it removes the folder.
    pub private: Option<PrivateDir>,
    /// The slice's promise on unified memory; dropping it withdraws the promise.
    #[expect(dead_code, reason = "it is kept for its destructor")]
    pub promise: Option<OwnPromise>,
    /// The slice's place on GPUs with memory of their own; dropping it gives the place back.
    #[expect(dead_code, reason = "it is kept for its destructor")]
    pub tenancy: Tenancy,
    /// The run's cgroup, for which the driver enforces the limit; dropping it removes it.
    pub leaf: Option<Leaf>,
    /// The devices with the slice's limits, for the record of the run.
    pub devices: Vec<LimitedDevice>,
    /// Whether the GPUs are simulated.
    pub simulated: bool,
    /// The simulated machine's meminfo file, if its GPUs share the host's memory.
    pub meminfo: Option<PathBuf>,
    /// The slice's meminfo page, if it is mounted for the programs of the run.
    pub page: Option<PathBuf>,
}

impl Prepared {
    /// Mounts the slice's meminfo page, or else the simulated machine's meminfo, at `/proc/meminfo`
    /// for this process and for every process it starts from now on.
    ///
    /// # Errors
    /// When the file cannot be mounted although this process has permission to mount.
    pub(crate) fn enter(&self) -> anyhow::Result<()> {
        match (&self.page, &self.meminfo) {
            (Some(page), _) => Ok(meminfo::show(page)?),
            (None, Some(meminfo)) => Ok(sim_host::show(meminfo)?),
            (None, None) => Ok(()),
        }
    }

    /// Returns this process's environment with the prepared variables applied, for `exec`.
    #[must_use]
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let changed = |name: &OsStr| self.vars.iter().any(|(other, _)| other == name);
        let set = self
            .vars
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        env::vars_os()
            .filter(|(name, _)| !changed(name))
            .chain(set)
            .collect()
    }
}

/// Prepares the slice and the environment that `options` ask for.
///
/// # Errors
/// When something is missing or wrong, or contradicts the existing environment.
pub(crate) fn prepare(options: &SliceOptions) -> anyhow::Result<Prepared> {
    prepare_for(None, options)
}

/// Like [`prepare`], for a slice that lasts until another process has ended.
///
/// # Errors
/// As for [`prepare`].
pub(crate) fn prepare_for(
    owner: Option<ProcessId>,
    options: &SliceOptions,
) -> anyhow::Result<Prepared> {
    let facts = Facts::gather(options, None).map_err(|error| explain(error, options))?;
    let facts = Facts { owner, ..facts };
    let plan = Plan::make(options, &facts)?;
    let log_warning = plan.log_warning.clone();
    let prepared = apply(plan, facts)?;
    // The library cannot report this later: it must not write to its program's standard error.
    if let Some(warning) = log_warning {
        tell(&format!("warning: {warning}"));
    }
    Ok(prepared)
}

/// Starts a simulated machine.
///
/// # Errors
/// When the machine does not exist, which is a different error from a driver that does not work.
pub(crate) fn simulated(machine: &str) -> anyhow::Result<Prepared> {
    prepare(&SliceOptions {
        sim: Some(machine.to_owned()),
        bare: true,
        ..SliceOptions::default()
    })
}

/// Replaces a driver error by the simulator's own message if the simulated machine does not exist.
fn explain(error: anyhow::Error, options: &SliceOptions) -> anyhow::Error {
    match (&options.sim, error.is::<AskError>()) {
        (Some(machine), true) => simulated(machine).err().unwrap_or(error),
        _ => error,
    }
}
