//! `gpuslice doctor`: finds out why a slice is in force, or is not.
//! Touches: /proc, slice files, ledgers (by reading), the host's configuration, the driver (in a
//! child), standard output.
//! Law: nothing is written, no process is stopped, and no driver is loaded into this process.
//!
//! | file | task |
//! |---|---|
//! | `codes.rs` | lists the codes of findings: a new finding starts with one entry there |
//! | `finding.rs` | one finding, and the order in which findings are shown |
//! | `seen.rs`, `bundles.rs` | the slices and containers that are visible here |
//! | `membership.rs` | the slice that a process is in, or should be in |
//! | `process/` | the facts about one process |
//! | `checks/` | the checks of one process |
//! | `node/` | the checks of the host |
//! | `examine.rs` | applies the checks to a process, a slice, a container, or all |
//! | `report.rs` | the verdict, as text and as JSON |

mod bundles;
mod checks;
mod codes;
mod examine;
mod finding;
mod membership;
mod node;
mod process;
mod report;
mod seen;

use crate::base::{exit, streams};
use examine::{Examination, Examined};
use gpuslice_host::base::paths::HostPaths;
use std::path::PathBuf;

/// `gpuslice doctor`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// A process, a slice by its name, or a container by its name or the start of its id [default:
    /// all slices that are visible here, and this node]
    #[arg(value_name = "PID|NAME|CONTAINER")]
    pub subject: Option<String>,

    /// Only this node: what slices need before any program starts
    #[arg(long, conflicts_with = "subject")]
    pub node: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// The host's files are below this folder (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

const NOTES: &str = "\
The first line is the verdict. Each finding is one sentence with its code and what to do, the most
likely cause first. An error breaks the slice; a warning does not. The handbook's page on
troubleshooting lists all codes.

doctor examines running processes from outside, by /proc. It changes nothing and does not stop them.
Only root can examine processes of other users, and programs with privileges of their own. To
compare what each API reports, run gpuslice check where the program runs: in the same shell, unit or
container. A missing driver is an error with --node, and otherwise a warning.

Exit status: 0 the slice is in force, and the node is ready; 1 a finding breaks the slice, or the
node is not ready; 2 this user may not examine the process; 125 usage error, or gpuslice itself
failed.

JSON: schema; subject {kind (process, slice, container, node or all), name (of the slice), pid,
program, container}; in_force (null if it could not be examined); findings [code, severity (error or
warning), sentence, fix, name, pid]; unexamined (pids of processes that this user may not examine);
facts (of a process; otherwise null) {slice_file, ledger, library, build_id, driver, fence,
page_cache, seccomp}.

Examples:
  gpuslice doctor                    all slices that are visible here, and this node
  gpuslice doctor 4242               why this process is (not) limited
  gpuslice doctor llama              the processes of slice llama
  gpuslice doctor --node --json      the host alone, for programs";

/// Examines the subject and prints the verdict.
///
/// # Errors
/// When there is no such subject, or the output cannot be printed.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let places = args.root.as_ref().map(HostPaths::below).unwrap_or_default();
    let examination = Examination::new(&places);
    let examined = match (&args.subject, args.node) {
        (_, true) => examination.node(),
        (None, false) => examination.all(),
        (Some(subject), false) => examination.subject(subject)?,
    };
    for line in &examined.refused {
        streams::tell(line);
    }
    let text = match args.json {
        true => report::json(&examined)?,
        false => report::text(&examined),
    };
    streams::print(text.as_bytes())?;
    Ok(status(&examined))
}

fn status(examined: &Examined) -> u8 {
    match examined.in_force() {
        Some(true) => exit::SUCCESS,
        Some(false) => exit::BROKEN,
        None => exit::UNEXAMINED,
    }
}
