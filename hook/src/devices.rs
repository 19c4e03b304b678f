//! `gpuslice devices`: the GPUs of this machine, by the names that other verbs take.
//! Touches: the driver (in a child), standard output.

use crate::exit::{self, Status};
use crate::inventory::{Inventory, ask};
use crate::sim::{self, Sim};
use crate::text;
use anyhow::Context;
use gpuslice_config::units::Bytes;
use std::env;
use std::io::{self, Write};

/// `gpuslice devices`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// The GPUs of a simulated machine, as in `gpuslice run`
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,
}

/// Prints the list.
///
/// # Errors
/// When there is no driver that works ([`exit::NO_DRIVER`]), or nothing can be printed.
pub fn main(args: &Args) -> anyhow::Result<u8> {
    let mut vars = Vec::new();
    if let Some(machine) = &args.sim {
        let executable = env::current_exe().context("cannot find out where gpuslice is")?;
        let sim = Sim::find(machine, executable.parent().unwrap_or(&executable))?;
        vars = sim.vars(env::var_os(sim::LIBRARY_PATH).as_deref());
    }
    let inventory = ask::ask(&vars).map_err(|error| Status {
        status: exit::NO_DRIVER,
        message: error.to_string(),
    })?;
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&inventory)?),
        false => table(&inventory),
    };
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(exit::SUCCESS)
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
