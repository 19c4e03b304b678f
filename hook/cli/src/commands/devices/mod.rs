//! `gpuslice devices`: lists the GPUs of this machine, by the names that other commands accept.
//! Touches: the driver (in a child), everything `gpuslice status` reads, standard output; with
//! `--write` the hook's list of GPUs.

use crate::base::exit::{self, Status};
use crate::base::streams;
use crate::base::streams::tell;
use crate::commands::status::driver::{Drivers, Machine};
use crate::commands::status::model::CardStatus;
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use crate::driver::ask::{self, AskError};
use crate::driver::devices_file;
use crate::driver::inventory::Inventory;
use crate::launch::prepare::{self, Prepared};
use crate::slice::current as current_slice;
use crate::slice::{file as slice_file, ledger as slice_ledger};
use gpuslice_config::slice::Slice;
use gpuslice_config::words::paths;
use gpuslice_host::base::paths::HostPaths;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `gpuslice devices`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write the list of GPUs for the OCI hook, instead of printing it
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = devices_file::DEVICES, conflicts_with = "json")]
    pub write: Option<PathBuf>,

    /// The GPUs of a simulated machine, as in `gpuslice run`
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,
}

const NOTES: &str = "\
MEMORY        the memory that programs can use in total
USED          the part of it in use by all programs; on unified memory, by the whole machine
IN SLICES     the part that the slices count
LEFT TO GIVE  the memory that another slice can be given
SLICE         inside a slice: its limit and its name
FENCE         what enforces the limit of a slice: the driver, where it can limit cgroups (by the
              kernel's dmem controller, or by a table of its own: misc), or the preloaded library.
              The driver holds those of containers and of root's runs

USED, IN SLICES and LEFT TO GIVE are shown where they are known: not for --sim without running
slices. - is an unknown amount. Exit status 2: there is no working NVIDIA driver.

--write writes the list of GPUs for the OCI hook, /run/gpuslice/devices.json, which requires root.
gpuslice-devices.service does so at boot. If there is no list, the hook of the next container writes
it. After a GPU was added, removed or divided by MIG, run `gpuslice devices --write` again: the hook
gives slices of the listed GPUs only. status, check and runtime configure name the differences.

JSON: schema, driver, slice {name} (inside a slice, or null), devices [index, cuda_ordinal, device,
name, total, used, in_slices, outside_slices, limits_sum, left_to_give, integrated, minor,
driver_limits, fence (driver or preload), driver_limit (dmem, misc or null), fence_reason (why it is
preload), mig [device, cuda_ordinal, name, total, used, in_slices, outside_slices, limits_sum,
left_to_give, limit], limit (of the slice here, or null)]. Amounts are bytes. null means unknown.";

/// Prints the list.
///
/// # Errors
/// When no driver works ([`exit::NO_DRIVER`]), or the list cannot be printed.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    if let Some(file) = &args.write {
        devices_file::refuse_simulated(args.sim.as_deref(), file)?;
    }
    let inventory = list(args.sim.as_deref())?;
    if let Some(file) = &args.write {
        devices_file::write(file, &devices_file::text(&inventory)?)?;
        let count = inventory.devices.len();
        let gpus = if count == 1 { "GPU" } else { "GPUs" };
        tell(&format!("{count} {gpus} listed in {}", file.display()));
        return Ok(exit::SUCCESS);
    }
    // The slice of this process does not apply to a simulated machine that an option names.
    let slice = args.sim.is_none().then(own_slice).flatten();
    let cards = card_statuses(args.sim.as_deref());
    let text = match args.json {
        true => shown::json(&inventory, slice.as_ref(), &cards)?,
        false => shown::table(&inventory, slice.as_ref(), &cards),
    };
    streams::print(text.as_bytes())?;
    Ok(exit::SUCCESS)
}

/// Returns the GPUs with the slices' share of them. Those of a simulated machine (`sim`) are known if
/// the environment names the folder of its state, and slices run on it.
fn card_statuses(sim: Option<&str>) -> Vec<CardStatus> {
    let Some(machine) = sim.map_or(Some(Machine::Real), Machine::named) else {
        return Vec::new();
    };
    let places = HostPaths::default();
    let now = Snapshot::take(&places, &Processes::default(), &mut Drivers::default());
    let cards = now.cards.into_iter();
    cards.filter(|card| card.machine == machine).collect()
}

/// Returns the slice that programs started here use.
fn own_slice() -> Option<Slice> {
    let named = std::env::var_os(OsStr::from_bytes(paths::CONFIG.to_bytes()));
    let file = current_slice::mounted().or_else(|| Some(PathBuf::from(named?)))?;
    let mut slice = slice_file::read(&file).ok()?;
    slice_ledger::apply_limits(&file, &mut slice);
    Some(slice)
}

/// Lists the GPUs of this machine, or of a simulated one.
///
/// # Errors
/// When no driver works ([`exit::NO_DRIVER`]).
pub(crate) fn list(sim: Option<&str>) -> anyhow::Result<Inventory> {
    let machine = sim.map(prepare::simulated).transpose()?;
    ask::ask(
        &variables(machine.as_ref()),
        "querying the driver for its GPUs",
    )
    .map_err(no_driver)
}

/// Returns the variables that a simulated machine sets; none for this machine.
#[must_use]
pub(crate) fn variables(machine: Option<&Prepared>) -> Vec<(OsString, OsString)> {
    let set = machine.into_iter().flat_map(|machine| &machine.vars);
    set.filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
        .collect()
}

fn no_driver(error: AskError) -> anyhow::Error {
    match error {
        // The driver was not queried.
        AskError::Start(_) => error.into(),
        _ => Status {
            status: exit::NO_DRIVER,
            message: error.to_string(),
        }
        .into(),
    }
}

mod shown;
pub(crate) mod stale;
