//! The command line: one definition, from which help, man pages and completions come.
//! Touches: the arguments, standard error.

use crate::base::sigchld::ChildSignal;
use crate::base::streams::tell;
use crate::base::{exit, streams, usage_error};
use crate::commands::{
    cache, cdi, check, daemon, devices, docs, doctor, driver_limit, engines, env, events, gc,
    headroom, history, metrics, plan, report, resize, run, status, top,
};
use crate::driver::{keeper, limit_probe, memory_watch, probe, processes};
use crate::runs::watcher;
use crate::slice::current as current_slice;
use crate::slice::current::InSliceError;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::c_int;
use std::io::IsTerminal;

/// Runs programs in a slice of GPU memory, where every API gives the same, true answer.
#[derive(Debug, Parser)]
#[command(name = "gpuslice", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, subcommand_required = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  gpuslice devices                                       the GPUs, and their names for --device
  gpuslice run --memory 8GiB -- python3 train.py         every GPU shows 8 GiB
  gpuslice status --watch                                which process holds how much of which slice
  gpuslice run --sim gb10 --memory 40GiB -- nvitop -1    on a simulated machine";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command in a slice of GPU memory
    Run(run::Args),
    /// Query every memory API by every route and compare the answers
    Check(check::Args),
    /// Show the running slices: their limits, and the memory that each process holds
    Status(status::Args),
    /// Show the slices live, with their history, in the whole terminal
    Top(top::Args),
    /// Find out why a slice is or is not in force
    Doctor(doctor::Args),
    /// Change the limit of a running slice
    Resize(resize::Args),
    /// Show the device and host memory of slices by process, and its growth
    Report(report::Args),
    /// Print the numbers of all slices as metrics, for Prometheus
    Metrics(metrics::Args),
    /// Check whether the slices of a file fit together on this machine
    Plan(plan::Args),
    /// Make a slice for a shell, a Slurm job or a Jupyter kernel, and print its variables
    Env(env::Args),
    /// Show what happened to slices: starts, ends, refusals
    Events(events::Args),
    /// List the runs and containers that had a slice, and draw their use of memory
    History(history::Args),
    /// List or reset the headroom that runs have learned
    Headroom(headroom::Args),
    /// Drop model files from the page cache
    DropCache(cache::DropArgs),
    /// Show how much of each model file is in the page cache
    Residency(cache::ResidencyArgs),
    /// List the GPUs of this machine and the names that other commands accept
    Devices(devices::Args),
    /// Remove files of runs and containers that have ended
    Gc(gc::Args),
    /// Describe slices to container engines as CDI devices
    Cdi(cdi::Args),
    /// Configure a container engine to give its containers slices
    Runtime(engines::Args),
    /// Set the driver's own memory limit of a cgroup
    DriverLimit(driver_limit::Args),
    /// Print a completion script for a shell
    Completions(docs::CompletionsArgs),
    /// Print a man page
    Man(docs::ManArgs),
    /// Print the help of a command, as --help does
    Help(docs::HelpArgs),
    /// List what the last word of a command line can be completed with (for shells)
    #[command(hide = true)]
    Complete(docs::complete::Args),
    /// Ask the driver for its devices and print them as JSON (gpuslice's own child)
    #[command(hide = true)]
    InventoryProbe,
    /// Ask NVML for the memory and processes of each GPU and print them as JSON (gpuslice's own child)
    #[command(hide = true)]
    DriverProcesses(processes::Args),
    /// Ask NVML for the memory in use, again and again (gpuslice's own child)
    #[command(hide = true)]
    DriverMemory,
    /// Set a limit in the driver (gpuslice's own child)
    #[command(hide = true)]
    DriverLimitProbe(limit_probe::Args),
    /// Keep the driver loaded until the input ends (gpuslice's own child)
    #[command(hide = true)]
    DriverKeeper(keeper::Args),
    /// Ask the driver by one route (gpuslice's own child)
    #[command(hide = true)]
    CheckProbe(check::query::probe::Args),
    /// Remove a private directory when its last user is gone (gpuslice's own child)
    #[command(hide = true, name = "tidy-up")]
    Watch(watcher::Args),
}

/// Parses the command line, runs the command and returns the exit status.
#[must_use]
pub fn main() -> c_int {
    streams::fill_closed();
    if daemon::is_called() {
        return c_int::from(daemon::entry());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return c_int::from(not_parsed(&error));
        }
    };
    let child_signal = ChildSignal::take();
    match dispatch(cli.verb, &child_signal) {
        Ok(status) => c_int::from(status),
        Err(error) => {
            tell(&format!("{error:#}"));
            c_int::from(exit::status_of(&error))
        }
    }
}

/// Prints the error, help or version text that clap returned in place of a command.
fn not_parsed(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        match lacks_limit(error).then(current_slice::named).flatten() {
            Some(named) => tell(&InSliceError::Options(named).to_string()),
            None => usage_error::tell("gpuslice", error),
        }
        return exit::FAILED;
    }
    let text = error.render();
    let text = match std::io::stdout().is_terminal() {
        true => text.ansi().to_string(),
        false => text.to_string(),
    };
    match streams::print(text.as_bytes()) {
        Ok(()) => exit::SUCCESS,
        Err(error) => {
            tell(&format!("{error:#}"));
            exit::FAILED
        }
    }
}

/// Whether options of a slice were given without a limit.
fn lacks_limit(error: &clap::Error) -> bool {
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.as_slice(),
        _ => &[],
    };
    error.kind() == ErrorKind::MissingRequiredArgument
        && missing.iter().any(|argument| argument.contains("--memory"))
}

fn dispatch(verb: Verb, child_signal: &ChildSignal) -> anyhow::Result<u8> {
    match verb {
        Verb::Run(args) => run::main(args, child_signal),
        Verb::Status(args) => status::main(&args),
        Verb::Top(args) => top::main(&args),
        Verb::Doctor(args) => doctor::main(&args),
        Verb::Resize(args) => resize::main(&args),
        Verb::Report(args) => report::main(&args),
        Verb::Metrics(args) => metrics::main(&args),
        Verb::Plan(args) => plan::main(&args),
        Verb::Env(args) => env::main(&args),
        Verb::Events(args) => events::main(&args),
        Verb::History(args) => history::main(&args),
        Verb::Headroom(args) => headroom::main(&args),
        Verb::DropCache(args) => cache::drop_cache(&args),
        Verb::Residency(args) => cache::residency(&args),
        Verb::Devices(args) => devices::main(&args),
        Verb::Gc(args) => gc::main(&args),
        Verb::Cdi(args) => cdi::main(&args),
        Verb::Runtime(args) => engines::main(&args),
        Verb::DriverLimit(args) => driver_limit::main(&args),
        Verb::DriverLimitProbe(args) => limit_probe::main(&args),
        Verb::DriverKeeper(args) => keeper::main(&args),
        Verb::Completions(args) => docs::completions(&args),
        Verb::Man(args) => docs::man(&args, &Cli::command()),
        Verb::Complete(args) => docs::complete::main(&args, &Cli::command()),
        Verb::Help(args) => docs::help(&args, &Cli::command()),
        Verb::Check(args) => check::main(&args),
        Verb::CheckProbe(args) => check::query::probe::main(&args),
        Verb::InventoryProbe => probe::main(),
        Verb::DriverProcesses(args) => processes::main(&args),
        Verb::DriverMemory => memory_watch::main(),
        Verb::Watch(args) => watcher::main(&args),
    }
}
