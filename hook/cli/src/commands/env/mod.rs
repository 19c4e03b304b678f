//! `gpuslice env`: makes a slice for a process that runs already, and prints the variables that put
//! its programs into the slice.
//! Touches: everything that `launch` and `runs` touch, standard output.
//! Law: the slice lasts until its owner, and every process that its variables reach, has ended. If
//! the variables cannot be printed, there is no slice.

mod format;
mod owner;

use crate::base::exit;
use crate::base::streams::{self, tell};
use crate::commands::run;
use crate::launch::prepare;
use crate::runs::private_dir::PrivateDir;
use crate::runs::recording::{self, RunStart};
use crate::runs::registry;
use crate::runs::run_dir;
use crate::slice::current as current_slice;
use crate::slice::current::InSliceError;
use crate::slice::options::SliceOptions;
use crate::slice::slices_file::places;
use anyhow::{Context, bail};
use format::Format;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// `gpuslice env`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The slice, as a slices file names it: gpuslice-slices(5)
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Take the slice from this file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Print export lines for a shell, lines for Slurm's TaskProlog, or JSON with the env of a
    /// Jupyter kernel [default: shell]
    #[arg(long, value_name = "shell|slurm|json", hide_possible_values = true)]
    pub format: Option<Format>,

    /// The process that owns the slice: the slice ends with it [default: the calling shell; with
    /// --format slurm, the slurmstepd above it]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub owner: Option<i32>,

    /// Make the slice even if other slices leave no room for it
    #[arg(long)]
    pub overcommit: bool,

    /// Make it on a simulated machine
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,
}

const NOTES: &str = r#"The slice is admitted as that of gpuslice run, and gpuslice status lists it under its owner. It ends
when its owner and every program that was started with the variables have ended. Programs that run
already are not in the slice: it holds what the shell starts from now on. The library enforces its
limit, never the driver: fence = "driver" is refused, and so is meminfo = "mount".

Examples:
  eval "$(gpuslice env chat)"                    this shell's programs are in the slice chat
  gpuslice env chat --format slurm               in a script of Slurm's TaskProlog
  gpuslice env chat --format json --owner PID    the member env is that of a kernel.json"#;

/// Writes the variables beside the slice file. No process may have them yet, and the owner never has
/// them in its own environment, so this file is the only record of them. It is for this user alone:
/// it names the ledger, and root's ledger is protected by its name.
fn record(file: &Path, vars: &[(OsString, Option<OsString>)]) -> io::Result<()> {
    let mut text = Vec::new();
    for (name, value) in vars {
        let Some(value) = value else { continue };
        let parts = [name.as_bytes(), b"=", value.as_bytes(), b"\0"];
        text.extend_from_slice(&parts.concat());
    }
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file.with_file_name(run_dir::PRINTED))?;
    file.write_all(&text)
}

/// Makes the slice, and prints its variables.
///
/// # Errors
/// When the slice cannot be made, or the variables cannot be printed.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let made = make(args);
    let is_for_eval =
        args.format.unwrap_or_default() == Format::Shell && !io::stdout().is_terminal();
    if made.is_err() && is_for_eval {
        // `eval "$(gpuslice env NAME)"` has the status of what it evaluates, not of gpuslice.
        streams::print(b"false\n")?;
    }
    made
}

fn make(args: &Args) -> anyhow::Result<u8> {
    if let Some(mounted) = current_slice::mounted() {
        return Err(InSliceError::Mounted(mounted).into());
    }
    let format = args.format.unwrap_or_default();
    let found = places::find(&args.name, args.file.as_deref())?;
    let owner = owner::find(args.owner, format)?;
    let options = found.options(&SliceOptions {
        sim: args.sim.clone(),
        overcommit: args.overcommit,
        ..SliceOptions::default()
    });
    let prepared = run::of_file(Some(&found), prepare::prepare_for(Some(owner), &options))?;
    for warning in prepared.warnings.iter().chain(&prepared.gaps) {
        tell(&format!("warning: {warning}"));
    }
    let (Some(slice), Some(file)) = (&prepared.slice, &prepared.file) else {
        bail!("{} limits nothing", found.shown());
    };
    let watcher = prepared.private.as_ref().and_then(PrivateDir::watcher);
    let pid = Pid::from_raw(owner.pid);
    // The watcher waits for the owner only if the slice is registered.
    let registered = registry::register(slice.name.as_str(), pid, file, true, watcher)
        .context("cannot list the slice for gpuslice status")?;
    record(file, &prepared.vars).context("cannot record the variables")?;
    let run = RunStart {
        pid: owner.pid,
        enforce: slice.enforce,
        ..RunStart::now(
            slice.name.as_str(),
            prepared.simulated,
            prepared.devices.clone(),
        )
    };
    let private = prepared.private.as_ref().map(PrivateDir::path);
    recording::start(private, &run, None, &prepared.gaps);
    let text = format.text(slice.name.as_str(), owner.pid, &prepared.vars)?;
    if let Err(error) = streams::print(text.as_bytes()) {
        // The watcher waits for the owner as long as this link names an entry of the registry.
        let _ = fs::remove_file(file.with_file_name(run_dir::ENTRY));
        return Err(error);
    }
    // The slice outlives this process: its watcher removes it.
    std::mem::forget((prepared, registered));
    Ok(exit::SUCCESS)
}
