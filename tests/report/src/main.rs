//! `make report`: measures what gpuslice costs, beside no preload, an empty one and any other, and
//! writes one page with plots, a text and JSON.
//!
//! 1. `base/` compiles the programs and drivers, and describes the machine.
//! 2. Each section of `sections/` is measured in a process of its own, so that one that fails leaves
//!    a reason in the report and nothing else.
//! 3. `measure/` runs the variants of a section in turn, and summarises what they print.
//! 4. `show/` writes the report.
//!
//! Touches: `target/report`; a folder in /dev/shm or /tmp that goes with the report.

mod base;
mod measure;
mod report;
mod sections;
mod show;

use anyhow::{Context, Result, bail};
use base::machine::Machine;
use base::processor::{Load, Reading};
use base::workshop::Workshop;
use base::{child, interrupt, place};
use measure::effort::Effort;
use measure::figure::{Measured, Section};
use measure::variants::Peer;
use report::Report;
use sections::{ALL, Definition, Setting};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The longest that a section may take. A plan stops much earlier.
const SECTION: Duration = Duration::from_secs(600);

/// What an error begins with.
const FAILED: &str = "report: ";

fn main() -> ExitCode {
    interrupt::watch();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => whole(),
        ["section", key, folder] => one(key, Path::new(folder)),
        _ => Err(anyhow::anyhow!(
            "unknown arguments: see tests/report/README.md"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{FAILED}{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// A line about the progress.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn effort() -> Result<Effort> {
    match std::env::var("REPORT").as_deref() {
        Err(_) | Ok("" | "full") => Ok(Effort::Full),
        Ok("quick") => Ok(Effort::Quick),
        Ok(other) => bail!("REPORT={other:?} is neither quick nor full"),
    }
}

/// The sections that `REPORT_SECTIONS` names, or all.
fn chosen() -> Result<Vec<&'static Definition>> {
    let named = std::env::var("REPORT_SECTIONS").unwrap_or_default();
    let named: Vec<&str> = named.split_whitespace().collect();
    if named.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let find = |key: &&str| {
        ALL.iter()
            .find(|section| section.key == *key)
            .with_context(|| {
                let keys: Vec<&str> = ALL.iter().map(|section| section.key).collect();
                format!(
                    "REPORT_SECTIONS: no section {key:?} (there are {})",
                    keys.join(" ")
                )
            })
    };
    named.iter().map(find).collect()
}

/// Where the report is written: `REPORT_OUTPUT`, or `report` in the build output.
fn output() -> Result<PathBuf> {
    let named = std::env::var_os("REPORT_OUTPUT").map(PathBuf::from);
    Ok(named.unwrap_or(place::target()?.join("report")))
}

/// Measures all sections, and writes the report.
fn whole() -> Result<()> {
    let (effort, chosen, output) = (effort()?, chosen()?, output()?);
    child::adopt();
    let peer = Peer::of_environment()?;
    std::fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let shared = Path::new("/dev/shm");
    let place = if shared.is_dir() {
        shared
    } else {
        Path::new("/tmp")
    };
    let folder = tempfile::Builder::new()
        .prefix(&format!("gpuslice-report-{}-", std::process::id()))
        .tempdir_in(place)
        .context("a folder for the report")?;
    Workshop::make(folder.path())?;
    let mut machine = Machine::describe();
    if let Some(warning) = machine.warning() {
        say(&warning);
    }
    let before = Reading::now();
    let mut sections = Vec::new();
    for definition in chosen {
        interrupt::check()?;
        let section = measured(definition, folder.path());
        interrupt::check()?;
        let reason = section.not_run.as_ref();
        let reason = reason.map_or(String::new(), |reason| format!(": not run: {reason}"));
        say(&format!(
            "{:<12}{:>5.0} s{reason}",
            section.key, section.seconds
        ));
        sections.push(section);
    }
    machine.others_percent_during = Reading::now().since(&before).others_percent;
    let report = Report {
        schema: 1,
        effort: effort.name(),
        peer: peer.map(|peer| peer.name()),
        warning: machine.warning(),
        machine,
        summary: show::summary::lines(&sections),
        sections,
        budgets: report::budgets()?,
        faults: report::faults(&output)?,
    };
    for (name, text) in [
        ("report.json", serde_json::to_string_pretty(&report)?),
        ("report.txt", show::text::write(&report)),
        ("report.html", show::html::write(&report)),
    ] {
        let file = output.join(name);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    }
    say(&format!(
        "written: {}/report.{{html,txt,json}}",
        output.display()
    ));
    Ok(())
}

/// A section, measured in a process of its own.
fn measured(definition: &Definition, folder: &Path) -> Section {
    let (start, before) = (Instant::now(), Reading::now());
    let run = || -> Result<Measured> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["section", definition.key]).arg(folder);
        let said = child::output(&mut command, SECTION)?;
        serde_json::from_str(&said).context("the section's answer")
    };
    let outcome = run();
    child::end_orphans();
    let (measured, not_run) = match outcome {
        Ok(measured) => (measured, None),
        Err(error) => {
            let reason = format!("{error:#}");
            // What the section's own process has said is enough.
            let reason = reason.rsplit_once(FAILED).map_or(&*reason, |(_, own)| own);
            (Measured::default(), Some(reason.to_owned()))
        }
    };
    let load: Load = Reading::now().since(&before);
    Section {
        key: definition.key,
        title: definition.title,
        about: definition.about,
        count_of: definition.count_of,
        seconds: start.elapsed().as_secs_f64(),
        load,
        measured,
        not_run,
    }
}

/// Measures one section in this process, and prints it as JSON.
fn one(key: &str, folder: &Path) -> Result<()> {
    let definition = ALL.iter().find(|section| section.key == key);
    let definition = definition.context("no such section")?;
    let setting = Setting {
        workshop: Workshop::of(folder),
        effort: effort()?,
        peer: Peer::of_environment()?,
    };
    let measured = (definition.run)(&setting)?;
    serde_json::to_writer(std::io::stdout(), &measured).context("standard output")
}
