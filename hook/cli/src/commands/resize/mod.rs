//! `gpuslice resize`: changes the limit of a running slice.
//! Touches: what `status` touches; the slice's ledger, and its records or its promise; the event
//! file, standard output.
//! Law: a command that fails restores the limits that it has changed, or names those that it could not
//! restore. With --wait, the limit stays at the lowest value that it has reached.

mod change;
mod driver;
mod error;
mod holders;
mod ledger;
mod report;
mod target;

use crate::base::exit::{self, Status};
use crate::base::{json, streams};
use crate::commands::status::driver::Drivers;
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use crate::commands::{events, status};
use crate::slice::options::limit;
use change::Change;
use gpuslice_config::words::device::Selector;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use std::path::PathBuf;
use std::time::Duration;

/// `gpuslice resize`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The slice, named by its name, by the id of its container, or by the pid of its command or of a
    /// process that holds device memory
    #[arg(value_name = "SLICE|PID")]
    pub slice: String,

    /// The new limit, for example 24GiB, rounded down to a multiple of 64 KiB
    #[arg(value_name = "SIZE", value_parser = limit)]
    pub size: Bytes,

    /// Change the limit of this GPU only, named by its index in nvidia-smi or by its uuid
    #[arg(long, value_name = "GPU")]
    pub device: Option<Selector>,

    /// If the slice holds more, wait this long for its programs to give memory back: seconds, or a
    /// time like 5min
    #[arg(long, value_name = "TIME", value_parser = wait, default_value = "0", hide_default_value = true)]
    pub wait: Duration,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// The hook's folders are below this one (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

const NOTES: &str = "\
Running programs of the slice get the new limit with their next query or allocation, and programs
that start later start with it. The slice file keeps the first limit: a slice that is started again
has that one.

A larger limit is admitted as at the start: it must fit beside the other slices of the GPU. A
smaller limit never goes below the memory that the slice's programs hold. With --wait it first comes
down to what they hold, so that they can allocate no more. An allocator that is then refused memory
releases what it has cached, as PyTorch's does, and the limit follows. When the time is up, the
limit stays at the lowest value that it has reached.

TOTAL is the limit less the headroom, so programs see it change. Programs that read TOTAL once, at
their start, keep what they read: vLLM does not enlarge its cache, and allocators that reserve
addresses by TOTAL reserve for the limit at their start. A slice with a maximum (gpuslice run
--maximum) shows that as TOTAL from the start, and cannot be resized beyond it.

Root can resize all runs and containers, except runs on another user's simulated machine, and slices
without a ledger. Other users can resize their own runs. The annotation or claim of a container
stays as it is: a container that is started again has its limit.

On unified memory (GB10, Thor) the slice's promise changes with its limit. There, the memory that
its programs hold includes their host memory beyond the slice's allowance.

Exit status: 0 resized; 1 the size does not fit, or the slice holds more; 125 usage error, or
gpuslice itself failed.

JSON: schema, name, pid, resized, devices [device, index, former_limit, limit,
restart_limit, used], error.";

fn wait(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let wait = seconds.or_else(|| events::age(text));
    wait.ok_or_else(|| "not a time (try 30, 30s or 5min)".to_owned())
}

/// The interval between two looks at what is held.
const INTERVAL: Duration = Duration::from_millis(50);

/// Changes the limit.
///
/// # Errors
/// When the slice cannot be resized at all.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let places = args.root.as_ref().map(HostPaths::below).unwrap_or_default();
    let now = Snapshot::take(&places, &Processes::default(), &mut Drivers::default());
    let chosen = status::choose(now.slices, &args.slice, true)?;
    let slice = target::only(chosen, &args.slice)?;
    let (device, cards) = (args.device.as_ref(), &now.cards);
    let resized = target::find(&slice, cards, places, device, args.size)?;
    let change = Change::begin(&slice, resized)?;
    let outcome = change.carry_out(args.wait, INTERVAL);
    let report = report::Report::of(&slice, &change, outcome.as_ref().err());
    report.record(&slice);
    let said = match args.json {
        true => json::document(&report)?,
        false => report.text(),
    };
    streams::print(said.as_bytes())?;
    match outcome {
        Ok(()) => Ok(exit::SUCCESS),
        Err(error) => {
            let status = match error.is_for_want_of_room() {
                true => exit::DOES_NOT_FIT,
                false => exit::FAILED,
            };
            let message = error.to_string();
            Err(Status { status, message }.into())
        }
    }
}
