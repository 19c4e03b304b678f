//! `gpuslice devices`: the GPUs of this machine, by the names that other verbs take.
//! Touches: the driver (in a child), standard output; with `--write` the hook's list.

use crate::cli::tell;
use crate::devices_file;
use crate::environment::{self, Prepared};
use crate::exit::{self, Status};
use crate::inventory::Inventory;
use crate::inventory::ask::{self, AskError};
use crate::slice_options::SliceOptions;
use crate::standard_streams;
use crate::text;
use gpuslice_config::units::Bytes;
use std::ffi::OsString;
use std::path::PathBuf;

/// `gpuslice devices`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write the list that containers are given slices by, instead of printing it
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = devices_file::DEVICES, conflicts_with = "json")]
    pub write: Option<PathBuf>,

    /// The GPUs of a simulated machine, as in `gpuslice run`
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,
}

/// Prints the list.
///
/// # Errors
/// When there is no driver that works ([`exit::NO_DRIVER`]), or nothing can be printed.
pub fn main(args: &Args) -> anyhow::Result<u8> {
    let inventory = list(args.sim.as_deref())?;
    if let Some(file) = &args.write {
        devices_file::write(file, &devices_file::text(&inventory)?)?;
        let count = inventory.devices.len();
        let gpus = if count == 1 { "GPU" } else { "GPUs" };
        tell(&format!("{count} {gpus} listed in {}", file.display()));
        return Ok(exit::SUCCESS);
    }
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&inventory)?),
        false => table(&inventory),
    };
    standard_streams::print(text.as_bytes())?;
    Ok(exit::SUCCESS)
}

/// The GPUs of this machine, or of a simulated one.
///
/// # Errors
/// When there is no driver that works ([`exit::NO_DRIVER`]).
pub fn list(sim: Option<&str>) -> anyhow::Result<Inventory> {
    let machine = sim.map(simulated).transpose()?;
    ask::ask(&variables(machine.as_ref()), "it is asked for its GPUs").map_err(no_driver)
}

/// The variables that a simulated machine sets; none for this one.
#[must_use]
pub fn variables(machine: Option<&Prepared>) -> Vec<(OsString, OsString)> {
    let set = machine.into_iter().flat_map(|machine| &machine.vars);
    set.filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
        .collect()
}

/// A simulated machine, started.
///
/// # Errors
/// When there is no such machine, which is another fault than a driver that does not work.
pub fn simulated(machine: &str) -> anyhow::Result<Prepared> {
    environment::prepare(&SliceOptions {
        sim: Some(machine.to_owned()),
        bare: true,
        ..SliceOptions::default()
    })
}

fn no_driver(error: AskError) -> anyhow::Error {
    match error {
        // It was not asked.
        AskError::Start(_) => error.into(),
        _ => Status {
            status: exit::NO_DRIVER,
            message: error.to_string(),
        }
        .into(),
    }
}

fn table(inventory: &Inventory) -> String {
    let number = |ordinal: Option<u32>| ordinal.map_or("-".to_owned(), |it| it.to_string());
    let mut rows = vec![["INDEX", "CUDA", "UUID", "MEMORY", "KIND", "NAME"].map(String::from)];
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
            kind.to_owned(),
            device.name.clone(),
        ]);
        rows.extend(device.mig.iter().map(|instance| {
            [
                String::new(),
                number(instance.cuda_ordinal),
                instance.uuid.to_string(),
                Bytes::new(instance.total).to_string(),
                "instance".to_owned(),
                instance.name.clone(),
            ]
        }));
    }
    text::aligned(&rows)
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;
