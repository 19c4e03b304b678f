//! Prepares a program's environment in a slice: the slice file, the preload and the simulated
//! driver.
//! Touches: the environment (read once, here and in `plan`), the private folder.

use crate::base::streams::tell;
use crate::driver::ask::AskError;
use crate::driver::inventory::Inventory;
use crate::driver::preload::PreloadError;
use crate::driver::sim::{self, Sim};
use crate::driver::{preload, sim_host};
use crate::launch::plan::Plan;
use crate::runs::private_dir::PrivateDir;
use crate::runs::promise::OwnPromise;
use crate::runs::tenancy::Tenancy;
use crate::slice::options::SliceOptions;
use anyhow::Context;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::paths;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The prepared slice and environment. Dropping it removes the private folder. If this process
/// becomes the program, the folder lasts until the program and all processes it started have ended.
#[derive(Debug)]
pub struct Prepared {
    /// Variables to set; a variable with the value None is to be removed.
    pub vars: Vec<(OsString, Option<OsString>)>,
    /// The slice; None if no device is limited.
    pub slice: Option<Slice>,
    /// The slice file.
    pub file: Option<PathBuf>,
    /// The preloaded library; None for a bare run.
    pub library: Option<PathBuf>,
    /// The GPUs, if the driver had to be queried.
    pub inventory: Option<Inventory>,
    /// Warnings for the user, reported before the program starts.
    pub warnings: Vec<String>,
    /// Messages about programs or GPUs that the slice does not limit.
    pub gaps: Vec<String>,
    /// The private folder; dropping it removes the folder.
    pub private: Option<PrivateDir>,
    /// The slice's promise on unified memory; dropping it withdraws the promise.
    pub promise: Option<OwnPromise>,
    /// The slice's place on GPUs with memory of their own; dropping it gives the place back.
    pub tenancy: Tenancy,
    /// The simulated machine's meminfo file, if its GPUs share the host's memory.
    pub meminfo: Option<PathBuf>,
}

impl Prepared {
    /// Applies the prepared variables to a child command.
    pub fn apply(&self, command: &mut Command) {
        for (name, value) in &self.vars {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// Mounts the simulated machine's `/proc/meminfo` for this process and for every process it
    /// starts from now on.
    ///
    /// # Errors
    /// When the file cannot be mounted although this process has permission to mount.
    pub fn enter(&self) -> Result<(), sim_host::SimHostError> {
        self.meminfo.as_deref().map_or(Ok(()), sim_host::show)
    }

    /// Returns this process's environment with the prepared variables applied, for `exec`.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
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

/// A variable to set; with None, a variable to remove.
type Var = (OsString, Option<OsString>);

/// Prepares the slice and the environment that `options` ask for.
///
/// # Errors
/// When something is missing or wrong, or contradicts the existing environment.
pub fn prepare(options: &SliceOptions) -> anyhow::Result<Prepared> {
    let beside = folder_of_executable()?;
    let (preload, library) = preload_var(options, &beside)?;
    let sim = options.sim.as_deref();
    let sim = sim.map(|name| Sim::find(name, &beside)).transpose()?;
    let library_path = env::var_os(sim::LIBRARY_PATH);
    let sim_vars = sim.as_ref().map(|sim| sim.vars(library_path.as_deref()));
    let sim_vars = sim_vars.unwrap_or_default();

    let plan = Plan::make(options, &sim_vars);
    let mut plan = plan.map_err(|error| explain(error, options))?;
    let state = state_in_environment(sim.is_some())?;
    let mut private = (plan.writes_file() || (sim.is_some() && state.is_none()))
        .then(|| PrivateDir::create().context("cannot make a private folder"))
        .transpose()?;
    let folder = private.as_ref().map(PrivateDir::path);
    let state = state.or_else(|| sim.is_some().then(|| Some(folder?.join("sim")))?);
    let meminfo = match (&sim, &state) {
        (Some(sim), Some(state)) => {
            fs::create_dir_all(state)
                .with_context(|| format!("cannot make {} ({})", state.display(), sim::STATE))?;
            sim_host::start(&sim.driver, &sim.machine, state)?
        }
        _ => None,
    };
    let watcher = private.as_ref().and_then(PrivateDir::watcher);
    let promise = plan.promise(state.as_deref(), meminfo.as_deref(), watcher)?;
    let tenancy = plan.claim(state.as_deref(), watcher)?;
    let file = plan.finish(
        private.as_mut(),
        meminfo.as_deref(),
        promise.as_ref(),
        &tenancy,
    )?;

    let config = file.clone().map(OsString::from);
    let mut vars: Vec<Var> = vec![(name_of(paths::CONFIG), config), preload];
    if let (Some(state), Some(_)) = (state, &sim) {
        vars.push((sim::STATE.into(), Some(state.into())));
    }
    vars.extend(
        sim_vars
            .into_iter()
            .map(|(name, value)| (name, Some(value))),
    );
    // The slice file may become unreadable while programs still start, for instance after a change
    // of user. The variable carries its contents for that case.
    let slice = plan.slice.map(|slice| slice.to_json_line().into());
    vars.push((name_of(paths::SLICE), slice));
    vars.extend(log_vars(options)?);
    Ok(Prepared {
        vars,
        slice: plan.slice,
        file,
        library,
        inventory: plan.inventory,
        warnings: plan.warnings,
        gaps: plan.gaps,
        private,
        promise,
        tenancy,
        meminfo,
    })
}

/// Starts a simulated machine.
///
/// # Errors
/// When the machine does not exist, which is a different error from a driver that does not work.
pub fn simulated(machine: &str) -> anyhow::Result<Prepared> {
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

fn folder_of_executable() -> anyhow::Result<PathBuf> {
    let executable = env::current_exe().context("cannot find out where gpuslice is")?;
    Ok(executable.parent().unwrap_or(&executable).to_owned())
}

/// Returns the state folder of a simulated machine that the caller shares between runs, if set.
fn state_in_environment(simulated: bool) -> anyhow::Result<Option<PathBuf>> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if !simulated && set(sim::SIM).is_none() {
        return Ok(None);
    }
    let state = set(sim::STATE).map(std::path::absolute);
    state
        .transpose()
        .with_context(|| format!("cannot use {}", sim::STATE))
}

/// Returns the LD_PRELOAD variable, and the library it preloads.
fn preload_var(
    options: &SliceOptions,
    beside: &Path,
) -> Result<(Var, Option<PathBuf>), PreloadError> {
    const PRELOAD: &str = "LD_PRELOAD";
    let existing = env::var_os(PRELOAD);
    if options.bare {
        let value = existing.and_then(|existing| preload::without_library(&existing));
        return Ok(((PRELOAD.into(), value), None));
    }
    let library = preload::find(beside)?;
    let value = preload::with_library(existing.as_deref(), &library);
    Ok(((PRELOAD.into(), Some(value)), Some(library)))
}

/// Returns the variables of the log. The log file's path is absolute because the program may change
/// its working folder.
fn log_vars(options: &SliceOptions) -> anyhow::Result<Vec<Var>> {
    let mut vars = Vec::new();
    if let Some(level) = &options.log {
        vars.push((name_of(paths::LOG), Some(level.into())));
    }
    if let Some(file) = &options.log_file {
        let path = std::path::absolute(file);
        let path = path.with_context(|| format!("cannot use log file {}", file.display()))?;
        // The library cannot report this later: it must not write to its program's standard error.
        if let Err(error) = can_be_written(&path) {
            let path = path.display();
            tell(&format!(
                "warning: nothing will be logged in {path}: {}",
                error.desc()
            ));
        }
        vars.push((name_of(paths::LOG_FILE), Some(path.into())));
        // A user who names a log file expects entries in it, so the level defaults to `warn`.
        if options.log.is_none() && env::var_os(name_of(paths::LOG)).is_none() {
            vars.push((name_of(paths::LOG), Some("warn".into())));
        }
    }
    Ok(vars)
}

/// Checks that a file can be appended to, or created if it does not exist.
fn can_be_written(path: &Path) -> Result<(), Errno> {
    if path.is_dir() {
        return Err(Errno::EISDIR);
    }
    match access(path, AccessFlags::W_OK) {
        Err(Errno::ENOENT) => {
            let folder = path.parent().unwrap_or(path);
            access(folder, AccessFlags::W_OK | AccessFlags::X_OK)
        }
        found => found,
    }
}

fn name_of(variable: &CStr) -> OsString {
    OsStr::from_bytes(variable.to_bytes()).to_owned()
}
