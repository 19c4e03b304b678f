//! `gpuslice check`: asks every API by every route, in a child for each route, and compares.
//! Touches: processes (its own children), the slice file, standard output.
//!
//! The children run one after the other. What makes their answers one truth is told in [`probe`].
//!
//! | file | what it is for |
//! |---|---|
//! | `apis.rs` | what is asked: a new API is one entry there |
//! | `routes.rs`, `lookup.rs`, `linked.c` | how its function is found |
//! | `probe.rs`, `devices.rs` | the child |
//! | `children.rs` | starting it and surviving it |
//! | `answers.rs`, `verdict.rs` | what disagrees, purely |
//! | `report.rs`, `table.rs`, `who.rs` | the same for programs and for people |

mod abi;
mod answers;
mod apis;
mod children;
mod codes;
mod devices;
mod dl;
mod lookup;
pub mod probe;
mod report;
mod routes;
mod row;
mod slice_shown;
mod survey;
mod table;
mod tell;
mod verdict;
mod who;

use crate::environment::{self, Prepared};
use crate::exit;
use crate::slice_file::SliceFileError;
use crate::slice_options::SliceOptions;
use anyhow::Context;
use report::Report;
use slice_shown::SliceShown;
use std::io::{self, Write};
use std::time::Duration;
use survey::Survey;

/// Ask every memory API by every route and compare the answers
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    slice: SliceOptions,

    /// Print JSON for programs instead of a table
    #[arg(long)]
    json: bool,

    /// List every function and route with its answer
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,

    /// How long one route may take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

fn help() -> String {
    format!(
        "\
Without options for a slice or a machine, check sees what any program started here sees: inside
`gpuslice run` or a container, that container's slice.

Routes:
{}
Exit status: 0 all answers agree, 1 they do not, 2 there is no NVIDIA driver.

JSON: consistent; slice (null without one: path, name, memory, total, present_as, headroom,
devices, error); shim (the path of libgpuslice.so, or null where a program did not load it);
devices [device, name, integrated]; rows [device, api, route, total, free, used, reserved,
integrated, error]; disagreements [text]; skipped [api, route, why]; notes [text]. Amounts are
bytes, as the function told them; null is what it does not tell.",
        routes::described()
    )
}

/// Asks, compares and tells.
///
/// # Errors
/// When what was asked for cannot be prepared, or the output cannot be written.
pub fn main(args: &Args) -> anyhow::Result<u8> {
    let (prepared, vars) = match changes_anything(&args.slice) {
        false => (None, Vec::new()),
        true => match environment::prepare(&args.slice) {
            Ok(mut prepared) => {
                let vars = std::mem::take(&mut prepared.vars);
                (Some(prepared), vars)
            }
            Err(error) => return unusable(args, error),
        },
    };
    for warning in prepared
        .iter()
        .flat_map(|prepared: &Prepared| &prepared.warnings)
    {
        crate::cli::tell(warning);
    }
    prepared.as_ref().map_or(Ok(()), Prepared::enter)?;
    let slice = SliceShown::find(&vars);
    let patience = Duration::from_secs(args.timeout);
    let survey = Survey::make(&vars, patience)?;
    if survey.no_driver() {
        crate::cli::tell(&survey.why_no_driver());
        return Ok(exit::NO_DRIVER);
    }
    finish(args, &Report::new(survey, slice))
}

/// Whether there is anything to prepare.
fn changes_anything(options: &SliceOptions) -> bool {
    options.limits_something()
        || options.config.is_some()
        || options.sim.is_some()
        || options.bare
        || options.log.is_some()
        || options.log_file.is_some()
}

/// A slice file that cannot be used is a finding, not a failure of ours.
fn unusable(args: &Args, error: anyhow::Error) -> anyhow::Result<u8> {
    match error.downcast_ref::<SliceFileError>() {
        None => Err(error),
        Some(_) => {
            let slice = SliceShown::unusable(args.slice.config.as_deref(), format!("{error:#}"));
            finish(args, &Report::new(Survey::default(), Some(slice)))
        }
    }
}

fn finish(args: &Args, report: &Report) -> anyhow::Result<u8> {
    let text = match args.json {
        true => report.to_json()?,
        false => table::table(report, args.verbose),
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write the answer")?;
    Ok(match report.consistent() {
        true => exit::SUCCESS,
        false => exit::INCONSISTENT,
    })
}
