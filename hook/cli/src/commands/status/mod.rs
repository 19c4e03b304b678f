//! `gpuslice status`: shows the running slices and the memory that each process holds.
//! Touches: the registry, slice files, ledgers (by reading), /proc, standard output; NVML, through
//! the child process of `driver`. It never takes a lock for which another process waits.

mod containers;
pub(crate) mod driver;
mod files;
pub(crate) mod gather;
pub(crate) mod model;
pub(crate) mod process;
mod promised;
pub(crate) mod table;
pub(crate) mod users;

use crate::base::{exit, streams};
use crate::commands::devices;
use driver::Drivers;
use gpuslice_host::base::paths::HostPaths;
use model::SliceStatus;
use process::Processes;
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

/// `gpuslice status`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Only this slice, named by its name, its container's id or the pid of one of its processes
    #[arg(value_name = "SLICE|PID")]
    pub only: Option<String>,

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
status lists the runs of this user; for root, also the runs of all users and all containers. Of
another user's run, it shows only the owner. In a container with a slice, it shows that slice.

USED is the memory that the processes of the slice have allocated, as the slice's ledger counts it.
It is compared with the memory that NVML reports for each process, and a process that holds device
memory without libgpuslice.so is named. NVML is given 3 seconds to answer. On a host, status also
names the differences between /run/gpuslice/devices.json and the GPUs that the driver reports.

Exit status: 0 success; 1 a slice or its ledger could not be read (USED is then ?); 125 usage error,
or gpuslice itself failed.

JSON: slices [name, pid (of the command), containers [id, name, pid, no_slice] (not of runs), user,
file, no_slice (why its programs do not load the library), ledger, sealed (the ledger cannot be cut
short), enforce, total, uncounted, error, promise {file, budget, spent, unused, host_available,
host_left} (on unified memory), devices [device, limit, pending_limit (of programs that start now,
if the slice file was edited), headroom, headroom_learned, used, left, by_kind, refusals {count,
worst_short_by}, processes [pid, name, used, driver_used (by NVML), by_kind], without_library [pid,
name, used (by NVML)]]], device_list (how devices.json differs, or null). Amounts are bytes. null
means unknown, and error is the reason.";

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
    slices: &'a [SliceStatus],
    device_list: Option<&'a str>,
}

/// Returns text that replaces the terminal's contents.
pub(crate) fn on_screen(said: &str) -> String {
    format!("{HOME}{}{REST}", said.replace('\n', REST_OF_LINE))
}

/// Selects the slices that the user asked for.
fn choose(slices: Vec<SliceStatus>, only: &str, must: bool) -> anyhow::Result<Vec<SliceStatus>> {
    let (named, others): (Vec<_>, Vec<_>) = slices.into_iter().partition(|slice| {
        let mut containers = slice.containers.iter();
        slice.name == only || containers.any(|one| !only.is_empty() && one.id.starts_with(only))
    });
    let pid: Option<u32> = only.parse().ok();
    let found = match (named.is_empty(), pid) {
        (true, Some(pid)) => others.into_iter().filter(|slice| slice.has(pid)).collect(),
        _ => named,
    };
    if must && found.is_empty() {
        return Err(no_such_slice(only));
    }
    Ok(found)
}

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
    let screen = args.watch && !args.json && io::stdout().is_terminal();
    let mut drivers = Drivers::default();
    let stale = match args.root {
        None => devices::stale::of_this_host(),
        Some(_) => None,
    };
    let stale = stale.as_deref();
    if let Some(stale) = stale.filter(|_| !screen) {
        streams::tell(stale);
    }
    loop {
        let mut slices = gather::gather(&places, &Processes::default(), &mut drivers);
        if let Some(only) = &args.only {
            slices = choose(slices, only, !args.watch)?;
        }
        let status = Status {
            slices: &slices,
            device_list: stale,
        };
        let said = match (args.json, args.watch) {
            (true, false) => format!("{}\n", serde_json::to_string_pretty(&status)?),
            (true, true) => format!("{}\n", serde_json::to_string(&status)?),
            (false, true) if !screen => format!("{}\n", table::table(&slices)),
            (false, _) => table::table(&slices),
        };
        let stale = stale.map_or(String::new(), |stale| format!("\n{stale}\n"));
        let said = match screen {
            true => on_screen(&[said, stale].concat()),
            false => said,
        };
        streams::print(said.as_bytes())?;
        if !args.watch {
            let unread: Vec<String> = slices.iter().filter_map(SliceStatus::unread).collect();
            return Ok(tell_unread(&unread));
        }
        std::thread::sleep(INTERVAL);
    }
}
