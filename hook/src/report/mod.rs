//! `gpuslice report`: where the memory of the slices is, on the device and on the host, and what
//! of it grows.
//! Touches: what `gather` touches, standard output, the file of the plot.

mod allowance;
mod gather;
mod heap;
mod history;
mod host;
mod parts;
mod plot;
mod table;

use crate::replace::{self, Durability};
use crate::standard_streams;
use crate::status::driver::Drivers;
use crate::status::{no_such_slice, on_screen, tell_unread};
use anyhow::{Context, bail};
use gather::Report;
use history::History;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `gpuslice report`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Only this slice, by its name, or the process of this number
    #[arg(value_name = "SLICE|PID")]
    pub only: Option<String>,

    /// Show it again and again, until ^C
    #[arg(long)]
    pub watch: bool,

    /// Look for so many seconds, and show it once, at the end
    #[arg(long = "for", value_name = "SECONDS", conflicts_with = "watch")]
    pub seconds: Option<u64>,

    /// How many seconds lie between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,

    /// Print JSON; with --watch, one line each time
    #[arg(long)]
    pub json: bool,

    /// Draw it over time, with --watch or --for: an SVG picture, up to date as long as it is watched
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

const NOTES: &str = "\
DEVICE is what the process has allocated, CONTEXT what its contexts take. For a process of the slice
that has not loaded libgpuslice.so, DEVICE is what NVML reports, and a warning names it. HOST is
memory of its own that it uses, KEPT what it has freed and glibc's malloc keeps (malloc_trim would
give it back; ? with another allocator, another user's process, or heaps too large to walk in the
second that all slices share). MAPPED is page cache that it has mapped. What processes share is
divided between them. \"Everything else\" is what the machine uses less all that: the kernel,
drivers, other programs. Where pinned memory is also host memory, it is in both. ? is what cannot be
read.

Exit status: 0; 1 a slice or its ledger could not be read (its memory is ?, and null in JSON); 125
gpuslice itself failed, or was called wrongly.

JSON: slices [name, pid, user, file, no_slice, error, devices [device, unified, limit, used,
by_kind, without_library [pid, name, used]], processes [pid, name, device {by kind}, driver_used (by
NVML), host {live, kept, shmem, page_cache_mapped, swapped}, growth_per_minute {device, host, kept,
over_seconds}], page_cache_unmapped (of a cgroup of its own)], machine {total, available, slices,
unaccounted, page_cache_clean}. Amounts are bytes; null is what is not known, and
error says why.

Examples:
  gpuslice report --for 60                               once, and what has grown in a minute
  gpuslice report llama --watch --plot llama.svg         one slice, on screen and as a picture";

/// Shows it.
///
/// # Errors
/// When there is no such slice, or nothing can be printed or drawn.
pub fn main(args: &Args) -> anyhow::Result<u8> {
    if args.plot.is_some() && !args.watch && args.seconds.is_none() {
        bail!("--plot draws memory over time: add --watch or --for SECONDS");
    }
    let start = Instant::now();
    let mut history = History::new();
    let mut drivers = Drivers::default();
    let every = Duration::from_secs(args.every);
    let last = Duration::from_secs(args.seconds.unwrap_or(0));
    let screen = args.watch && !args.json && io::stdout().is_terminal();
    loop {
        let mut report = gather::report(&mut drivers);
        if let Some(only) = &args.only {
            choose(&mut report, only, !args.watch)?;
        }
        let now = start.elapsed();
        history.add(now, &mut report);
        if let Some(file) = &args.plot {
            draw(file, &history)?;
        }
        let ends = !args.watch && now >= last;
        if args.watch || ends {
            print(args, &report, screen)?;
        }
        if ends {
            let unread = report.slices.iter().filter_map(|it| it.unread.clone());
            return Ok(tell_unread(&unread.collect::<Vec<_>>()));
        }
        let left = last.saturating_sub(now);
        std::thread::sleep(if args.watch { every } else { every.min(left) });
    }
}

fn print(args: &Args, report: &Report, screen: bool) -> anyhow::Result<()> {
    let said = match (args.json, args.watch) {
        (true, false) => format!("{}\n", serde_json::to_string_pretty(report)?),
        (true, true) => format!("{}\n", serde_json::to_string(report)?),
        (false, _) if screen => on_screen(&table::table(report)),
        (false, true) => format!("{}\n", table::table(report)),
        (false, false) => table::table(report),
    };
    standard_streams::print(said.as_bytes())?;
    Ok(())
}

/// Leaves what a person has asked for.
fn choose(report: &mut Report, only: &str, must: bool) -> anyhow::Result<()> {
    let pid: Option<u32> = only.parse().ok();
    let found = |report: &Report| !report.slices.is_empty();
    let mut named = report.clone();
    named.slices.retain(|slice| slice.name == only);
    if !found(&named)
        && let Some(pid) = pid
    {
        named = report.clone();
        for slice in &mut named.slices {
            slice.processes.retain(|one| one.pid == pid);
        }
        named.slices.retain(|slice| !slice.processes.is_empty());
    }
    if must && !found(&named) {
        return Err(no_such_slice(only));
    }
    *report = named;
    Ok(())
}

/// Replaces the picture as a whole, so that a viewer never reads half of one.
fn draw(file: &Path, history: &History) -> anyhow::Result<()> {
    let drawn = plot::svg(&history.moments);
    replace::replace_with(file, drawn.as_bytes(), Durability::Cached)
        .with_context(|| format!("cannot draw {}", file.display()))
}
