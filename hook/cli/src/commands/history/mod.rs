//! `gpuslice history`: lists the runs and containers that had a slice, and draws their use of memory.
//! Touches: the event files, the history of runs, standard output, the plot's file.

mod gather;
mod picture;
mod table;

use crate::base::{exit, streams, text};
use crate::commands::events::since;
use crate::commands::plot;
use anyhow::bail;
use gather::{Gathered, RunRow};
use serde::Serialize;
use std::path::PathBuf;
use std::time::SystemTime;

/// `gpuslice history`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Only the slice or the container with this name, or the container with this id
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Only what still ran then: 30s, 10min, 1h30m, 2d ago, a local time (2026-11-23 09:00:05), or
    /// a time with its zone (2026-11-23T08:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<SystemTime>,

    /// Print JSON, with NAME also the use of memory over time
    #[arg(long)]
    pub json: bool,

    /// Draw the used memory and the limit over time to an SVG file: the last run of each slice, or
    /// with --since the runs since then. At most 64 panels (one for each slice and GPU), the newest
    /// first
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

const NOTES: &str = "\
PEAK is the highest use that was seen, sampled once a second; it is ? for containers. REFUSED is
the number of refused allocations. The list comes from the events (gpuslice events), so it reaches
as far back as they do. The use of memory over time is kept for the last 200 runs of a user, in the
folder history beside the events, with at most 2,000 points each: where points were merged, the
highest use stays.

Exit status: 0 success; 1 an event file could not be read; 125 nothing to draw, usage error, or
gpuslice itself failed.

JSON: schema, runs [name, pid, user, container, simulated, running, started, ended, duration
(seconds), devices [device, limit, peak, count], points [milliseconds since the start, and for each
device the used bytes and the refused allocations so far], limits [milliseconds since the start, and
for each device the limit from then on; empty for a run that was not resized]]. Amounts are bytes.
null means unknown.

Examples:
  gpuslice history --since 1d                            what ran since yesterday
  gpuslice history llama --plot llama.svg                the last run of a slice, as a picture";

/// The JSON output.
#[derive(Serialize)]
struct History<'a> {
    schema: u64,
    runs: &'a [RunRow],
}

/// Prints or draws the history.
///
/// # Errors
/// When it cannot be printed or drawn, or there is nothing to draw.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let needs_points = args.plot.is_some() || (args.json && args.name.is_some());
    let gathered = gather::gather(args.name.as_deref(), args.since, needs_points);
    let Gathered { mut rows, faults } = gathered;
    faults.iter().for_each(|fault| streams::tell(fault));
    let status = if faults.is_empty() {
        exit::SUCCESS
    } else {
        exit::UNREAD
    };
    if let Some(file) = &args.plot {
        let Some(figure) = picture::figure(&rows, args.since.is_some()) else {
            bail!("{}", nothing_to_draw(args));
        };
        plot::write(file, &figure)?;
        if !args.json {
            return Ok(status);
        }
    }
    if args.name.is_none() {
        for row in &mut rows {
            (row.points, row.limits) = (None, None);
        }
    }
    let said = match args.json {
        true => {
            let history = History {
                schema: gpuslice_host::events::SCHEMA,
                runs: &rows,
            };
            format!("{}\n", serde_json::to_string_pretty(&history)?)
        }
        false if rows.is_empty() => {
            if faults.is_empty() {
                streams::tell(&format!("no run{} is known", of(args)));
            }
            return Ok(status);
        }
        false => table::table(&rows),
    };
    streams::print(said.as_bytes())?;
    Ok(status)
}

fn of(args: &Args) -> String {
    match &args.name {
        Some(name) => format!(" of \"{}\"", text::printable(name)),
        None => String::new(),
    }
}

fn nothing_to_draw(args: &Args) -> String {
    format!(
        "there is nothing to draw: no run{} was recorded with its use of memory (gpuslice history lists \
         the runs; containers have no such record)",
        of(args)
    )
}
