//! `gpuslice status`: the slices that are running, and who in them holds what.
//! Touches: the registry, slice files, ledgers (by reading), /proc, standard output. Never: the
//! driver, a mapping, a lock that anybody waits for.

mod containers;
pub(crate) mod gather;
pub(crate) mod process;
pub(crate) mod table;

use crate::{exit, standard_streams};
use gather::SliceStatus;
use gpuslice_oci::place::Places;
use process::Processes;
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

/// `gpuslice status`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Show it again every second, until ^C
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
The slices are those of this user's runs and, for root, of containers; or, in a container that has
one, that slice. What is used is what the processes of the slice have allocated. The driver is not
asked.

JSON: slices [name, pid (of the command), containers [id, name, pid] (not of runs), file, ledger,
enforce, total, uncounted, error, promise {file, budget, spent, unused, host_available, host_left}
(on unified memory), devices [device, limit, headroom, headroom_learned, used, left, by_kind,
refusals {count, worst_short_by},
processes [pid, name, used, by_kind]]]. Amounts are bytes; null is what is not known.";

const INTERVAL: Duration = Duration::from_secs(1);

/// To the corner of the terminal; what is written next takes the place of what was there.
const HOME: &str = "\x1b[H";
/// Clears what is left of a line.
const REST_OF_LINE: &str = "\x1b[K\n";
/// Clears what is left of the terminal.
const REST: &str = "\x1b[J";

/// What JSON shows.
#[derive(Serialize)]
struct Status<'a> {
    slices: &'a [SliceStatus],
}

/// What takes the place of what the terminal shows.
pub(crate) fn on_screen(said: &str) -> String {
    format!("{HOME}{}{REST}", said.replace('\n', REST_OF_LINE))
}

/// Shows them.
///
/// # Errors
/// When nothing can be printed.
pub fn main(args: &Args) -> anyhow::Result<u8> {
    let places = args.root.as_ref().map(Places::below).unwrap_or_default();
    let screen = args.watch && !args.json && io::stdout().is_terminal();
    loop {
        let slices = gather::gather(&places, &Processes::default());
        let status = Status { slices: &slices };
        let said = match (args.json, args.watch) {
            (true, false) => format!("{}\n", serde_json::to_string_pretty(&status)?),
            (true, true) => format!("{}\n", serde_json::to_string(&status)?),
            (false, true) if !screen => format!("{}\n", table::table(&slices)),
            (false, _) => table::table(&slices),
        };
        let said = if screen { on_screen(&said) } else { said };
        standard_streams::print(said.as_bytes())?;
        if !args.watch {
            return Ok(exit::SUCCESS);
        }
        std::thread::sleep(INTERVAL);
    }
}
