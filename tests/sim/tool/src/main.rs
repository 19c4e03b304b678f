//! `gpuslice-sim`: shows a simulated machine, changes its host's memory, and makes drivers that
//! lack functions.
//! Touches: a state directory; for `without`, copies of the two libraries.
#![expect(clippy::print_stdout, reason = "a command's answer goes to stdout")]

mod branch;
mod without;

use anyhow::{Context as _, Result, bail};
use gpuslice_sim_machine::{Machine, Truth};
use std::path::PathBuf;
use std::{env, fs};

const USAGE: &str = "\
usage: gpuslice-sim [--state DIR] COMMAND        (DIR is $GPUSLICE_SIM_STATE otherwise)
  start [SCENARIO]      make the machine before the first program runs ($GPUSLICE_SIM otherwise)
  status                devices, processes and the host's memory, after the dead were reaped
  cache +60GiB          change the page cache (also -SIZE, =SIZE)
  host +6GiB            change what host programs hold
  reset                 host memory as on the idle machine
  remove                delete the machine; no program may be using it
  scenarios             the scenarios that are compiled in
  without NAMES --from DIR --to DIR
                        copies of the libraries in which the functions NAMES (a,b,c) do not exist
  branches              the driver branches that a scenario can name (NAME@BRANCH)
  branch BRANCH --from DIR --to DIR
                        copies of the libraries that export only what that branch has";

fn main() -> Result<()> {
    let mut words: Vec<String> = env::args().skip(1).collect();
    let state = match words.iter().position(|word| word == "--state") {
        Some(at) => {
            let dir = words
                .get(at.saturating_add(1))
                .context("--state needs a directory")?
                .clone();
            words.drain(at..at.saturating_add(2));
            Some(PathBuf::from(dir))
        }
        None => env::var_os("GPUSLICE_SIM_STATE").map(PathBuf::from),
    };
    let state = || {
        state
            .clone()
            .context("no state directory: give --state DIR or set GPUSLICE_SIM_STATE")
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["start"] => {
            let scenario = env::var("GPUSLICE_SIM").ok();
            Machine::start(scenario.as_deref(), Some(&state()?), "")?;
        }
        ["start", scenario] => {
            Machine::start(Some(scenario), Some(&state()?), "")?;
        }
        ["status"] => print(&running(state()?)?.truth()),
        ["cache", change] => running(state()?)?.change_cache(change)?,
        ["host", change] => running(state()?)?.change_host(change)?,
        ["reset"] => running(state()?)?.reset_host(),
        ["remove"] => {
            let dir = state()?;
            for name in ["machine", "alive", "meminfo", "dmem.capacity"] {
                if dir.join(name).exists() {
                    fs::remove_file(dir.join(name)).with_context(|| format!("removing {name}"))?;
                }
            }
        }
        ["scenarios"] => gpuslice_sim_machine::names().for_each(|name| println!("{name}")),
        ["without", names, "--from", from, "--to", to] => {
            without::copy(
                from.as_ref(),
                to.as_ref(),
                &names.split(',').collect::<Vec<_>>(),
            )?;
        }
        ["branches"] => branch::names().for_each(|name| println!("{name}")),
        ["branch", branch, "--from", from, "--to", to] => {
            branch::copy(from.as_ref(), to.as_ref(), branch)?;
        }
        [] | ["help" | "--help" | "-h"] => println!("{USAGE}"),
        _ => bail!("not a command: {}\n{USAGE}", words.join(" ")),
    }
    Ok(())
}

/// The machine in a state directory, where it must already run.
fn running(state: PathBuf) -> Result<Machine> {
    if !state.join("machine").exists() {
        bail!(
            "no machine in {} (start one with `gpuslice-sim start`)",
            state.display()
        );
    }
    Ok(Machine::open(&state)?)
}

fn print(truth: &Truth) {
    let mib = |bytes: u64| bytes >> 20;
    println!("{}", truth.scenario);
    for device in &truth.devices {
        println!(
            "{} {}: total {} MiB, used {} MiB, free {} MiB, allocatable {} MiB",
            device.uuid,
            device.name,
            mib(device.total),
            mib(device.used),
            mib(device.free),
            mib(device.allocatable)
        );
        for process in &device.processes {
            println!(
                "  pid {}: {} MiB, {} contexts",
                process.pid,
                mib(process.used),
                process.contexts
            );
        }
    }
    if truth.misuses != 0 {
        println!("calls with a destroyed pool: {}", truth.misuses);
    }
    if let Some(host) = &truth.host {
        println!(
            "host: total {} MiB, free {} MiB, available {} MiB, page cache {} MiB, programs {} MiB",
            mib(host.mem_total),
            mib(host.mem_free),
            mib(host.mem_available),
            mib(host.cache),
            mib(host.anon)
        );
    }
}
