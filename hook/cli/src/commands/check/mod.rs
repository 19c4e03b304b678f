//! `gpuslice check`: queries every API by every route, one child process per route, and compares
//! the answers.
//! Touches: processes (its own children), the slice file, standard output.
//!
//! The children run one after the other. `query/probe.rs` describes how their answers are made
//! comparable.
//!
//! | file | task |
//! |---|---|
//! | `query/apis.rs` | lists the queried functions: a new API is one entry there |
//! | `query/routes.rs`, `lookup.rs`, `linked.c` | find a function by each route |
//! | `query/probe.rs`, `devices.rs`, `vulkan.rs`, `opencl.rs` | implement the child process |
//! | `children.rs` | starts the children, and survives their crashes |
//! | `answers.rs`, `verdict.rs` | compare the answers, without side effects |
//! | `ledger.rs`, `unasked.rs` | report why a slice cannot be queried |
//! | `report.rs`, `table.rs`, `attribution.rs` | format the result for programs and for people |

mod answers;
pub(crate) mod attribution;
mod children;
mod ledger;
pub(crate) mod query;
mod report;
mod slice_shown;
mod survey;
mod table;
pub(crate) mod timeout;
mod unasked;
mod verdict;

use crate::base::{exit, streams, text};
use crate::commands::check::query::routes;
use crate::commands::devices;
use crate::driver::ask::AskError;
use crate::launch::facts::NoDriver;
use crate::launch::prepare::{self, Prepared};
use crate::slice::file::SliceFileError;
use crate::slice::options::SliceOptions;
use ledger::LedgerSeen;
use report::Report;
use slice_shown::SliceShown;
use std::time::Duration;
use survey::Survey;
use table::Look;
use timeout::Timeout;

/// Query every memory API by every route and compare the answers
#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = help())]
pub struct Args {
    #[command(flatten)]
    slice: SliceOptions,

    /// Print JSON for programs instead of a table
    #[arg(long)]
    json: bool,

    /// Show the table of answers also if they agree, and every function and route with its answer
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,

    /// The seconds that one route may take [default: 120 for the first route, which may have to
    /// load the driver; for each other route, three times the first one's time, and at least 10]
    #[arg(long, value_name = "SECONDS", value_parser = text::seconds)]
    timeout: Option<u64>,
}

fn help() -> String {
    format!(
        "\
Without options, check queries the memory as any program that is started here would. Inside
`gpuslice run` or a container with a slice, it queries that slice. The verdict comes first. The
table of answers follows if they disagree, or with --verbose.

The total of Vulkan and OpenCL is compared in a slice. Outside a slice, their definitions of a card's
memory differ from CUDA's; --verbose shows their answers. Without Vulkan or OpenCL, check goes on.

Routes:
{}
Exit status: 0 all answers agree (CONSISTENT); 1 answers disagree or the slice is not in force
(INCONSISTENT), or in a slice a function could not be queried (INCOMPLETE); 2 no working NVIDIA
driver; 125 usage error, or gpuslice itself failed.

JSON: schema; consistent; error (the reason why no driver works, or null); slice (null without one:
path, name, limit, total, present_as, headroom, fence (driver, preload or counted), devices [device,
limit, driver_limit (dmem, misc or null)], error); shim (the path of
libgpuslice.so, or null where a program did not load it); devices [device, name, integrated]; rows
[device, api, route, total, free, used, reserved, integrated, error]; disagreements [text];
incomplete [text] (functions of a slice that could not be queried, and why); skipped [api, route,
why]; notes [text]. Amounts are bytes, as the function reported them; null is what it does not
report.",
        routes::described()
    )
}

/// Runs the queries, compares the answers and prints the result.
///
/// # Errors
/// When the slice cannot be prepared, or the output cannot be written.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let (prepared, vars) = match changes_anything(&args.slice) {
        false => (None, Vec::new()),
        true => match prepare::prepare(&args.slice) {
            Ok(mut prepared) => {
                let vars = std::mem::take(&mut prepared.vars);
                (Some(prepared), vars)
            }
            Err(error) => return unprepared(args, error),
        },
    };
    for warning in prepared
        .iter()
        .flat_map(|prepared: &Prepared| prepared.warnings.iter().chain(&prepared.gaps))
    {
        streams::tell(warning);
    }
    prepared.as_ref().map_or(Ok(()), Prepared::enter)?;
    let slice = SliceShown::find(&vars);
    let ledger = slice.as_ref().and_then(LedgerSeen::find);
    let timeout = Timeout::new(args.timeout.map(Duration::from_secs));
    let survey = Survey::make(&vars, timeout)?;
    match survey.why_nothing_answers() {
        Some(why) => no_driver(args, survey, slice, why),
        None => {
            let is_asked_for = slice.is_some() || changes_anything(&args.slice);
            let mut report = Report::new(survey, slice, ledger.as_ref());
            if !is_asked_for {
                report.notes.extend(slice_shown::left_behind());
            }
            if args.slice.sim.is_none() {
                report.notes.extend(devices::stale::of_this_host());
            }
            finish(args, &report)
        }
    }
}

/// Checks whether the options require a prepared slice or environment.
fn changes_anything(options: &SliceOptions) -> bool {
    options.limits_something()
        || options.config.is_some()
        || options.sim.is_some()
        || options.bare
        || options.log.is_some()
        || options.log_file.is_some()
}

/// Reports a failed preparation. An unusable slice file is a result of the check, and a driver that
/// does not work has its own exit status. Neither counts as a failure of this command.
fn unprepared(args: &Args, error: anyhow::Error) -> anyhow::Result<u8> {
    if error.is::<SliceFileError>() {
        let slice = SliceShown::unusable(args.slice.config.as_deref(), format!("{error:#}"));
        return finish(args, &Report::new(Survey::default(), Some(slice), None));
    }
    if error.is::<NoDriver>() {
        return no_driver(args, Survey::default(), None, error.to_string());
    }
    match error.downcast_ref::<AskError>() {
        None | Some(AskError::Start(_)) => Err(error),
        Some(_) => {
            // A simulated machine that does not exist has no driver either, but the error is not
            // the driver's.
            let machine = args.slice.sim.as_deref();
            machine.map(prepare::simulated).transpose()?;
            no_driver(args, Survey::default(), None, error.to_string())
        }
    }
}

/// Reports that no driver function answers, so that there is nothing to compare.
fn no_driver(
    args: &Args,
    survey: Survey,
    slice: Option<SliceShown>,
    why: String,
) -> anyhow::Result<u8> {
    // Without a driver no limit applies, but an unusable slice is still reported.
    let unusable = slice.as_ref().and_then(|shown| shown.error.clone());
    if args.json {
        let report = Report::without_driver(survey, slice, why.clone());
        streams::print(report.to_json()?.as_bytes())?;
    }
    if let Some(error) = unusable {
        streams::tell(&error);
    }
    streams::tell(&why);
    Ok(exit::NO_DRIVER)
}

fn finish(args: &Args, report: &Report) -> anyhow::Result<u8> {
    let text = match args.json {
        true => report.to_json()?,
        false => table::text(report, &Look::of_output(args.verbose)),
    };
    streams::print(text.as_bytes())?;
    Ok(match report.consistent() {
        true => exit::SUCCESS,
        false => exit::INCONSISTENT,
    })
}
