//! `gpuslice gc`: what dead runs and dead containers have left goes.
//! Touches: the registry of runs; for root, the OCI hook's folder on the host.

use crate::{exit, registry, standard_streams};
use anyhow::Context;
use gpuslice_oci::gc;
use gpuslice_oci::place::Places;
use gpuslice_oci::registry::{Record, Registry};
use std::fs;
use std::path::PathBuf;

/// `gpuslice gc`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Remove records of slices, too, that cannot be read
    #[arg(long)]
    pub force: bool,

    /// The hook's folders are below this one (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

const NOTES: &str = "\
Nothing that lives is touched. The OCI hook does the same whenever a container starts, so this is
for hosts where none starts for a long time: gpuslice-gc.timer runs it.";

/// Collects.
///
/// # Errors
/// When something that nobody holds cannot be removed.
pub fn main(args: &Args) -> anyhow::Result<u8> {
    // What is left of runs goes when they are listed.
    let runs = registry::running().len();
    let places = args.root.as_ref().map(Places::below).unwrap_or_default();
    let mut said = String::new();
    let mut removed = |what: &str, names: Vec<String>| {
        for name in names {
            said.push_str(&format!("removed {what} {name}\n"));
        }
    };
    if may_collect(&places) {
        if args.force {
            removed("the record", unreadable(&places)?);
        }
        let collected = gc::collect(&places).context("cannot remove what containers have left")?;
        removed("container", collected.containers);
        removed("slice", collected.slices);
    }
    if said.is_empty() {
        said = match runs {
            0 => "nothing to remove\n".to_owned(),
            _ => format!("nothing to remove; {runs} of this user's runs are there\n"),
        };
    }
    standard_streams::print(said.as_bytes())?;
    Ok(exit::SUCCESS)
}

/// Others than root have no slices of containers.
fn may_collect(places: &Places) -> bool {
    nix::unistd::geteuid().is_root() && places.slices().exists()
}

/// Removes the records that are none.
fn unreadable(places: &Places) -> anyhow::Result<Vec<String>> {
    // Whoever writes one holds it.
    let lock = Registry::lock(places)?;
    let mut removed = Vec::new();
    let folder = places.slices();
    let listed =
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in listed {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if serde_json::from_slice::<Record>(&text).is_err() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            removed.push(path.display().to_string());
        }
    }
    drop(lock);
    Ok(removed)
}
