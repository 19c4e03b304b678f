//! `gpuslice plan`: whether the slices of a file fit together on this machine.
//! Touches: slices files, the driver (in a child), standard output.

mod engine;
mod report;

use crate::base::{exit, streams};
use crate::launch::fit;
use crate::slice::slices_file::places::{self, Use};
use report::Report;
use std::path::PathBuf;

/// `gpuslice plan`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The slices file [default: ~/.config/gpuslice/slices.toml and /etc/gpuslice/slices.toml]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Plan for a simulated machine: gb10, 2xh200 or another of gpuslice run --sim
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,

    /// Print JSON for programs
    #[arg(long)]
    pub json: bool,
}

const NOTES: &str = "\
The slices are admitted in the order of the file, as gpuslice run would admit them if none ran yet.
Slices that run now, and those of containers, are not counted. For a command with vLLM's
--gpu-memory-utilization or SGLang's --mem-fraction-static, plan prints the most that its cache can
be: activations, CUDA graphs and the context reduce it. vLLM's --kv-cache-memory-bytes replaces the
fraction. The key weights gives the model's size.

JSON: schema; fits; files [path]; devices [device, index, name, total, unified, limits (their sum),
left, slices [name, limit]]; host (null on a machine without unified memory: available, reserve,
left); slices [name, file, line, fits, overcommits, refusal, fits_with, warnings, engine (null, or
engine, fraction (null if none sizes the cache), of, taken, weights, cache_at_most, fault)]. Amounts
are bytes.

Examples:
  gpuslice plan                              the slices of this user and of this host
  gpuslice plan --sim gb10 slices.toml       on a simulated DGX Spark";

/// Prints whether the slices fit.
///
/// # Errors
/// When a file cannot be used, or the driver does not answer.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let slices = places::read_all(args.file.as_deref(), Use::Show)?;
    let fit = fit::fit(&slices.found, args.sim.as_deref())?;
    let report = Report::new(&slices, &fit);
    let text = match args.json {
        true => report.json()?,
        false => report.text(),
    };
    streams::print(text.as_bytes())?;
    Ok(match report.fits {
        true => exit::SUCCESS,
        false => exit::DOES_NOT_FIT,
    })
}
