//! Applies the plan of a run: takes the locks, and writes the run's files.
//! Touches: the private folder, its watcher, the promises and tenants of this machine, the ledger;
//! a simulated machine's state.
//! Law: admission is decided here, under the lock. The facts of the plan may be out of date:
//! another slice may have taken or freed memory since.

use crate::driver::inventory::Inventory;
use crate::driver::sim::{self, Sim};
use crate::driver::sim_host;
use crate::launch::facts::{Environment, Facts, name_of};
use crate::launch::fence::{self, Machine};
use crate::launch::meminfo::{self, MeminfoError};
use crate::launch::plan::{NO_TMPFS, Plan};
use crate::launch::prepare::Prepared;
use crate::runs::former::Owners;
use crate::runs::host_memory;
use crate::runs::meminfo::run_page;
use crate::runs::private_dir::PrivateDir;
use crate::runs::promise::{self, OwnPromise, Promises};
use crate::runs::recording::LimitedDevice;
use crate::runs::resizing::former_limits;
use crate::runs::tenancy::{self, Tenancy};
use crate::runs::{headroom_store, run_dir};
use crate::slice::ledger::{self as slice_ledger, Writers};
use anyhow::Context;
use gpuslice_config::slice::Text;
use gpuslice_config::slice::host_reserve;
use gpuslice_config::words::paths;
use gpuslice_config::words::units::Bytes;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Applies a plan.
///
/// # Errors
/// When the slice does not fit, or a file cannot be written.
pub(crate) fn apply(mut plan: Plan, facts: Facts) -> anyhow::Result<Prepared> {
    let devices = limited(&plan, facts.inventory.as_ref());
    let simulated = facts.sim.is_some() || facts.environment.is_simulated;
    let Facts {
        sim,
        state,
        owner,
        environment,
        ..
    } = facts;
    let mut private = (plan.writes_file() || (sim.is_some() && state.is_none()))
        .then(|| PrivateDir::create(owner).context("cannot make a private folder"))
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
    let owners = Owners::of(owner, watcher);
    let promise = make_promise(&mut plan, state.as_deref(), meminfo.as_deref(), owners)?;
    let tenancy = claim(&mut plan, state.as_deref(), owners)?;
    let leaf = match &private {
        Some(private) => {
            let machine = machine(sim.as_ref(), &environment, state.as_deref());
            fence::raise(&mut plan, private.path(), &machine)?
        }
        None => None,
    };
    if let (true, Some(private)) = (plan.shows_page, &private) {
        if !private.is_on_tmpfs()? {
            return Err(MeminfoError::NoTmpfs.into());
        }
        if let (None, Some(slice)) = (&meminfo, &mut plan.slice)
            && slice.meminfo.is_none()
        {
            slice.meminfo = Some(text_of(meminfo::make_place(private.path())?)?);
        }
    }
    let file = write_files(
        &mut plan,
        private.as_mut(),
        meminfo.as_deref(),
        promise.as_ref(),
        &tenancy,
    )?;

    let page = match (&private, &plan.slice) {
        (Some(private), Some(slice)) if plan.shows_page => {
            let made = run_page::make(private.path(), slice);
            let path = private.path().join(run_dir::PAGE);
            Some(made.map_err(|source| MeminfoError::Make { path, source })?)
        }
        _ => None,
    };
    let mut vars = plan.vars;
    vars.push((name_of(paths::CONFIG), file.clone().map(OsString::from)));
    if let (Some(state), Some(_)) = (state, &sim) {
        vars.push((sim::STATE.into(), Some(state.into())));
    }
    // The slice file may become unreadable while programs still start, for example after a change
    // of user. The variable then carries its contents.
    let slice = plan.slice.map(|slice| slice.to_json_line().into());
    vars.push((name_of(paths::SLICE), slice));
    Ok(Prepared {
        vars,
        slice: plan.slice,
        file,
        library: plan.library,
        warnings: plan.warnings,
        gaps: plan.gaps,
        private,
        promise,
        tenancy,
        leaf,
        devices,
        simulated,
        meminfo,
        page,
    })
}

/// The machine of the run.
fn machine(sim: Option<&Sim>, environment: &Environment, state: Option<&Path>) -> Machine {
    let mut vars = sim.map_or(Vec::new(), |sim| {
        sim.vars(environment.library_path.as_deref())
    });
    vars.extend(
        state
            .filter(|_| sim.is_some())
            .map(|state| (sim::STATE.into(), state.into())),
    );
    Machine {
        vars,
        is_simulated: sim.is_some() || environment.is_simulated,
    }
}

/// The devices that the slice limits.
fn limited(plan: &Plan, inventory: Option<&Inventory>) -> Vec<LimitedDevice> {
    let Some(slice) = &plan.slice else {
        return Vec::new();
    };
    let targets = inventory.into_iter().flat_map(Inventory::targets);
    let limited = targets.filter_map(|target| {
        let memory = slice.device(target.uuid)?.memory;
        let limit = match target.total {
            Bytes::ZERO => memory,
            total => memory.at_most(total),
        };
        Some(LimitedDevice {
            device: target.uuid.to_string(),
            index: target.device.index,
            name: target.device.name.clone(),
            limit: limit.get(),
        })
    });
    limited.collect()
}

/// Makes the promise of a slice on unified memory, if the slice fits on its host.
fn make_promise(
    plan: &mut Plan,
    simulated: Option<&Path>,
    meminfo: Option<&Path>,
    owners: Owners,
) -> anyhow::Result<Option<OwnPromise>> {
    let (Some(budget), Some(slice)) = (plan.promise, &mut plan.slice) else {
        return Ok(None);
    };
    let host = || host_memory::read(meminfo.unwrap_or(Path::new(host_memory::MEMINFO)));
    let total = host()?.total;
    let reserve = slice.reserve;
    let reserve = reserve.unwrap_or(host_reserve::default_reserve(total));
    let name = slice.name.as_str();
    let promises = Promises::of(simulated).owned_by(owners);
    if let Some(pid) = promises.run_called(name) {
        plan.warnings.push(tenancy::same_name(name, pid));
    }
    let own = promises.make(name, budget, host, reserve, plan.overcommit)?;
    if let Some(full) = &own.overcommitted {
        plan.warnings.push(full.to_string());
    }
    slice.promises = Some(text_of(own.folder.clone())?);
    slice.promise = own.file.clone().map(text_of).transpose()?;
    Ok(Some(own))
}

/// Takes the slice's place on GPUs with memory of their own, if it fits beside the other slices.
fn claim(plan: &mut Plan, simulated: Option<&Path>, owners: Owners) -> anyhow::Result<Tenancy> {
    let name = plan.slice.map(|slice| slice.name);
    let name = name.as_ref().map_or("", |name| name.as_str());
    let mut tenancy = tenancy::claim(simulated, name, &plan.cards, plan.overcommit, owners)?;
    plan.warnings.append(&mut tenancy.warnings);
    Ok(tenancy)
}

/// Creates the ledger, writes the slice file if none exists yet, and returns its path.
fn write_files(
    plan: &mut Plan,
    private: Option<&mut PrivateDir>,
    meminfo: Option<&Path>,
    promise: Option<&OwnPromise>,
    tenancy: &Tenancy,
) -> anyhow::Result<Option<PathBuf>> {
    let writes = plan.writes_file();
    let devices = plan.devices;
    let Some(slice) = &mut plan.slice else {
        return Ok(None);
    };
    let (true, Some(private)) = (writes, private) else {
        // The slice is used unchanged. The ledger is created only if the file names one that does
        // not exist. A second ledger in place of the existing one would amount to a second budget.
        if let (Some(ledger), None) = (slice.ledger, slice.ledger_id) {
            let ledger = Path::new(ledger.as_str());
            slice_ledger::make(ledger, Writers::User, devices)?;
            let file = plan.file.as_deref().unwrap_or(ledger);
            if let Err(error) = former_limits::remove(file, ledger) {
                let ledger = ledger.display();
                plan.warnings.push(format!(
                    "limits that gpuslice resize has set may stay in {ledger}: {error}"
                ));
            }
        }
        return Ok(plan.file.clone());
    };
    let folder = private.path().to_owned();
    let folder = folder.as_path();
    if let Some(meminfo) = meminfo.filter(|_| slice.meminfo.is_none()) {
        slice.meminfo = Some(text_of(meminfo.to_owned())?);
    }
    if private.is_on_tmpfs()? {
        let (ledger, id) = slice_ledger::make_in(folder, devices)?;
        slice.ledger_id = Some(id);
        let kept = private
            .keep(&ledger)
            .context("cannot talk to the watcher")?;
        slice.ledger = Some(text_of(ledger)?);
        slice.ledger_descriptor = Some(text_of(kept)?);
    } else {
        plan.gaps.push(NO_TMPFS.to_owned());
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
    if plan.learns
        && let Ok(place) = headroom_store::place()
    {
        headroom_store::remember(folder, &place)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    let path = folder.join(run_dir::SLICE);
    write_private(&path, &slice.to_json())
        .with_context(|| format!("cannot write {}", path.display()))?;
    private
        .wait_for_watcher()
        .context("the run's watcher has ended")?;
    Ok(Some(path))
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
