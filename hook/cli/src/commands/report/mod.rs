//! `gpuslice report`: shows where the slices' memory is, on the device and on the host, and how it
//! grows.
//! Touches: everything `gather` touches, standard output, the plot's file.

mod allowance;
mod gather;
mod heap;
mod history;
mod host;
mod parts;
mod plot;
mod table;

use crate::base::{exit, json, streams, text};
use crate::commands::plot::write;
use crate::commands::status::driver::Drivers;
use crate::commands::status::show::{self, screen::Screen};
use crate::commands::status::{no_such_slice, on_screen, tell_unread};
use anyhow::bail;
use gather::Report;
use history::History;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// `gpuslice report`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Only the slice with this name, or the process with this pid
    #[arg(value_name = "SLICE|PID")]
    pub only: Option<String>,

    /// Refresh at the interval of --every, until ^C
    #[arg(long)]
    pub watch: bool,

    /// Measure for this many seconds, and print once at the end
    #[arg(long = "for", value_name = "SECONDS", conflicts_with = "watch")]
    pub seconds: Option<u64>,

    /// Seconds between two measurements
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = text::seconds)]
    pub every: u64,

    /// Print JSON; with --watch, one line per refresh
    #[arg(long)]
    pub json: bool,

    /// Draw the memory over time to an SVG file, with --watch or --for
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

const NOTES: &str = "\
DEVICE    device memory that the process has allocated; for a process without libgpuslice.so, which
          a warning names, the amount that NVML reports
CONTEXT   device memory of its CUDA contexts; a GPU's line shows the sum of DEVICE and CONTEXT
HOST      private host memory in use
KEPT      host memory that the process has freed and glibc's malloc keeps (malloc_trim returns it)
SHMEM     shared memory: tmpfs, memfd, System V
MAPPED    page cache that it has mapped

Memory that several processes share is divided among them. Shared memory and files that a
program has registered with CUDA are in DEVICE, too. \"Everything else\" is the memory that the
machine uses outside the slices: the kernel, drivers and other programs.

? is an unknown amount. DEVICE is unknown if the ledger cannot be read. KEPT is unknown with another
allocator, for another user's process, and for heaps that take too long to walk (all slices share
about one second).

Exit status: 0 success; 1 a slice or its ledger could not be read; 125 usage error, nothing to draw,
or gpuslice itself failed.

JSON: schema, slices [name, pid, user, file, no_slice, error, devices [device, unified, limit, used,
by_kind, without_library [pid, name, used]], processes [pid, name, device {by kind}, driver_used (by
NVML), host {live, kept, shmem, page_cache_mapped, swapped}, growth_per_minute {device, host, kept,
over_seconds}], page_cache_unmapped (of a cgroup of its own)], machine {total, available, slices,
unaccounted, page_cache_clean}. Amounts are bytes. null means unknown, and error is the reason.

Examples:
  gpuslice report --for 60                               once, and what has grown in a minute
  gpuslice report llama --watch --plot llama.svg         one slice, on screen and as a picture";

/// Measures and prints the report.
///
/// # Errors
/// When the slice does not exist, or the report cannot be printed or drawn.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    if args.plot.is_some() && !args.watch && args.seconds.is_none() {
        bail!("--plot draws memory over time: add --watch or --for SECONDS");
    }
    let (start, began) = (Instant::now(), SystemTime::now());
    let mut history = History::new();
    let mut seen: Option<Report> = None;
    let mut drivers = Drivers::default();
    let every = Duration::from_secs(args.every);
    let last = Duration::from_secs(args.seconds.unwrap_or(0));
    let screen = args.watch && !args.json && io::stdout().is_terminal();
    loop {
        let mut report = gather::report(&mut drivers);
        if let Some(only) = &args.only {
            let is_there = choose(&mut report, only);
            if let (false, false, Some(before)) = (is_there, args.watch, &seen) {
                streams::tell_progress("");
                streams::tell(&format!("{only} has ended: these are its last numbers"));
                print(args, before, screen)?;
                return Ok(exit::SUCCESS);
            }
            if !is_there && !args.watch {
                return Err(no_such_slice(only));
            }
        }
        let now = start.elapsed();
        history.add(now, &mut report);
        seen = Some(report.clone());
        let drawn = args.plot.as_deref().map(|file| draw(file, &history, began));
        let drawn = drawn.transpose()?.unwrap_or(true);
        let ends = !args.watch && now >= last;
        streams::tell_progress("");
        if args.watch || ends {
            print(args, &report, screen)?;
        }
        if ends {
            if !drawn {
                bail!("there is nothing to draw: no slice was running");
            }
            let unread = report.slices.iter().filter_map(|it| it.unread.clone());
            return Ok(tell_unread(&unread.collect::<Vec<_>>()));
        }
        let left = last.saturating_sub(now);
        if !args.watch {
            streams::tell_progress(&format!("measuring: {} s left", left.as_secs()));
        }
        std::thread::sleep(if args.watch { every } else { every.min(left) });
    }
}

fn print(args: &Args, report: &Report, screen: bool) -> anyhow::Result<()> {
    let said = match (args.json, args.watch) {
        (true, false) => json::document(report)?,
        (true, true) => json::line(report)?,
        (false, _) if screen => {
            let head = format!("gpuslice report  {}  every {} s", show::clock(), args.every);
            let text = table::table(report);
            on_screen(&show::page(
                &head,
                &text,
                "gpuslice report NAME shows one slice",
                &Screen::of_stdout(),
            ))
        }
        (false, true) => format!("{}\n", table::table(report)),
        (false, false) => table::table(report),
    };
    streams::print(said.as_bytes())?;
    Ok(())
}

/// Removes all slices but the one the user asked for. Returns whether it is there.
fn choose(report: &mut Report, only: &str) -> bool {
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
    *report = named;
    !report.slices.is_empty()
}

/// Draws the slices that were seen. Returns false if there were none.
fn draw(file: &Path, history: &History, began: SystemTime) -> anyhow::Result<bool> {
    let Some(figure) = plot::figure(&history.moments, began) else {
        return Ok(false);
    };
    write(file, &figure)?;
    Ok(true)
}
