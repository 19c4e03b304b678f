//! The values of an argument, by the name of its value: slices, GPUs, simulated machines, files.
//! Touches: the registry of runs, the records of containers, slices files, the driver (in a child, for 3 seconds
//! at most), the simulator.

use super::{Candidate, Candidates, Instruction};
use crate::base::text::escaped_path;
use crate::commands::devices;
use crate::driver::ask;
use crate::driver::sim::Sim;
use crate::launch::prepare;
use crate::runs::headroom_store;
use crate::runs::registry::{self, Remains};
use crate::slice::slices_file::places::{self, Use};
use clap::{Arg, Command};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::records;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The time in which the driver must answer: the user waits for it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the values of an argument of a command.
pub(super) fn of(argument: &Arg, command: &Command, words: &[String]) -> Candidates {
    if !argument.get_action().takes_values() {
        return Candidates::default();
    }
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let values = possible.iter().map(|value| {
            let help = value.get_help().map(ToString::to_string);
            Candidate::new(value.get_name(), help.unwrap_or_default())
        });
        return Candidates::of(values.collect());
    }
    let name = argument.get_value_names().and_then(|names| names.first());
    let name = name.map_or("", |name| name.as_str());
    match name {
        "MACHINE" => Candidates {
            all: machines(),
            instruction: Instruction::Files,
        },
        "GPU=SIZE" | "GPU" => Candidates::of(gpus(words, name.contains('='))),
        "UUID" => {
            let mut all = gpus(words, false);
            all.retain(|gpu| gpu.value.contains('-'));
            Candidates::of(all)
        }
        "NAME" if argument.is_positional() && command.get_name() == "reset" => {
            Candidates::of(learned())
        }
        "NAME" if argument.get_id() == "named" || command.get_name() == "env" => {
            Candidates::of(slices_of_files(words))
        }
        _ if argument.is_positional() && ["SLICE", "NAME"].iter().any(|it| name.contains(it)) => {
            Candidates::of(slices())
        }
        "COMMAND" => Candidates::of(verbs(words)),
        "FILE" | "FILE.svg" | "PATH" | "DIR" => Candidates::instruction(Instruction::Files),
        _ => Candidates::default(),
    }
}

/// The names of the running slices. A name with a blank cannot be completed in every shell.
fn slices() -> Vec<Candidate> {
    let mut found = BTreeMap::new();
    for run in registry::running_and(Remains::Keep) {
        let text = std::fs::read(&run.file).unwrap_or_default();
        let file: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        if let Some(name) = file.get("name").and_then(serde_json::Value::as_str) {
            let pid = run.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
            found.insert(name.to_owned(), format!("run{pid}"));
        }
    }
    // Only root may read the records of containers.
    if let Ok((records, _)) = records::survey(&HostPaths::default()) {
        let names = records.into_iter().map(|record| record.name);
        found.extend(names.map(|name| (name, "container".to_owned())));
    }
    named(found)
}

fn learned() -> Vec<Candidate> {
    let learned = headroom_store::place().and_then(|place| headroom_store::read(&place));
    let learned = learned.unwrap_or_default();
    named(
        learned
            .into_keys()
            .map(|name| (name, String::new()))
            .collect(),
    )
}

fn named(found: BTreeMap<String, String>) -> Vec<Candidate> {
    found
        .into_iter()
        .filter(|(name, _)| {
            !name.contains(|letter: char| letter.is_whitespace() || letter.is_control())
        })
        .map(|(name, about)| Candidate::new(name, about))
        .collect()
}

/// The GPUs of this machine, or of the one that `--sim` names, by index and by uuid.
fn gpus(words: &[String], with_size: bool) -> Vec<Candidate> {
    let machine = simulated(words).and_then(|machine| prepare::simulated(&machine).ok());
    if machine.is_none() && simulated(words).is_some() {
        return Vec::new();
    }
    let vars = devices::variables(machine.as_ref());
    let Ok(inventory) = ask::within(&vars, "completing", PATIENCE) else {
        return Vec::new();
    };
    let end = if with_size { "=" } else { "" };
    let about = |name: &str, total| format!("{name}, {}", Bytes::new(total));
    let mut all = Vec::new();
    for device in &inventory.devices {
        let about = about(&device.name, device.total);
        all.push(Candidate::new(
            format!("{}{end}", device.index),
            about.as_str(),
        ));
        all.push(Candidate::new(format!("{}{end}", device.uuid), about));
    }
    for instance in inventory.devices.iter().flat_map(|device| &device.mig) {
        let about = about(&instance.name, instance.total);
        all.push(Candidate::new(format!("{}{end}", instance.uuid), about));
    }
    all
}

/// The slices in the file of `--file`, or else in the slices files of this user and this host.
fn slices_of_files(words: &[String]) -> Vec<Candidate> {
    let file = value_of("--file", words).map(PathBuf::from);
    let slices = places::read_all(file.as_deref(), Use::Show).unwrap_or_default();
    let found = slices.found.into_iter();
    named(
        found
            .map(|found| (found.slice.name().to_owned(), escaped_path(&found.file)))
            .collect(),
    )
}

/// The value of `--sim` on this command line.
fn simulated(words: &[String]) -> Option<String> {
    value_of("--sim", words)
}

/// The value of an option on this command line.
fn value_of(option: &str, words: &[String]) -> Option<String> {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let value = word.strip_prefix(option);
        if let Some(value) = value.and_then(|value| value.strip_prefix('=')) {
            return Some(value.to_owned());
        }
        if word == option {
            return rest.next().cloned();
        }
    }
    None
}

/// The simulated machines that the simulator lists.
fn machines() -> Vec<Candidate> {
    let beside = std::env::current_exe().unwrap_or_default();
    let beside = beside.parent().unwrap_or(&beside);
    let Ok(sim) = Sim::find("rtx3090", beside) else {
        return Vec::new();
    };
    let listed = std::process::Command::new(sim.driver.join("gpuslice-sim"))
        .arg("scenarios")
        .output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&listed)
        .lines()
        .map(|name| Candidate::new(name, "simulated machine"))
        .collect()
}

/// The commands below the words after `help` or `man`.
fn verbs(words: &[String]) -> Vec<Candidate> {
    use clap::CommandFactory;
    let whole = super::visible(&crate::cli::Cli::command());
    let mut command = &whole;
    let given = words.len().saturating_sub(1);
    for word in words.iter().take(given).skip(2) {
        let Some(verb) = command.find_subcommand(word) else {
            return Vec::new();
        };
        command = verb;
    }
    let verbs = command.get_subcommands().map(|verb| {
        let about = verb.get_about().map(ToString::to_string);
        Candidate::new(verb.get_name(), about.unwrap_or_default())
    });
    verbs.collect()
}
