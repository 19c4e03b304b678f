//! `gpuslice run --dry-run`: the plan of a run as text, and whether the run would be admitted.
//! Touches: what `facts` touches; the records of other slices, by reading them. A simulated machine
//! runs in a temporary folder, which is removed.
//! Law: takes no lock, starts no watcher, and leaves no file.

mod json;

use crate::driver::sim;
use crate::launch::facts::{Facts, name_of};
use crate::launch::meminfo::MeminfoError;
use crate::launch::plan::{NO_TMPFS, Plan};
use crate::launch::scratch::Scratch;
use crate::runs::host_memory;
use crate::runs::promise::Promises;
use crate::runs::tenancy::{self, Admitted};
use crate::runs::{private_dir, registry, run_dir};
use crate::slice::options::SliceOptions;
use anyhow::bail;
use gpuslice_config::slice::{Slice, host_reserve};
use gpuslice_config::words::paths;
use gpuslice_config::words::units::Bytes;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The plan of a run, and its admission if it started now.
#[derive(Debug)]
pub(crate) struct Preview {
    /// The plan, with the warnings and gaps that the run would report.
    pub(crate) plan: Plan,
    /// The command and its arguments.
    command: Vec<OsString>,
    /// Whether the driver was queried.
    is_queried: bool,
    /// The path of the run's slice file, or the place of a folder that has no name yet.
    file: Option<PathBuf>,
    /// The folder of a simulated machine's state.
    state: Option<PathBuf>,
    /// The promise, and the folder of the promises.
    promise: Option<(PathBuf, Bytes)>,
    /// The records among the tenants of GPUs.
    admitted: Admitted,
    /// The folder of the run's link for `gpuslice status`.
    registry: Option<PathBuf>,
}

impl Preview {
    /// Plans the run that the options describe, and checks whether it would be admitted.
    ///
    /// # Errors
    /// As the run itself.
    pub(crate) fn make(options: &SliceOptions, command: &[OsString]) -> anyhow::Result<Preview> {
        let scratch = Scratch::new(options.sim.is_some())?;
        let facts = Facts::gather(options, scratch.state());
        let facts = facts.map_err(|error| scratch.explain(error, options.sim.as_deref()))?;
        let mut plan = Plan::make(options, &facts)?;

        let meminfo = scratch.meminfo(&facts)?;
        let records = scratch.records(&facts);
        let promise = preview_promise(&mut plan, records, meminfo.as_deref())?;
        let name = plan.slice.map(|slice| slice.name);
        let name = name.as_ref().map_or("", |name| name.as_str());
        let mut admitted = tenancy::preview(records, name, &plan.cards, plan.overcommit)?;
        plan.warnings.append(&mut admitted.warnings);
        let has_folder = plan.writes_file() || (facts.sim.is_some() && facts.state.is_none());
        let place = match private_dir::place() {
            None if has_folder => bail!("cannot make a private folder: no place can be written to"),
            place => place.unwrap_or_default(),
        };
        let is_on_tmpfs = private_dir::is_on_tmpfs(&place);
        if has_folder && plan.shows_page && !is_on_tmpfs {
            return Err(MeminfoError::NoTmpfs.into());
        }
        if plan.writes_file() && !is_on_tmpfs {
            plan.gaps.push(NO_TMPFS.to_owned());
        }
        let folder = place.join(format!("{}XXXXXX", run_dir::PREFIX));
        let state = facts.sim.is_some().then(|| {
            let named = facts.state.clone();
            named.unwrap_or_else(|| folder.join("sim"))
        });
        let own = plan.writes_file().then(|| folder.join(run_dir::SLICE));
        Ok(Preview {
            file: plan.file.clone().or(own),
            state,
            command: command.to_vec(),
            is_queried: facts.inventory.is_some(),
            promise,
            admitted,
            registry: plan.slice.is_some().then(registry::folder),
            plan,
        })
    }
}

/// Returns the promise that the run would make, and its folder.
fn preview_promise(
    plan: &mut Plan,
    simulated: Option<&Path>,
    meminfo: Option<&Path>,
) -> anyhow::Result<Option<(PathBuf, Bytes)>> {
    let (Some(budget), Some(slice)) = (plan.promise, &plan.slice) else {
        return Ok(None);
    };
    let host = || host_memory::read(meminfo.unwrap_or(Path::new(host_memory::MEMINFO)));
    let total = host()?.total;
    let reserve = slice.reserve;
    let reserve = reserve.unwrap_or(host_reserve::default_reserve(total));
    let promises = Promises::of(simulated);
    let name = slice.name.as_str();
    if let Some(pid) = promises.run_called(name) {
        plan.warnings.push(tenancy::same_name(name, pid));
    }
    let promised = promises.preview(budget, host, reserve, plan.overcommit)?;
    let overcommitted = promised.overcommitted.map(|full| full.to_string());
    plan.warnings.extend(overcommitted);
    Ok(Some((promises.folder().to_owned(), promised.memory)))
}

impl fmt::Display for Preview {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.command.iter().map(quoted).collect();
        writeln!(out, "program\n  {}", words.join(" "))?;
        if let Some(library) = &self.plan.library {
            writeln!(out, "\nlibrary\n  {}", library.display())?;
        }
        writeln!(out, "\nenvironment")?;
        for (name, value) in &self.plan.vars {
            variable(out, name, value.as_deref())?;
        }
        if let Some(state) = &self.state {
            variable(out, sim::STATE.as_ref(), Some(state.as_os_str()))?;
        }
        let file = self.file.as_deref().map(Path::as_os_str);
        variable(out, &name_of(paths::CONFIG), file)?;
        let carried = file.map(|_| OsStr::new("(the slice file, on one line)"));
        variable(out, &name_of(paths::SLICE), carried)?;
        if self.plan.writes_file() {
            writeln!(out, "\nlimit held by\n  {}", self.plan.fence)?;
        }
        if let (Some(slice), Some(file)) = (&self.plan.slice, &self.file) {
            writeln!(out, "\nfiles")?;
            self.files(out, slice, file)?;
        }
        let queried = if self.is_queried {
            "was queried"
        } else {
            "was not queried"
        };
        writeln!(
            out,
            "\nThe driver {queried}. Nothing was written, locked or started."
        )
    }
}

fn variable(out: &mut fmt::Formatter<'_>, name: &OsStr, value: Option<&OsStr>) -> fmt::Result {
    match value {
        Some(value) => writeln!(out, "  {}={}", name.display(), value.display()),
        None => writeln!(out, "  {} is removed", name.display()),
    }
}

impl Preview {
    fn files(&self, out: &mut fmt::Formatter<'_>, slice: &Slice, file: &Path) -> fmt::Result {
        let devices = self.plan.devices;
        let devices = format!("{devices} device{}", if devices == 1 { "" } else { "s" });
        if self.plan.writes_file() {
            writeln!(
                out,
                "  {} (a run adds the paths of its ledger and records):",
                file.display()
            )?;
            let text = slice.to_json();
            text.lines()
                .try_for_each(|line| writeln!(out, "    {line}"))?;
            let folder = file.parent().unwrap_or(file).display();
            writeln!(out, "  {folder}/ledger: the ledger, for {devices}")?;
        } else {
            writeln!(
                out,
                "  {}: the slice file, which stays as it is",
                file.display()
            )?;
            if let (Some(ledger), None) = (slice.ledger, slice.ledger_id) {
                let ledger = ledger.as_str();
                writeln!(
                    out,
                    "  {ledger}: the ledger, for {devices}, unless it exists"
                )?;
            }
        }
        if let Some((folder, memory)) = &self.promise {
            writeln!(out, "  {}/: a promise of {memory}", folder.display())?;
        }
        for budget in &self.admitted.budgets {
            writeln!(
                out,
                "  a record of {} among the tenants of {}",
                budget.memory, budget.uuid
            )?;
        }
        if let Some(folder) = &self.registry {
            writeln!(out, "  {}/: a link for gpuslice status", folder.display())?;
        }
        Ok(())
    }
}

/// Quotes a word of a command as a shell needs it.
fn quoted(word: &OsString) -> String {
    let word = crate::base::text::printable(&word.to_string_lossy());
    let plain = |letter: char| letter.is_alphanumeric() || "_-./=:,@%+".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
