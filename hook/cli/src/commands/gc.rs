//! `gpuslice gc`: removes the files of runs and containers that have ended.
//! Touches: the registry of runs and their records among the tenants; for root, the OCI hook's folder on the host.

use crate::base::{exit, json, streams};
use crate::driver::sim;
use crate::runs::{registry, tenancy};
use anyhow::{Context, bail};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::gc::{self, Unreadable};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// `gpuslice gc`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Also remove slice records that cannot be read, unless their container is known to run
    #[arg(long)]
    pub force: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// The hook's folders are below this one (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

const NOTES: &str = "\
Running programs and containers are not touched. The OCI hook also cleans up whenever a container
starts. On hosts where no container starts for a long time, gpuslice-gc.timer runs gpuslice gc.
A run's watcher removes the run's files. If the watcher was killed, the next gpuslice run, status,
history or gc of the same user removes them; a command of root does not. Only root can remove what
containers have left: the output names these.

JSON: schema, removed [kind (record, container or slice), name], failures [text], runs (of this
user, that are running).";

/// The JSON output.
#[derive(Serialize)]
struct Json {
    removed: Vec<Removed>,
    failures: Vec<String>,
    runs: usize,
}

/// A removed thing.
#[derive(Serialize)]
struct Removed {
    kind: &'static str,
    name: String,
}

/// Removes the files, and reports them.
///
/// # Errors
/// When files that no process uses cannot be removed.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    // Listing the runs also removes the files of ended runs.
    let before = registry::link_names();
    let runs = registry::running().len();
    let ended = before
        .difference(&registry::link_names())
        .cloned()
        .collect();
    let simulated = std::env::var_os(sim::STATE).filter(|state| !state.is_empty());
    tenancy::remove_ended(simulated.as_deref().map(Path::new));
    let places = args.root.as_ref().map(HostPaths::below).unwrap_or_default();
    let mut removed = Vec::new();
    let mut add = |kind: &'static str, names: Vec<String>| {
        removed.extend(names.into_iter().map(|name| Removed { kind, name }));
    };
    add("run", ended);
    let mut failures = Vec::new();
    if may_collect(&places) {
        let unreadable = match args.force {
            true => Unreadable::Remove,
            false => Unreadable::Keep,
        };
        let collected = gc::collect_all(&places, unreadable);
        let collected = collected.context("cannot remove what containers have left")?;
        let records = collected.records.iter();
        add(
            "record",
            records.map(|path| path.display().to_string()).collect(),
        );
        add("container", collected.containers);
        add("slice", collected.slices);
        failures = collected.failures;
    }
    let result = Json {
        removed,
        failures,
        runs,
    };
    let said = match args.json {
        true => json::document(&result)?,
        false => result.text(),
    };
    streams::print(said.as_bytes())?;
    match result.failures.is_empty() {
        true => Ok(exit::SUCCESS),
        false => bail!("{}", result.failures.join("\ngpuslice: ")),
    }
}

impl Json {
    fn text(&self) -> String {
        if !self.removed.is_empty() || !self.failures.is_empty() {
            let removed = self.removed.iter();
            return removed
                .map(|Removed { kind, name }| match *kind {
                    "record" => format!("removed the record {name}\n"),
                    kind => format!("removed {kind} {name}\n"),
                })
                .collect();
        }
        match self.runs {
            0 => "nothing to remove\n".to_owned(),
            1 => "nothing to remove; 1 run of this user is running\n".to_owned(),
            runs => format!("nothing to remove; {runs} runs of this user are running\n"),
        }
    }
}

/// Checks whether this user may collect containers' slices. Only root may, and only if the folder
/// exists.
fn may_collect(places: &HostPaths) -> bool {
    nix::unistd::geteuid().is_root() && places.slices().exists()
}
