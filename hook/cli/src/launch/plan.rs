//! The plan of a run's slice: read from the options or a file, then completed with its ledger,
//! promise and tenancy.
//! Touches: the environment variable that names a slice file, the private folder, the driver (in a
//! child), the headroom learned from earlier runs, the promises and tenancies of other slices.

use crate::driver::ask::{self, AskError};
use crate::driver::cuda::CudaError;
use crate::driver::inventory::Inventory;
use crate::driver::sim;
use crate::runs::former::Owners;
use crate::runs::headroom_store;
use crate::runs::private_dir::PrivateDir;
use crate::runs::promise::{OwnPromise, Promises};
use crate::runs::tenancy::{self, Card, Tenancy};
use crate::runs::{promise, run_dir};
use crate::slice::budget::{self, Headrooms, TooSmall, budget};
use crate::slice::current as current_slice;
use crate::slice::current::InSliceError;
use crate::slice::ledger::Writers;
use crate::slice::options::{Headroom, SliceOptions};
use crate::slice::visible_gpus::{self, Seen};
use crate::slice::{file as slice_file, ledger as slice_ledger};
use anyhow::Context;
use gpuslice_config::slice::host_reserve;
use gpuslice_config::slice::{Slice, Text};
use gpuslice_config::words::units::Bytes;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The slice, before a folder for its file exists.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) slice: Option<Slice>,
    /// The file that the slice was read from; None if the file is still to be written.
    pub(crate) file: Option<PathBuf>,
    pub(crate) inventory: Option<Inventory>,
    pub(crate) warnings: Vec<String>,
    /// Messages about programs or GPUs that the slice does not limit. --strict refuses to start if
    /// there are any.
    pub(crate) gaps: Vec<String>,
    /// Whether headroom is learned from this run when it ends.
    learns: bool,
    /// Whether the run may start although its slice does not fit.
    overcommit: bool,
    /// The memory that the slice asks for on GPUs with memory of their own.
    cards: Vec<Card>,
}

impl Plan {
    pub(crate) fn make(
        options: &SliceOptions,
        sim_vars: &[(OsString, OsString)],
    ) -> anyhow::Result<Plan> {
        if options.bare {
            return Ok(Plan::default());
        }
        let file = config(options)?;
        if !options.limits_something() && file.is_none() {
            return Ok(Plan::default());
        }
        if let Some(mounted) = current_slice::mounted() {
            return Err(InSliceError::Mounted(mounted).into());
        }
        match file {
            None => Plan::of_options(options, sim_vars),
            Some(path) => Plan::of_file(path, options, sim_vars),
        }
    }

    fn of_options(
        options: &SliceOptions,
        sim_vars: &[(OsString, OsString)],
    ) -> anyhow::Result<Plan> {
        let inventory = ask::ask(sim_vars, NEEDED).map_err(with_hint)?;
        let name = options.name.clone();
        let name = name.unwrap_or_else(own_name);
        let mut warnings = Vec::new();
        let mut learns = options.headroom == Some(Headroom::Learned);
        let headrooms = match learns {
            true => learned(&name, &mut warnings),
            false => Headrooms::new(),
        };
        // Headroom learned on a simulated GPU is of no use on a real one.
        if learns && is_simulated(sim_vars) && env::var_os("XDG_STATE_HOME").is_none() {
            learns = false;
            warnings.push(NOT_REMEMBERED.to_owned());
        }
        let planned = budget(options, &inventory, &name, &headrooms)?;
        warnings.extend(planned.warnings);
        let named = options
            .device
            .iter()
            .filter_map(|limit| budget::find(limit.selector, &inventory).ok())
            .map(|target| target.uuid)
            .collect::<Vec<_>>();
        let visible = visible_devices();
        let cards = tenancy::cards(&named, &inventory, &planned.slice, visible.as_deref());
        let seen = Seen::with(visible.as_deref(), &inventory);
        seen.check(&planned.slice, &inventory)?;
        let gaps = gaps(&seen, &planned.slice, planned.too_small, &mut warnings);
        Ok(Plan {
            slice: Some(planned.slice),
            file: None,
            inventory: Some(inventory),
            warnings,
            gaps,
            learns,
            // A slice with --no-enforce only observes, so there is no limit to guarantee.
            overcommit: options.overcommit || options.no_enforce,
            cards,
        })
    }

    /// Plans the slice of a file. All runs of a file that names a ledger share that slice, and it
    /// is used unchanged. Any other file describes a slice of this run alone: it gets a ledger and
    /// is admitted, as a slice from the options is.
    fn of_file(
        path: PathBuf,
        options: &SliceOptions,
        sim_vars: &[(OsString, OsString)],
    ) -> anyhow::Result<Plan> {
        let mut slice = slice_file::read(&path)?;
        let mut plan = Plan::default();
        if !slice.limits_something() {
            let nothing = format!("slice file {} limits no device", path.display());
            plan.gaps.push(nothing);
            plan.file = Some(path);
            plan.slice = Some(slice);
            return Ok(plan);
        }
        let inventory = ask::ask(sim_vars, NEEDED).map_err(with_hint)?;
        let too_small = slice_file::compare(&path, &slice, &inventory)?;
        let visible = visible_devices();
        let seen = Seen::with(visible.as_deref(), &inventory);
        // A program that stays in its slice was checked when the slice was made.
        if options.config.is_some() {
            seen.check(&slice, &inventory)?;
        }
        plan.gaps = gaps(&seen, &slice, too_small, &mut plan.warnings);
        // The program is in a run already, and this is the slice file of that run.
        let stays = options.config.is_none() && run_dir::private_folder(&path).is_some();
        if slice.ledger.is_some() || stays {
            plan.file = Some(path);
            if slice.ledger.is_none() {
                plan.gaps.push(NO_TMPFS.to_owned());
            }
            if options.overcommit {
                plan.warnings.push(NOT_ADMITTED.to_owned());
            }
        } else {
            if slice.name.as_str().is_empty() {
                slice.name = Text::new(&own_name());
            }
            let named = slice_file::own_limits(&slice);
            plan.cards = tenancy::cards(&named, &inventory, &slice, visible.as_deref());
            plan.overcommit = options.overcommit || !slice.enforce;
        }
        plan.slice = Some(slice);
        plan.inventory = Some(inventory);
        Ok(plan)
    }

    pub(crate) fn writes_file(&self) -> bool {
        self.slice.is_some() && self.file.is_none()
    }

    /// Makes the promise of a slice on unified memory, if the slice fits on its host.
    pub(crate) fn promise(
        &mut self,
        simulated: Option<&Path>,
        meminfo: Option<&Path>,
        watcher: Option<i32>,
    ) -> anyhow::Result<Option<OwnPromise>> {
        let writes = self.writes_file();
        let budget = self.unified_budget();
        let (true, Some(slice), Some(budget)) = (writes, &mut self.slice, budget) else {
            return Ok(None);
        };
        // A slice file may name its own promise.
        if slice.promises.is_some() || slice.promise.is_some() {
            return Ok(None);
        }
        let host = promise::host(meminfo.unwrap_or(Path::new("/proc/meminfo")))?;
        let reserve = slice.reserve;
        let reserve = reserve.unwrap_or(host_reserve::default_reserve(host.total));
        let name = slice.name.as_str();
        let promises = Promises::of(simulated).watched_by(watcher);
        if let Some(pid) = promises.run_called(name) {
            self.warnings.push(tenancy::same_name(name, pid));
        }
        let own = promises.make(name, budget, &host, reserve, self.overcommit)?;
        if let Some(full) = &own.overcommitted {
            self.warnings.push(full.to_string());
        }
        slice.promises = Some(text_of(own.folder.clone())?);
        slice.promise = own.file.clone().map(text_of).transpose()?;
        Ok(Some(own))
    }

    /// Takes the slice's place on GPUs with memory of their own, if it fits beside the other
    /// slices.
    pub(crate) fn claim(
        &mut self,
        simulated: Option<&Path>,
        watcher: Option<i32>,
    ) -> anyhow::Result<Tenancy> {
        let owners = Owners::of(watcher);
        let name = self.slice.map(|slice| slice.name);
        let name = name.as_ref().map_or("", |name| name.as_str());
        let mut tenancy = tenancy::claim(simulated, name, &self.cards, self.overcommit, owners)?;
        self.warnings.append(&mut tenancy.warnings);
        Ok(tenancy)
    }

    /// Returns the largest budget of a device that shares the host's memory, if there is one.
    fn unified_budget(&self) -> Option<Bytes> {
        let slice = self.slice.as_ref()?;
        let targets = self.inventory.as_ref()?.targets();
        targets
            .filter(|target| target.integrated)
            .filter_map(|target| {
                let budget = slice.device(target.uuid)?.memory;
                // A device that does not report its memory gets the budget unchanged.
                Some(match target.total {
                    Bytes::ZERO => budget,
                    total => budget.at_most(total),
                })
            })
            .max()
    }

    /// Returns the number of devices on which the slice's processes can allocate memory.
    fn devices(&self) -> usize {
        let inventory = self.inventory.as_ref();
        inventory.map_or(1, |inventory| inventory.targets().count())
    }

    /// Creates the ledger, writes the slice file if none exists yet, and returns its path.
    pub(crate) fn finish(
        &mut self,
        private: Option<&mut PrivateDir>,
        meminfo: Option<&Path>,
        promise: Option<&OwnPromise>,
        tenancy: &Tenancy,
    ) -> anyhow::Result<Option<PathBuf>> {
        let writes = self.writes_file();
        let devices = self.devices();
        let Some(slice) = &mut self.slice else {
            return Ok(None);
        };
        let (true, Some(private)) = (writes, private) else {
            // The slice is used unchanged: the ledger is created only if the file names one that
            // does not exist. A second ledger in place of a run's own would amount to a second
            // budget.
            if let (Some(ledger), None) = (slice.ledger, slice.ledger_id) {
                slice_ledger::make(Path::new(ledger.as_str()), Writers::User, devices)?;
            }
            return Ok(self.file.clone());
        };
        let folder = private.path().to_owned();
        let folder = folder.as_path();
        if let Some(meminfo) = meminfo.filter(|_| slice.meminfo.is_none()) {
            slice.meminfo = Some(text_of(meminfo.to_owned())?);
        }
        if private.is_on_tmpfs() {
            let (ledger, id) = slice_ledger::make_in(folder, devices)?;
            slice.ledger_id = Some(id);
            let kept = private
                .keep(&ledger)
                .context("cannot talk to the watcher")?;
            slice.ledger = Some(text_of(ledger)?);
            slice.ledger_descriptor = Some(text_of(kept)?);
        } else {
            self.gaps.push(NO_TMPFS.to_owned());
        }
        let unwritable = || format!("cannot write to {}", folder.display());
        if let Some(promise) = promise {
            promise::remember(folder, promise).with_context(unwritable)?;
        }
        tenancy::remember(folder, tenancy).with_context(unwritable)?;
        let promised = promise.and_then(|promise| promise.file.as_ref());
        for file in promised.into_iter().chain(&tenancy.file) {
            private.hold(file).context("cannot talk to the watcher")?;
        }
        if self.learns
            && let Ok(place) = headroom_store::place()
        {
            headroom_store::remember(folder, &place)
                .with_context(|| format!("cannot write to {}", folder.display()))?;
        }
        let path = folder.join(run_dir::SLICE);
        write_private(&path, &slice.to_json())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Some(path))
    }
}

const NO_TMPFS: &str = "neither $XDG_RUNTIME_DIR, $TMPDIR nor /dev/shm is on tmpfs: what programs \
                        allocate is neither counted nor refused";

const NOT_ADMITTED: &str = "--overcommit has no effect: a slice file that names a ledger is not \
                            checked against the memory that other slices leave";

const NOT_REMEMBERED: &str = "the headroom of a simulated run is remembered only where XDG_STATE_HOME \
                              is set";

/// Returns the name of a slice without a name.
fn own_name() -> String {
    format!("run-{}", std::process::id())
}

fn visible_devices() -> Option<String> {
    env::var(visible_gpus::VARIABLE).ok()
}

/// Returns the messages about GPUs that the program sees and the slice does not limit. GPUs that
/// the program does not see only cause warnings.
fn gaps(
    seen: &Seen<'_>,
    slice: &Slice,
    too_small: Vec<TooSmall>,
    warnings: &mut Vec<String>,
) -> Vec<String> {
    let is_seen = |card: &TooSmall| seen.contains(card.uuid);
    let (seen_ones, hidden): (Vec<TooSmall>, Vec<TooSmall>) =
        too_small.into_iter().partition(is_seen);
    warnings.extend(hidden.into_iter().map(|card| card.message));
    let gaps = seen_ones.into_iter().map(|card| card.message);
    gaps.chain(seen.gap(slice)).collect()
}

fn is_simulated(sim_vars: &[(OsString, OsString)]) -> bool {
    !sim_vars.is_empty() || env::var_os(sim::SIM).is_some_and(|machine| !machine.is_empty())
}

/// Returns the headroom learned from earlier runs of that name. If it cannot be read, the run only
/// warns.
fn learned(name: &str, warnings: &mut Vec<String>) -> Headrooms {
    let read = headroom_store::place().and_then(|place| headroom_store::read(&place));
    match read {
        Ok(mut learned) => learned.remove(name).unwrap_or_default(),
        Err(error) => {
            warnings.push(format!("{:#}", anyhow::Error::new(error)));
            Headrooms::new()
        }
    }
}

/// The reason, in error messages, why the driver is queried before a program starts.
const NEEDED: &str = "a limit needs its list of GPUs, so nothing starts before it answers";

/// No driver was found. The hint is for a user without a GPU who tries the first example.
#[derive(Debug, thiserror::Error)]
#[error("{0}; --sim rtx3090 runs on a simulated GPU")]
pub(crate) struct NoDriver(String);

fn with_hint(error: AskError) -> anyhow::Error {
    match error {
        AskError::Driver {
            error: missing @ CudaError::NoLibrary(_),
            ..
        } => NoDriver(missing.to_string()).into(),
        _ => error.into(),
    }
}

/// Returns the absolute path of the slice file that an option or the environment names.
fn config(options: &SliceOptions) -> anyhow::Result<Option<PathBuf>> {
    let path = match (&options.config, current_slice::named()) {
        (Some(path), _) => path.clone(),
        (None, Some(named)) if options.limits_something() => {
            return Err(InSliceError::Limit(named).into());
        }
        (None, Some(named)) => named,
        (None, None) => return Ok(None),
    };
    let absolute = std::path::absolute(&path);
    Ok(Some(absolute.with_context(|| {
        format!("cannot use slice file {}", path.display())
    })?))
}

/// A path that a slice file cannot hold.
#[derive(Debug, thiserror::Error)]
#[error("{0} is too long, or has a letter that a slice file cannot hold")]
pub(crate) struct UnstorablePath(PathBuf);

/// Returns the absolute path as text, if a slice file can hold it: its reader knows no escapes.
fn text_of<const N: usize>(path: PathBuf) -> Result<Text<N>, UnstorablePath> {
    let path = std::path::absolute(&path).unwrap_or(path);
    let strange = |letter: char| letter.is_control() || letter == '"' || letter == '\\';
    match path.to_str() {
        Some(text) if text.len() <= N && !text.contains(strange) => Ok(Text::new(text)),
        _ => Err(UnstorablePath(path)),
    }
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}
