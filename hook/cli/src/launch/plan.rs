//! Plans a run: its slice, the variables of its program, and the memory that it asks to be admitted
//! for.
//! Touches: its arguments.
//! Law: a plan is a function of options and facts. Only `apply` takes locks and writes files.

use crate::driver::inventory::Inventory;
use crate::driver::preload;
use crate::launch::facts::{Facts, Source, name_of};
use crate::launch::fence::{self, FencePlan, NoDriverFence};
use crate::launch::meminfo;
use crate::runs::run_dir;
use crate::runs::tenancy::{self, Card};
use crate::slice::budget::{self, TooSmall, budget};
use crate::slice::file as slice_file;
use crate::slice::options::{Headroom, SliceOptions};
use crate::slice::visible_gpus::Seen;
use gpuslice_config::slice::{DriverLimit, Fence, Slice, Text};
use gpuslice_config::words::paths;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::library::{Misfit, RELEASE};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A variable with its new value; with None, the variable is to be removed.
pub(crate) type Var = (OsString, Option<OsString>);

/// The plan of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The slice, without the paths that exist only when the plan is applied: those of its ledger,
    /// its promise and a simulated machine's meminfo.
    pub(crate) slice: Option<Slice>,
    /// The file that the slice was read from; None if the file is still to be written.
    pub(crate) file: Option<PathBuf>,
    /// The number of devices on which the slice's processes can allocate memory.
    pub(crate) devices: usize,
    /// The memory to be promised on unified memory, if the host has room for it.
    pub(crate) promise: Option<Bytes>,
    /// The memory that the slice asks for on GPUs with memory of their own.
    pub(crate) cards: Vec<Card>,
    /// Whether some GPUs have limits of their own.
    pub(crate) has_own_limits: bool,
    /// Whether the run may start although its slice does not fit.
    pub(crate) overcommit: bool,
    /// Whether headroom is learned from this run when it ends.
    pub(crate) learns: bool,
    /// The mechanism that enforces the limit.
    pub(crate) fence: FencePlan,
    /// Whether the slice's meminfo is mounted for its programs.
    pub(crate) shows_page: bool,
    /// The variables that do not depend on a file of this run.
    pub(crate) vars: Vec<Var>,
    /// The preloaded library; None for a bare run.
    pub(crate) library: Option<PathBuf>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
    /// Messages about programs or GPUs that the slice does not limit. --strict refuses to start if
    /// there are any.
    pub(crate) gaps: Vec<String>,
    /// The warning that the log file cannot be written.
    pub(crate) log_warning: Option<String>,
}

impl Plan {
    /// Plans the run that the options describe.
    ///
    /// # Errors
    /// When the options or the slice file name a GPU that does not exist, or a limit that does not
    /// limit, when the program sees no GPU that the slice limits, or when the library does not
    /// understand the slice.
    pub(crate) fn make(options: &SliceOptions, facts: &Facts) -> anyhow::Result<Plan> {
        let none = Inventory::default();
        let inventory = facts.inventory.as_ref().unwrap_or(&none);
        let mut plan = match &facts.source {
            Source::Unlimited => Plan::default(),
            Source::Options => Plan::of_options(options, facts, inventory)?,
            Source::File { path, slice } => {
                Plan::of_file(path, **slice, options, facts, inventory)?
            }
        };
        plan.devices = match &facts.inventory {
            Some(inventory) => inventory.targets().count(),
            None => 1,
        };
        plan.fence = plan.fence_of(options, facts, inventory)?;
        plan.promise = plan.promised(inventory);
        plan.shows_page = meminfo::decide(options, plan.slice.as_ref(), facts)?;
        plan.library = facts.library.clone();
        plan.check_library(facts)?;
        plan.vars = vars(options, facts);
        plan.log_warning = facts.log_file.as_ref().and_then(|file| {
            let (path, why) = (file.path.display(), file.fault?.desc());
            Some(format!("nothing will be logged in {path}: {why}"))
        });
        Ok(plan)
    }

    fn of_options(
        options: &SliceOptions,
        facts: &Facts,
        inventory: &Inventory,
    ) -> anyhow::Result<Plan> {
        let name = options.name.as_ref().unwrap_or(&facts.own_name);
        let mut warnings = Vec::new();
        let headrooms = facts.learned.clone().unwrap_or_else(|fault| {
            warnings.push(fault);
            budget::Headrooms::new()
        });
        // Headroom learned on a simulated GPU is of no use on a real one.
        let is_simulated = facts.sim.is_some() || facts.environment.is_simulated;
        let mut learns = options.headroom == Some(Headroom::Learned);
        if learns && is_simulated && !facts.environment.sets_state_home {
            learns = false;
            warnings.push(NOT_REMEMBERED.to_owned());
        }
        let planned = budget(options, inventory, name, &headrooms)?;
        warnings.extend(planned.warnings);
        let named = options
            .device
            .iter()
            .filter_map(|limit| budget::find(limit.selector, inventory).ok())
            .map(|target| target.uuid)
            .collect::<Vec<_>>();
        let visible = facts.environment.visible.as_deref();
        let cards = tenancy::cards(&named, inventory, &planned.slice, visible);
        let seen = Seen::with(visible, inventory);
        seen.check(&planned.slice, inventory)?;
        let gaps = gaps(&seen, &planned.slice, planned.too_small, &mut warnings);
        Ok(Plan {
            slice: Some(planned.slice),
            warnings,
            gaps,
            learns,
            // A slice with --no-enforce only observes, so there is no limit to guarantee.
            overcommit: options.overcommit || options.no_enforce,
            has_own_limits: !named.is_empty(),
            cards,
            ..Plan::default()
        })
    }

    /// Plans the slice of a file. All runs of a file that names a ledger share that slice, and it
    /// is used unchanged. Any other file describes a slice of this run alone: it gets a ledger and
    /// is admitted, as a slice from the options is.
    fn of_file(
        path: &Path,
        mut slice: Slice,
        options: &SliceOptions,
        facts: &Facts,
        inventory: &Inventory,
    ) -> anyhow::Result<Plan> {
        let mut plan = Plan::default();
        if !slice.limits_something() {
            let nothing = format!("slice file {} limits no device", path.display());
            plan.gaps.push(nothing);
            plan.file = Some(path.to_owned());
            plan.slice = Some(slice);
            return Ok(plan);
        }
        let too_small = slice_file::compare(path, &slice, inventory)?;
        let visible = facts.environment.visible.as_deref();
        let seen = Seen::with(visible, inventory);
        // A program that stays in its slice was checked when the slice was made.
        if options.config.is_some() {
            seen.check(&slice, inventory)?;
        }
        plan.gaps = gaps(&seen, &slice, too_small, &mut plan.warnings);
        // This process runs in a slice already, and `path` is the slice file of that run.
        let stays = options.config.is_none() && run_dir::private_folder(path).is_some();
        if slice.ledger.is_some() || stays {
            plan.file = Some(path.to_owned());
            if slice.ledger.is_none() {
                plan.gaps.push(NO_TMPFS.to_owned());
            }
            if options.overcommit {
                plan.warnings.push(NOT_ADMITTED.to_owned());
            }
        } else {
            // A copy of a run's slice file names the cgroup of that run.
            slice.driver_cgroup = None;
            let listed: Vec<_> = slice.devices().map(|listed| listed.uuid).collect();
            for uuid in listed {
                if let Some(listed) = slice.listed_mut(uuid) {
                    listed.driver_limit = None;
                    listed.driver_backstop = false;
                }
            }
            if slice.name.as_str().is_empty() {
                slice.name = Text::new(&facts.own_name);
            }
            let named = slice_file::own_limits(&slice);
            plan.cards = tenancy::cards(&named, inventory, &slice, visible);
            plan.has_own_limits = !named.is_empty();
            plan.overcommit = options.overcommit || !slice.enforce;
        }
        plan.slice = Some(slice);
        Ok(plan)
    }

    /// Plans what enforces the limit.
    fn fence_of(
        &self,
        options: &SliceOptions,
        facts: &Facts,
        inventory: &Inventory,
    ) -> Result<FencePlan, NoDriverFence> {
        let wanted = options.fence.map(Fence::from).unwrap_or_default();
        match &self.slice {
            Some(slice) if self.writes_file() => {
                fence::decide(wanted, slice, inventory, facts.fence_obstacle())
            }
            Some(_) if wanted == Fence::Driver => Err(NoDriverFence(SHARED.to_owned())),
            _ => Ok(FencePlan::default()),
        }
    }

    /// Checks that the library understands the slice file of this run: it may be of another
    /// release. A library that does not would refuse all device memory.
    fn check_library(&mut self, facts: &Facts) -> Result<(), UnfitLibrary> {
        let (Some(library), Some(stated), Some(slice)) =
            (&facts.library, &facts.stated, self.slice)
        else {
            return Ok(());
        };
        let unfit = |misfit: &Misfit| UnfitLibrary {
            library: library.clone(),
            misfit: misfit.clone(),
        };
        let stated = stated.as_ref().map_err(unfit)?;
        let understood = |plan: &Plan| {
            let file = plan.with_keys_of_apply(slice).to_json();
            stated.understands(&file)
        };
        if understood(self).is_err() && self.fence.wanted == Fence::Auto {
            // A library of an older release does not know the driver's limits, and holds its own.
            self.fence.devices.clear();
        }
        understood(self).map_err(|misfit| unfit(&misfit))?;
        if let Some(release) = stated.other_release() {
            self.warnings.push(format!(
                "{} is from gpuslice {release}, and this command from {RELEASE}: the library \
                 understands this slice, but install both from one package",
                library.display()
            ));
        }
        Ok(())
    }

    /// The slice with every key that its file will have; the values are placeholders.
    fn with_keys_of_apply(&self, mut slice: Slice) -> Slice {
        if self.writes_file() {
            slice.ledger = Some(Text::new("/"));
            slice.ledger_id = Some(0);
            slice.ledger_descriptor = Some(Text::new("/"));
        }
        for (uuid, _) in &self.fence.devices {
            slice.driver_cgroup = Some(Text::new("/"));
            slice.set_driver_limit(*uuid, Some(DriverLimit::Dmem));
        }
        if self.promise.is_some() {
            slice.promises = Some(Text::new("/"));
            slice.promise = Some(Text::new("/"));
        }
        if self.shows_page {
            slice.meminfo = Some(Text::new("/"));
        }
        slice
    }

    /// Whether the run gets a slice file of its own.
    pub(crate) fn writes_file(&self) -> bool {
        self.slice.is_some() && self.file.is_none()
    }

    /// Returns the memory to promise: the largest budget among the devices that share the host's
    /// memory. Returns None if this run makes no promise.
    fn promised(&self, inventory: &Inventory) -> Option<Bytes> {
        let slice = self.slice.as_ref().filter(|_| self.writes_file())?;
        // A slice file may name its own promise.
        if slice.promises.is_some() || slice.promise.is_some() {
            return None;
        }
        let targets = inventory.targets().filter(|target| target.integrated);
        targets
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
}

/// A library that does not understand the slice of this run.
#[derive(Debug, thiserror::Error)]
#[error("{library} {misfit}")]
pub(crate) struct UnfitLibrary {
    library: PathBuf,
    misfit: Misfit,
}

/// Why the driver does not enforce the limit of a slice file that is used unchanged.
const SHARED: &str =
    "its slice file names a ledger, which the runs of that file share, or limits nothing";

/// The gap of a slice without a ledger.
pub(crate) const NO_TMPFS: &str = "neither $XDG_RUNTIME_DIR, $TMPDIR nor /dev/shm is on tmpfs: what programs \
                        allocate is neither counted nor refused";

const NOT_ADMITTED: &str = "--overcommit has no effect: a slice file that names a ledger is not \
                            checked against the memory that other slices leave";

const NOT_REMEMBERED: &str = "the headroom of a simulated run is remembered only where XDG_STATE_HOME \
                              is set";

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

/// Returns the variables of the preload, the simulated machine and the log.
fn vars(options: &SliceOptions, facts: &Facts) -> Vec<Var> {
    let existing = facts.environment.preload.as_deref();
    let preload = match &facts.library {
        Some(library) => Some(preload::with_library(existing, library)),
        None => existing.and_then(preload::without_library),
    };
    let mut vars = vec![(preload::VARIABLE.into(), preload)];
    if let Some(sim) = &facts.sim {
        let set = sim.vars(facts.environment.library_path.as_deref());
        vars.extend(set.into_iter().map(|(name, value)| (name, Some(value))));
    }
    // A user who names a log file expects entries in it, so the level defaults to `warn`.
    let is_unset = options.log_file.is_some() && !facts.environment.sets_log;
    let default = is_unset.then(|| "warn".to_owned());
    if let Some(level) = options.log.clone().or(default) {
        vars.push((name_of(paths::LOG), Some(level.into())));
    }
    if let Some(file) = &facts.log_file {
        vars.push((name_of(paths::LOG_FILE), Some(file.path.clone().into())));
    }
    let set = options.env.iter().filter(|(name, _)| {
        // Those above contain the file's value, or replace it.
        vars.iter().all(|(other, _)| other != name)
    });
    let set: Vec<Var> = set
        .map(|(name, value)| (name.clone(), Some(value.clone())))
        .collect();
    set.into_iter().chain(vars).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
