//! `gpuslice headroom`: lists the headroom learned from earlier runs, and resets it.
//! Touches: everything `headroom_store` touches, standard output.

use crate::base::{exit, json, streams, text};
use crate::runs::headroom_store::{self, HeadroomsByName};
use serde::Serialize;

/// `gpuslice headroom`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// What to do instead of listing.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// What can be done with it.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Forget the learned headroom of one slice, or of all
    Reset(ResetArgs),
}

/// `gpuslice headroom reset`.
#[derive(clap::Args, Debug)]
pub struct ResetArgs {
    /// The name of the slice; without it, all slices
    pub name: Option<String>,
}

const NOTES: &str = "\
A program that sizes itself by TOTAL may request more than is left, and be refused. When a run
with a --name and --headroom learned ends, gpuslice remembers by how many bytes its worst refusal
was short. The next such run of that name shows a TOTAL that is smaller by this.

JSON: schema, headroom [name (of the slice), device (uuid), headroom]. Amounts are bytes.

Examples:
  gpuslice run --name llama --memory 12GiB --headroom learned -- vllm serve MODEL
  gpuslice headroom
  gpuslice headroom reset llama                          start over, for another model";

/// Lists or resets the headroom.
///
/// # Errors
/// When the stored headroom cannot be read or changed, or the list cannot be printed.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let place = headroom_store::place()?;
    let said = match &args.verb {
        None => {
            let learned = headroom_store::read(&place)?;
            match args.json {
                true => json(&learned)?,
                false => table(&learned),
            }
        }
        Some(Verb::Reset(ResetArgs { name: None })) => {
            headroom_store::forget_all(&place)?;
            String::new()
        }
        Some(Verb::Reset(ResetArgs { name: Some(name) })) => {
            let mut known = false;
            headroom_store::update(&place, |learned| known = learned.remove(name).is_some())?;
            match known {
                true => String::new(),
                false => format!(
                    "no headroom was learned for \"{}\"\n",
                    text::printable(name)
                ),
            }
        }
    };
    streams::print(said.as_bytes())?;
    Ok(exit::SUCCESS)
}

fn table(learned: &HeadroomsByName) -> String {
    if learned.values().all(|devices| devices.is_empty()) {
        return "no headroom has been learned\n".to_owned();
    }
    let mut rows = vec![["SLICE", "DEVICE", "HEADROOM"].map(String::from)];
    for (name, devices) in learned {
        rows.extend(devices.iter().map(|(uuid, headroom)| {
            [
                text::printable(name),
                uuid.to_string(),
                headroom.to_string(),
            ]
        }));
    }
    text::aligned(&rows)
}

/// The JSON output.
#[derive(Serialize)]
struct Json {
    headroom: Vec<Learned>,
}

/// The headroom of one slice on one GPU.
#[derive(Serialize)]
struct Learned {
    name: String,
    device: String,
    headroom: u64,
}

fn json(learned: &HeadroomsByName) -> serde_json::Result<String> {
    let all = learned.iter().flat_map(|(name, devices)| {
        devices.iter().map(|(uuid, headroom)| Learned {
            name: name.clone(),
            device: uuid.to_string(),
            headroom: headroom.get(),
        })
    });
    json::document(&Json {
        headroom: all.collect(),
    })
}
