//! Prepares what a program in a slice finds: its slice file, the preload, the simulated driver.
//! Touches: the environment (read once, here and in `plan`), the private folder.

use crate::cli::tell;
use crate::inventory::Inventory;
use crate::inventory::ask::AskError;
use crate::plan::Plan;
use crate::private_dir::PrivateDir;
use crate::promise::OwnPromise;
use crate::sim::{self, Sim};
use crate::slice_options::SliceOptions;
use crate::tenancy::Tenancy;
use crate::{preload, sim_host, text};
use anyhow::Context;
use gpuslice_config::slice::Slice;
use gpuslice_config::source;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::ffi::{CStr, OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Why nothing can be prepared.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The hook has mounted a slice.
    #[error("this container already has a slice, which takes precedence: {0}")]
    Mounted(PathBuf),
    /// Two descriptions of one slice.
    #[error(
        "this program is in a slice already (GPUSLICE_CONFIG names {0}), and a slice cannot be divided: \
         leave out --memory and --device to stay in it, or leave it with `gpuslice run --bare -- \
         gpuslice run --memory ...`"
    )]
    ConfigAndLimit(PathBuf),
    /// Options of a slice in another.
    #[error(
        "this program is in a slice already (GPUSLICE_CONFIG names {0}), whose options cannot be changed: \
         leave out the options of the slice to stay in it, or leave it with `gpuslice run --bare -- \
         gpuslice run --memory ...`"
    )]
    ConfigAndOptions(PathBuf),
    /// The library is missing.
    #[error(
        "there is no libgpuslice.so in {}: install gpuslice again, or in its source tree run make",
        listed(.looked_in)
    )]
    NoLibrary {
        /// Every folder that was looked in.
        looked_in: Vec<PathBuf>,
    },
    /// The library is there, and ld.so would say so and go on without it.
    #[error("{path} cannot be preloaded: {why}")]
    Unloadable {
        /// Where it is.
        path: PathBuf,
        /// What keeps ld.so from it, and the fix.
        why: String,
    },
    /// The simulated driver is missing.
    #[error(
        "there is no simulated driver in {}: install gpuslice's simulator, or in its source tree run \
         make",
        listed(.looked_in)
    )]
    NoSimulator {
        /// Every folder that was looked in.
        looked_in: Vec<PathBuf>,
    },
    /// The scenario is missing.
    #[error("cannot read scenario {path}")]
    Scenario {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A path that a list in the environment cannot hold.
    #[error(
        "{variable} cannot name {path}: it has a space, a colon or a variable of ld.so \
         ($ORIGIN, $LIB, $PLATFORM); install gpuslice elsewhere"
    )]
    Unnameable {
        /// Which.
        path: PathBuf,
        /// Where.
        variable: &'static str,
    },
    /// A path that a slice file cannot hold.
    #[error("{0} is too long, or has a letter that a slice file cannot hold")]
    Path(PathBuf),
}

/// Folders, as a sentence names them.
fn listed(folders: &[PathBuf]) -> String {
    let names: Vec<String> = folders
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// What was prepared. The private folder lives as long as this, or, when this process becomes
/// the program, as long as the program and all that it starts.
#[derive(Debug)]
pub struct Prepared {
    /// Variables to set, or with None to remove.
    pub vars: Vec<(OsString, Option<OsString>)>,
    /// The slice; None when nothing is limited.
    pub slice: Option<Slice>,
    /// Its file.
    pub file: Option<PathBuf>,
    /// The preloaded library; None for a bare run.
    pub library: Option<PathBuf>,
    /// The GPUs, where the driver had to be asked.
    pub inventory: Option<Inventory>,
    /// What a person should be told before the program starts.
    pub warnings: Vec<String>,
    /// The messages that say where the slice does not hold.
    pub gaps: Vec<String>,
    /// Removes the folder when it goes out of use.
    pub private: Option<PrivateDir>,
    /// What the slice was promised on unified memory; taken back when this goes out of use.
    pub promise: Option<OwnPromise>,
    /// Its place on cards with memory of their own; given back when this goes out of use.
    pub tenancy: Tenancy,
    /// The simulated machine's meminfo, where its GPUs share the host's memory.
    pub meminfo: Option<PathBuf>,
}

impl Prepared {
    /// Gives a child what was prepared.
    pub fn apply(&self, command: &mut Command) {
        for (name, value) in &self.vars {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// Shows this process, and all that it starts from now on, the simulated machine's
    /// `/proc/meminfo`.
    ///
    /// # Errors
    /// When it cannot be mounted although this process may mount.
    pub fn enter(&self) -> Result<(), sim_host::SimHostError> {
        self.meminfo.as_deref().map_or(Ok(()), sim_host::show)
    }

    /// This process's environment with what was prepared, for `exec`.
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

/// The slice that the hook has mounted, where there is one.
#[must_use]
pub fn mounted_slice() -> Option<PathBuf> {
    let places = [source::MOUNTED_SLICE, source::MOUNTED_IN_DEV];
    places.map(path_of).into_iter().find(|path| path.exists())
}

/// The slice file that the environment names.
#[must_use]
pub fn named_slice() -> Option<PathBuf> {
    let named = env::var_os(name_of(source::CONFIG));
    named.filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Why programs of this container run without its slice, as the OCI hook has written it: the file and
/// its text.
#[must_use]
pub fn no_slice() -> Option<(PathBuf, String)> {
    let places = [source::MOUNTED_SLICE, source::MOUNTED_IN_DEV];
    places.map(path_of).into_iter().find_map(|slice| {
        let path = slice.with_file_name(source::NO_SLICE);
        let is_file = fs::metadata(&path).is_ok_and(|facts| facts.is_file());
        let file = is_file.then(|| fs::File::open(&path).ok())??;
        let mut why = String::new();
        file.take(LONGEST_REASON).read_to_string(&mut why).ok()?;
        Some((path, text::printable(why.trim_end())))
    })
}

/// How much is read of a reason: a sentence.
const LONGEST_REASON: u64 = 4096;

/// A variable to set, or with None to remove.
type Var = (OsString, Option<OsString>);

/// Prepares what `options` ask for.
///
/// # Errors
/// When something is missing, wrong, or contradicts what is there.
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
    let mut vars: Vec<Var> = vec![(name_of(source::CONFIG), config), preload];
    if let (Some(state), Some(_)) = (state, &sim) {
        vars.push((sim::STATE.into(), Some(state.into())));
    }
    vars.extend(
        sim_vars
            .into_iter()
            .map(|(name, value)| (name, Some(value))),
    );
    // The file may become unreadable while programs still start: for another user, for instance.
    let slice = plan.slice.map(|slice| slice.to_json_line().into());
    vars.push((name_of(source::SLICE), slice));
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

/// A machine that does not exist has no driver either: the simulator says what is wrong with it.
fn explain(error: anyhow::Error, options: &SliceOptions) -> anyhow::Error {
    match (&options.sim, error.is::<AskError>()) {
        (Some(machine), true) => crate::devices::simulated(machine).err().unwrap_or(error),
        _ => error,
    }
}

fn folder_of_executable() -> anyhow::Result<PathBuf> {
    let executable = env::current_exe().context("cannot find out where gpuslice is")?;
    Ok(executable.parent().unwrap_or(&executable).to_owned())
}

/// The state folder that the caller shares between runs, on a simulated machine.
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

/// The variable that preloads the library, and the library.
fn preload_var(
    options: &SliceOptions,
    beside: &Path,
) -> Result<(Var, Option<PathBuf>), EnvironmentError> {
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

/// The log's file is named absolutely: the program may change its folder.
fn log_vars(options: &SliceOptions) -> anyhow::Result<Vec<Var>> {
    let mut vars = Vec::new();
    if let Some(level) = &options.log {
        vars.push((name_of(source::LOG), Some(level.into())));
    }
    if let Some(file) = &options.log_file {
        let path = std::path::absolute(file);
        let path = path.with_context(|| format!("cannot use log file {}", file.display()))?;
        // The library says nothing where it cannot: its program's standard error is not for that.
        if let Err(error) = can_be_written(&path) {
            let path = path.display();
            tell(&format!(
                "warning: nothing will be logged in {path}: {}",
                error.desc()
            ));
        }
        vars.push((name_of(source::LOG_FILE), Some(path.into())));
        // Who names a file wants to find something in it.
        if options.log.is_none() && env::var_os(name_of(source::LOG)).is_none() {
            vars.push((name_of(source::LOG), Some("warn".into())));
        }
    }
    Ok(vars)
}

/// Whether a file can be appended to, or made where there is none.
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

fn path_of(name: &CStr) -> PathBuf {
    OsStr::from_bytes(name.to_bytes()).into()
}

fn name_of(variable: &CStr) -> OsString {
    OsStr::from_bytes(variable.to_bytes()).to_owned()
}
