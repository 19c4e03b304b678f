//! Gathers the facts on which the plan of a run is based.
//! Touches: the environment, the slice file and the stored headroom, the driver (in a child).
//! Law: nothing is written.

use crate::driver::ask::{self, AskError};
use crate::driver::cuda::CudaError;
use crate::driver::inventory::Inventory;
use crate::driver::preload;
use crate::driver::sim::{self, Sim};
use crate::runs::headroom_store;
use crate::slice::budget::Headrooms;
use crate::slice::current::{self as current_slice, InSliceError};
use crate::slice::file as slice_file;
use crate::slice::options::{Headroom, SliceOptions};
use crate::slice::visible_gpus;
use anyhow::Context;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::paths;
use gpuslice_host::base::library::{Misfit, Statement};
use gpuslice_host::machine::process::ProcessId;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The facts. A plan depends on these and on the options only.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) source: Source,
    /// The GPUs; None if the driver was not queried, because nothing is limited.
    pub(crate) inventory: Option<Inventory>,
    /// The headroom learned from earlier runs of this name, or the reason why it cannot be read.
    pub(crate) learned: Result<Headrooms, String>,
    pub(crate) environment: Environment,
    /// The preload library; None for a bare run.
    pub(crate) library: Option<PathBuf>,
    /// What the library states about its release; None for a bare run.
    pub(crate) stated: Option<Result<Statement, Misfit>>,
    /// The simulated machine that the options name.
    pub(crate) sim: Option<Sim>,
    /// The folder of a simulated machine's state that the environment names.
    pub(crate) state: Option<PathBuf>,
    pub(crate) log_file: Option<LogFile>,
    /// The default name of the slice, if the options give none.
    pub(crate) own_name: String,
    /// The process whose end ends the slice; None for this process, which becomes the command.
    pub(crate) owner: Option<ProcessId>,
    /// Whether root starts the run.
    pub(crate) is_root: bool,
}

/// The description of the slice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// No device is limited.
    Unlimited,
    /// The options describe the slice.
    Options,
    /// A file describes it.
    File {
        /// The absolute path.
        path: PathBuf,
        slice: Box<Slice>,
    },
}

/// The variables of the caller's environment on which a plan depends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// LD_PRELOAD.
    pub(crate) preload: Option<OsString>,
    /// LD_LIBRARY_PATH.
    pub(crate) library_path: Option<OsString>,
    /// CUDA_VISIBLE_DEVICES.
    pub(crate) visible: Option<String>,
    /// Whether GPUSLICE_LOG is set.
    pub(crate) sets_log: bool,
    /// Whether GPUSLICE_SIM names a simulated machine.
    pub(crate) is_simulated: bool,
    /// Whether XDG_STATE_HOME is set.
    pub(crate) sets_state_home: bool,
}

/// The log file that the options name.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    /// The absolute path: the program may change its working folder.
    pub(crate) path: PathBuf,
    /// The reason why nothing can be logged in it, if there is one.
    pub(crate) fault: Option<Errno>,
}

/// The reason for querying the driver before a program starts, as error messages give it.
const NEEDED: &str = "a limit needs its list of GPUs, so nothing starts before it answers";

/// No driver was found. The hint is for a user without a GPU who tries the first example.
#[derive(Debug, thiserror::Error)]
#[error("{0}; --sim rtx3090 runs on a simulated GPU")]
pub(crate) struct NoDriver(String);

impl Facts {
    /// Gathers the facts. `sim_state` is the state folder in which a simulated driver is queried;
    /// without it, the driver uses the folder that the environment names.
    ///
    /// # Errors
    /// When the library or the simulator is missing, the slice file cannot be read, the driver does
    /// not answer, or the options contradict the slice that this process is in.
    pub(crate) fn gather(
        options: &SliceOptions,
        sim_state: Option<&Path>,
    ) -> anyhow::Result<Facts> {
        Facts::gather_of(source(options)?, options, sim_state)
    }

    /// Gathers the facts for a slice with this description.
    ///
    /// # Errors
    /// As [`Facts::gather`].
    pub(crate) fn gather_of(
        source: Source,
        options: &SliceOptions,
        sim_state: Option<&Path>,
    ) -> anyhow::Result<Facts> {
        let beside = folder_of_executable()?;
        let library = match options.bare {
            true => None,
            false => Some(preload::find(&beside)?),
        };
        let stated = library.as_deref().map(stated).transpose()?;
        let sim = options.sim.as_deref();
        let sim = sim.map(|name| Sim::find(name, &beside)).transpose()?;
        let environment = Environment::with(&options.env);
        let needs_driver = match &source {
            Source::Unlimited => false,
            Source::Options => true,
            Source::File { slice, .. } => slice.limits_something(),
        };
        let library_path = environment.library_path.as_deref();
        let mut vars = sim
            .as_ref()
            .map_or(Vec::new(), |sim| sim.vars(library_path));
        vars.extend(sim_state.map(|state| (sim::STATE.into(), state.into())));
        // CUDA's order of GPUs is that of the command.
        vars.splice(0..0, options.env.iter().cloned());
        let inventory = needs_driver.then(|| ask::ask(&vars, NEEDED).map_err(with_hint));
        let inventory = inventory.transpose()?;
        let is_simulated = sim.is_some() || environment.is_simulated;
        Ok(Facts {
            source,
            inventory,
            learned: learned(options),
            state: state_in_environment(is_simulated)?,
            environment,
            library,
            stated,
            sim,
            log_file: options.log_file.as_deref().map(LogFile::find).transpose()?,
            own_name: format!("run-{}", std::process::id()),
            owner: None,
            is_root: nix::unistd::geteuid().is_root(),
        })
    }

    /// Returns why the driver can hold no limit of a run, whatever its GPUs are.
    pub(crate) fn fence_obstacle(&self) -> Option<&'static str> {
        let is_private = self.environment.is_simulated && self.state.is_none();
        match self.owner {
            Some(_) => Some("its programs are started outside a cgroup of gpuslice's own"),
            None if is_private => Some("each program has a simulated machine of its own"),
            None => None,
        }
    }

    /// Returns the same facts for another slice on the same machine.
    #[must_use]
    pub(crate) fn for_slice(&self, options: &SliceOptions) -> Facts {
        Facts {
            source: Source::Options,
            learned: learned(options),
            environment: Environment::with(&options.env),
            ..self.clone()
        }
    }
}

impl Environment {
    /// Reads this process's environment, with variables that a slices file sets for the command.
    fn with(set: &[(OsString, OsString)]) -> Environment {
        let var = |name: &str| {
            let set = set.iter().find(|(other, _)| other == name);
            set.map_or_else(|| env::var_os(name), |(_, value)| Some(value.clone()))
        };
        let of_caller = |name: &OsStr| env::var_os(name).is_some();
        let is_set = |name: &OsStr| of_caller(name) || set.iter().any(|(other, _)| other == name);
        let simulated = env::var_os(sim::SIM);
        Environment {
            preload: var(preload::VARIABLE),
            library_path: var(sim::LIBRARY_PATH),
            visible: var(visible_gpus::VARIABLE).and_then(|value| value.into_string().ok()),
            sets_log: is_set(&name_of(paths::LOG)),
            is_simulated: simulated.is_some_and(|machine| !machine.is_empty()),
            sets_state_home: of_caller(OsStr::new("XDG_STATE_HOME")),
        }
    }
}

impl LogFile {
    fn find(file: &Path) -> anyhow::Result<LogFile> {
        let path = std::path::absolute(file);
        let path = path.with_context(|| format!("cannot use log file {}", file.display()))?;
        let fault = can_be_written(&path).err();
        Ok(LogFile { path, fault })
    }
}

/// Reads what a library states about its release.
fn stated(library: &Path) -> anyhow::Result<Result<Statement, Misfit>> {
    let file = File::open(library);
    let file = file.with_context(|| format!("cannot read {}", library.display()))?;
    Ok(Statement::of(&file))
}

/// Determines the description of the slice, and reads the slice file if there is one.
fn source(options: &SliceOptions) -> anyhow::Result<Source> {
    if options.bare {
        return Ok(Source::Unlimited);
    }
    let file = config(options)?;
    if file.is_none() && !options.limits_something() {
        return Ok(Source::Unlimited);
    }
    if let Some(mounted) = current_slice::mounted() {
        return Err(InSliceError::Mounted(mounted).into());
    }
    let Some(path) = file else {
        return Ok(Source::Options);
    };
    let slice = Box::new(slice_file::read(&path)?);
    Ok(Source::File { path, slice })
}

/// Returns the absolute path of the slice file that an option or the environment names.
fn config(options: &SliceOptions) -> anyhow::Result<Option<PathBuf>> {
    let path = match (&options.config, current_slice::named()) {
        (Some(path), Some(named)) if !is_same_file(path, &named) => {
            return Err(InSliceError::File(named).into());
        }
        (Some(path), _) => path.clone(),
        (None, Some(named)) if options.limits_something() => {
            return Err(InSliceError::Limit(named).into());
        }
        (None, Some(named)) => named,
        (None, None) if current_slice::has_lost_name() => return Err(InSliceError::Lost.into()),
        (None, None) => return Ok(None),
    };
    let absolute = std::path::absolute(&path);
    Ok(Some(absolute.with_context(|| {
        format!("cannot use slice file {}", path.display())
    })?))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let facts = fs::metadata(path).ok()?;
        Some((facts.dev(), facts.ino()))
    };
    one == other || identity(one).is_some_and(|it| Some(it) == identity(other))
}

fn with_hint(error: AskError) -> anyhow::Error {
    match error {
        AskError::Driver {
            error: missing @ CudaError::NoLibrary(_),
            ..
        } => NoDriver(missing.to_string()).into(),
        _ => error.into(),
    }
}

/// Reads the headroom learned from earlier runs, if the options ask for it.
fn learned(options: &SliceOptions) -> Result<Headrooms, String> {
    let (Some(Headroom::Learned), Some(name)) = (options.headroom, &options.name) else {
        return Ok(Headrooms::new());
    };
    let read = headroom_store::place().and_then(|place| headroom_store::read(&place));
    match read {
        Ok(mut learned) => Ok(learned.remove(name).unwrap_or_default()),
        Err(error) => Err(format!("{:#}", anyhow::Error::new(error))),
    }
}

fn folder_of_executable() -> anyhow::Result<PathBuf> {
    let executable = env::current_exe().context("cannot find out where gpuslice is")?;
    Ok(executable.parent().unwrap_or(&executable).to_owned())
}

/// Returns the state folder of a simulated machine that the caller shares between runs, if set.
fn state_in_environment(is_simulated: bool) -> anyhow::Result<Option<PathBuf>> {
    if !is_simulated {
        return Ok(None);
    }
    let set = env::var_os(sim::STATE).filter(|value| !value.is_empty());
    let state = set.map(std::path::absolute);
    state
        .transpose()
        .with_context(|| format!("cannot use {}", sim::STATE))
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

pub(crate) fn name_of(variable: &CStr) -> OsString {
    OsStr::from_bytes(variable.to_bytes()).to_owned()
}
