//! `gpuslice devices`: lists the GPUs of this machine, by the names that other commands accept.
//! Touches: the driver (in a child), standard output; with `--write` the hook's list of GPUs.

use crate::base::exit::{self, Status};
use crate::base::streams;
use crate::base::streams::tell;
use crate::base::text;
use crate::driver::ask::{self, AskError};
use crate::driver::devices_file;
use crate::driver::inventory::Inventory;
use crate::launch::prepare::{self, Prepared};
use crate::slice::current as current_slice;
use crate::slice::file as slice_file;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::paths;
use gpuslice_config::words::units::Bytes;
use serde::Serialize;
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
Inside a slice, MEMORY is the whole GPU's and SLICE is the limit of the slice. Exit status 2: there
is no working NVIDIA driver.

--write writes the list of GPUs for the OCI hook, /run/gpuslice/devices.json, which requires root.
gpuslice-devices.service does so at boot. If there is no list, the hook of the next container writes
it. After a GPU was added, removed or divided by MIG, run `gpuslice devices --write` again: the hook
gives slices of the listed GPUs only. status, check and runtime configure name the differences.

JSON: driver, devices [index, cuda_ordinal, uuid, name, total, integrated, minor, driver_limits, mig
[uuid, cuda_ordinal, name, total, slice], slice (the limit, or null)]. Amounts are bytes.";

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
    let text = match args.json {
        true => json(&inventory, slice.as_ref())?,
        false => table(&inventory, slice.as_ref()),
    };
    streams::print(text.as_bytes())?;
    Ok(exit::SUCCESS)
}

/// Returns the slice that programs started here use.
fn own_slice() -> Option<Slice> {
    let named = std::env::var_os(OsStr::from_bytes(paths::CONFIG.to_bytes()));
    let file = current_slice::mounted().or_else(|| Some(PathBuf::from(named?)))?;
    slice_file::read(&file).ok()
}

/// Returns the slice's share of a GPU or an instance; None if the slice does not limit it.
fn share(slice: Option<&Slice>, uuid: DeviceUuid, total: u64) -> Option<Bytes> {
    let limit = slice?.device(uuid)?.memory;
    Some(limit.at_most(Bytes::new(total)))
}

/// A GPU, with the slice's share of it. The JSON has these fields in this order.
#[derive(Serialize)]
struct Shown<'a> {
    index: u32,
    cuda_ordinal: Option<u32>,
    uuid: String,
    name: &'a str,
    total: u64,
    integrated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    driver_limits: bool,
    mig: Vec<ShownInstance<'a>>,
    slice: Option<u64>,
}

/// A MIG instance, with the slice's share of it.
#[derive(Serialize)]
struct ShownInstance<'a> {
    uuid: String,
    cuda_ordinal: Option<u32>,
    name: &'a str,
    total: u64,
    slice: Option<u64>,
}

/// All GPUs, with the slice's shares.
#[derive(Serialize)]
struct ShownInventory<'a> {
    driver: Option<&'a str>,
    devices: Vec<Shown<'a>>,
}

fn json(inventory: &Inventory, slice: Option<&Slice>) -> anyhow::Result<String> {
    let share = |uuid, total| share(slice, uuid, total).map(Bytes::get);
    let devices = inventory.devices.iter().map(|it| {
        let mig = it.mig.iter().map(|it| ShownInstance {
            uuid: it.uuid.to_string(),
            cuda_ordinal: it.cuda_ordinal,
            name: &it.name,
            total: it.total,
            slice: share(it.uuid, it.total),
        });
        Shown {
            index: it.index,
            cuda_ordinal: it.cuda_ordinal,
            uuid: it.uuid.to_string(),
            name: &it.name,
            total: it.total,
            integrated: it.integrated,
            minor: it.minor,
            driver_limits: it.driver_limits,
            mig: mig.collect(),
            slice: share(it.uuid, it.total),
        }
    });
    let shown = ShownInventory {
        driver: inventory.driver.as_deref(),
        devices: devices.collect(),
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&shown)?))
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

fn table(inventory: &Inventory, slice: Option<&Slice>) -> String {
    let all = rows(inventory, slice);
    if slice.is_some() {
        return text::aligned(&all);
    }
    let without = all
        .into_iter()
        .map(|[index, cuda, uuid, memory, _, kind, name]| [index, cuda, uuid, memory, kind, name]);
    text::aligned(&without.collect::<Vec<_>>())
}

fn rows(inventory: &Inventory, slice: Option<&Slice>) -> Vec<[String; 7]> {
    let own = |uuid, total| {
        let share = share(slice, uuid, total);
        share.map_or("-".to_owned(), |share| share.to_string())
    };
    let number = |ordinal: Option<u32>| ordinal.map_or("-".to_owned(), |it| it.to_string());
    let mut rows =
        vec![["INDEX", "CUDA", "UUID", "MEMORY", "SLICE", "KIND", "NAME"].map(String::from)];
    for device in &inventory.devices {
        let kind = match (device.integrated, device.mig.is_empty()) {
            (true, _) => "unified",
            (false, true) => "discrete",
            (false, false) => "divided",
        };
        rows.push([
            device.index.to_string(),
            number(device.cuda_ordinal),
            device.uuid.to_string(),
            Bytes::new(device.total).to_string(),
            own(device.uuid, device.total),
            kind.to_owned(),
            device.name.clone(),
        ]);
        rows.extend(device.mig.iter().map(|instance| {
            [
                String::new(),
                number(instance.cuda_ordinal),
                instance.uuid.to_string(),
                Bytes::new(instance.total).to_string(),
                own(instance.uuid, instance.total),
                "instance".to_owned(),
                instance.name.clone(),
            ]
        }));
    }
    rows
}

pub(crate) mod stale;
#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;
