//! `gpuslice gc`: removes the files of runs and containers that have ended.
//! Touches: the registry of runs; for root, the OCI hook's folder on the host.

use crate::base::{exit, streams};
use crate::runs::registry;
use anyhow::{Context, bail};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::gc::{self, Unreadable};
use std::path::PathBuf;

/// `gpuslice gc`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Remove records of slices, too, that cannot be read, where nothing says that their container
    /// lives
    #[arg(long)]
    pub force: bool,

    /// The hook's folders are below this one (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

const NOTES: &str = "\
Nothing that lives is touched. The OCI hook does the same whenever a container starts, so this is
for hosts where none starts for a long time: gpuslice-gc.timer runs it.";

/// Removes the files, and reports them.
///
/// # Errors
/// When files that no process uses cannot be removed.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    // Listing the runs also removes the files of ended runs.
    let runs = registry::running().len();
    let places = args.root.as_ref().map(HostPaths::below).unwrap_or_default();
    let mut said = String::new();
    let mut removed = |what: &str, names: Vec<String>| {
        for name in names {
            said.push_str(&format!("removed {what} {name}\n"));
        }
    };
    let mut left = Vec::new();
    if may_collect(&places) {
        let unreadable = match args.force {
            true => Unreadable::Remove,
            false => Unreadable::Keep,
        };
        let collected = gc::collect_all(&places, unreadable);
        let collected = collected.context("cannot remove what containers have left")?;
        let records = collected.records.iter();
        removed(
            "the record",
            records.map(|path| path.display().to_string()).collect(),
        );
        removed("container", collected.containers);
        removed("slice", collected.slices);
        left = collected.failures;
    }
    if said.is_empty() && left.is_empty() {
        said = match runs {
            0 => "nothing to remove\n".to_owned(),
            _ => format!("nothing to remove; {runs} of this user's runs are there\n"),
        };
    }
    streams::print(said.as_bytes())?;
    match left.is_empty() {
        true => Ok(exit::SUCCESS),
        false => bail!("{}", left.join("\ngpuslice: ")),
    }
}

/// Checks whether this user may collect containers' slices. Only root may, and only if the folder
/// exists.
fn may_collect(places: &HostPaths) -> bool {
    nix::unistd::geteuid().is_root() && places.slices().exists()
}
