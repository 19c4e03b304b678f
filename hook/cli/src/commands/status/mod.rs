//! `gpuslice status`: shows the running slices and the memory that each process holds.
//! Touches: the registry, slice files, ledgers (by reading), /proc, a child that queries the driver,
//! standard output. Never: the driver itself, a mapping, a lock for which another process waits.

mod cards;
pub(crate) mod containers;
pub(crate) mod driver;
mod files;
pub(crate) mod gather;
pub(crate) mod model;
pub(crate) mod process;
mod promised;
mod shares;
pub(crate) mod show;
pub(crate) mod snapshot;
mod strangers;
pub(crate) mod table;
pub(crate) mod users;
pub(crate) mod warnings;

use crate::base::{exit, streams};
use driver::Drivers;
use gpuslice_host::base::paths::HostPaths;
use model::{CardStatus, SliceStatus};
use process::Processes;
use serde::Serialize;
use show::screen::Screen;
use snapshot::Snapshot;
use std::path::PathBuf;
use std::time::Duration;
use warnings::Warning;

/// `gpuslice status`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Only this slice, named by its name, its container's id, or the pid of its command or of a
    /// process that holds device memory
    #[arg(value_name = "SLICE|PID")]
    pub only: Option<String>,

    /// Also show each process that holds memory
    #[arg(long)]
    pub processes: bool,

    /// Refresh every second, until ^C
    #[arg(long)]
    pub watch: bool,

    /// Print JSON; with --watch, one line each second
    #[arg(long)]
    pub json: bool,

    /// The hook's folders are below this one (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

const NOTES: &str = "\
A line for each GPU: used and total memory, as the driver reports them; the part that no slice
counts; and the memory that another slice can be given. The bar shows the memory in slices, then
other memory in use. Below it, there is a line for each slice on that GPU.

USED      memory that the processes of the slice have allocated, as the slice's ledger counts it; of
          another user's slice, what NVML reports for its processes (? if it reports nothing)
REFUSED   the number of refused requests, and in brackets the largest shortfall
FENCE     what enforces the limit. driver: the driver, in every program of the slice's cgroup;
          preload: libgpuslice.so, in each program, which can evade it; counted: nothing, memory is
          only counted; none: nothing, because the programs do not load the library; unknown: the
          slice cannot be read
AGE       time since the command started

Lines that start with ! are warnings, with the command that says more. USED is compared with the
memory that NVML reports for each process. NVML is given 3 seconds to answer. On a host, status also
names the differences between /run/gpuslice/devices.json and the GPUs that the driver reports.

Root sees the slices of all users and all containers. Other users see the names, owners and limits
of others' slices, and not their commands. Of slices on unified memory and on simulated machines,
they see only the owners. In a container with a slice, only that slice is shown.

On a terminal, lines fit its width: the command is cut first, and then parts of a line are left out
in a fixed order. Elsewhere nothing is cut, unless COLUMNS gives a width. NO_COLOR turns colours
off.
Without a UTF-8 locale, bars are drawn in ASCII.

Exit status: 0 success; 1 a slice or its ledger could not be read (USED is then ?); 125 usage error,
or gpuslice itself failed.

JSON: schema, cards [index, device, name, machine (null for this one), total, used, in_slices,
outside_slices, limits_sum, left_to_give, unified], slices [name, pid (of the command), containers
[id, name, pid, no_slice, not_limited (which programs load no library, if others do)] (not of runs),
user, command, started, age (seconds), machine, fence, file, no_slice (why its programs do not load
the library), ledger, sealed (the ledger cannot be cut short), enforce, total, uncounted, error,
promise {file, budget, spent, unused, host_available, host_left} (on unified memory), devices
[device, limit, pending_limit (of programs that start now, if the slice file was edited),
driver_limit (how the driver enforces the limit: dmem, misc, or null), headroom, headroom_learned,
used, left, driver_used (by NVML), by_kind, refusals {count, worst_short_by}, processes [pid, name,
used, driver_used, by_kind], without_library [pid, name, used]]], warnings [kind, message, advice,
slice, pid, device], device_list (how devices.json differs, or null). Amounts are bytes. null means
unknown, and error is the reason.";

const INTERVAL: Duration = Duration::from_secs(1);

/// Moves the cursor to the terminal's top left corner, so that the next output replaces the old
/// one.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line.
const REST_OF_LINE: &str = "\x1b[K\n";
/// Clears the rest of the terminal.
const REST: &str = "\x1b[J";

/// The JSON output.
#[derive(Serialize)]
struct Status<'a> {
    schema: u32,
    cards: &'a [CardStatus],
    slices: &'a [SliceStatus],
    warnings: &'a [Warning],
    device_list: Option<&'a str>,
}

/// The version of the JSON output. It grows when a key is removed or changes its meaning.
const SCHEMA: u32 = 1;

/// Returns text that replaces the terminal's contents.
pub(crate) fn on_screen(said: &str) -> String {
    format!("{HOME}{}{REST}", said.replace('\n', REST_OF_LINE))
}

/// The shortest start of a container's id that is taken for the id: what engines show of it.
const SHORT_ID: usize = 12;

/// Selects the slices that the user asked for: by name or container id, else by pid, else by the start of
/// a container's id.
pub(crate) fn choose(
    slices: Vec<SliceStatus>,
    only: &str,
    must: bool,
) -> anyhow::Result<Vec<SliceStatus>> {
    let pid: Option<u32> = only.parse().ok();
    let is_named = |slice: &SliceStatus| {
        slice.name == only || slice.containers.iter().any(|one| one.id == only)
    };
    let has_pid = |slice: &SliceStatus| pid.is_some_and(|pid| slice.has(pid));
    let begins = |slice: &SliceStatus| {
        let mut containers = slice.containers.iter();
        only.len() >= SHORT_ID && containers.any(|one| one.id.starts_with(only))
    };
    let ways: [&dyn Fn(&SliceStatus) -> bool; 3] = [&is_named, &has_pid, &begins];
    let way = ways.into_iter().find(|way| slices.iter().any(way));
    let found: Vec<SliceStatus> = match way {
        Some(way) => slices.into_iter().filter(|slice| way(slice)).collect(),
        None => Vec::new(),
    };
    if must && found.is_empty() {
        return Err(no_such_slice(only));
    }
    Ok(found)
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod choose_tests;

/// Returns the error for a slice or process that does not exist.
pub(crate) fn no_such_slice(only: &str) -> anyhow::Error {
    match only.parse::<u32>() {
        Ok(pid) => anyhow::anyhow!("process {pid} is in no slice that is visible from here"),
        Err(_) => anyhow::anyhow!(
            "no slice is called \"{}\"",
            crate::base::text::printable(only)
        ),
    }
}

/// Reports the slices that could not be read, and returns the exit status.
pub(crate) fn tell_unread(names: &[String]) -> u8 {
    match model::not_read(names) {
        None => exit::SUCCESS,
        Some(said) => {
            streams::tell(&said);
            exit::UNREAD
        }
    }
}

/// Collects and prints the slices.
///
/// # Errors
/// When the slice does not exist, or the output cannot be printed.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let places = args.root.as_ref().map(HostPaths::below).unwrap_or_default();
    let mut drivers = Drivers::default();
    loop {
        let mut now = Snapshot::take(&places, &Processes::default(), &mut drivers);
        if let Some(only) = &args.only {
            now.slices = choose(now.slices, only, !args.watch)?;
            now.warnings = now.slices.iter().flat_map(warnings::of_slice).collect();
        }
        streams::print(text_of(args, &now)?.as_bytes())?;
        if !args.watch {
            if let Some(stale) = now.device_list.as_deref().filter(|_| args.json) {
                streams::tell(stale);
            }
            let unread: Vec<String> = now.slices.iter().filter_map(SliceStatus::unread).collect();
            return Ok(tell_unread(&unread));
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Formats a snapshot as the options ask for.
fn text_of(args: &Args, now: &Snapshot) -> anyhow::Result<String> {
    let status = Status {
        schema: SCHEMA,
        cards: &now.cards,
        slices: &now.slices,
        warnings: &now.warnings,
        device_list: now.device_list.as_deref(),
    };
    let screen = Screen::of_stdout();
    let is_live = args.watch && screen.height.is_some();
    Ok(match (args.json, args.watch) {
        (true, false) => format!("{}\n", serde_json::to_string_pretty(&status)?),
        (true, true) => format!("{}\n", serde_json::to_string(&status)?),
        (false, _) if is_live => {
            let details = args.only.as_ref().map(|_| table::table(now));
            on_screen(&show::refreshed(now, &screen, args.processes, details))
        }
        (false, _) => {
            let text = match args.only {
                Some(_) => table::table(now),
                None => show::overview(now, &screen, args.processes),
            };
            // A blank line separates the refreshes.
            if args.watch { text + "\n" } else { text }
        }
    })
}
