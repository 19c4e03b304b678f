//! The verdict and the findings, as text for people and as JSON for programs.
//! Touches: its arguments.

use super::checks::library;
use super::codes::Severity;
use super::examine::{Examined, Kind, Subject};
use super::finding::Finding;
use super::membership::Membership;
use super::process::ProcessFacts;
use crate::base::text::{escaped_path, printable};
use crate::commands::status::process::cgroup;
use crate::slice::ledger as slice_ledger;
use gpuslice_config::slice::PageCache;
use gpuslice_host::base::paths::HostPaths;
use serde::Serialize;
use std::fs;

/// The version of the JSON output.
const SCHEMA: u32 = 1;

/// Facts about a process that a reader may want beside the findings.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    slice_file: Option<String>,
    ledger: Option<String>,
    library: Option<String>,
    build_id: Option<String>,
    driver: Vec<String>,
    fence: Option<&'static str>,
    page_cache: Option<&'static str>,
    seccomp: bool,
}

impl Facts {
    pub(super) fn of(
        process: &ProcessFacts,
        membership: Option<&Membership>,
        places: &HostPaths,
    ) -> Facts {
        let slice = membership.and_then(Membership::slice);
        let ledger = membership
            .zip(slice)
            .and_then(|(it, slice)| slice_ledger::path(&it.file, slice));
        let libraries = process.maps.libraries();
        let drivers = process.maps.drivers();
        let page_cache = slice.map(|slice| match slice.page_cache {
            PageCache::Keep => "keep",
            PageCache::Drop => "drop",
            PageCache::DropBehind => "drop-behind",
        });
        let by_file = slice.is_some_and(|slice| {
            let mut listed = slice.devices();
            slice.enforce && listed.any(|listed| listed.driver_limit.is_some())
        });
        let by_driver = by_file || has_driver_limit(process.pid, places);
        let fence = match (by_driver, libraries.is_empty()) {
            (true, false) => Some("driver and library"),
            (true, true) => Some("driver"),
            (false, false) if slice.is_some() => Some("library"),
            _ => None,
        };
        Facts {
            slice_file: membership.map(|it| escaped_path(&it.file)),
            ledger: ledger.map(|path| escaped_path(&path)),
            library: libraries.first().map(|file| escaped_path(&file.path)),
            build_id: library::build_of(process),
            driver: drivers
                .iter()
                .map(|file| escaped_path(&file.path))
                .collect(),
            fence,
            page_cache,
            seccomp: process.is_filtered,
        }
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let library = self.library.as_ref().map(|path| match &self.build_id {
            Some(build) => format!("{path} (build {})", build.get(..12).unwrap_or(build)),
            None => path.clone(),
        });
        let driver = (!self.driver.is_empty()).then(|| self.driver.join(", "));
        let rows = [
            ("slice file", self.slice_file.clone()),
            ("ledger", self.ledger.clone()),
            ("library", library),
            ("driver", driver),
            ("fence", self.fence.map(str::to_owned)),
            ("page cache", self.page_cache.map(str::to_owned)),
        ];
        let known = rows.into_iter();
        known
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// Checks whether the driver limits the cgroup of a process.
fn has_driver_limit(pid: u32, places: &HostPaths) -> bool {
    let file = cgroup(pid).and_then(|folder| {
        let below = folder.strip_prefix("/").ok()?.to_owned();
        Some(places.root().join(below).join("dmem.max"))
    });
    let text = file.and_then(|file| fs::read_to_string(file).ok());
    let limits = text.unwrap_or_default();
    let mut lines = limits.lines();
    lines.any(|line| line.starts_with("nvidia/") && !line.ends_with(" max"))
}

/// The JSON output; its keys come in this order.
#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    subject: &'a Subject,
    in_force: Option<bool>,
    findings: &'a [Finding],
    unexamined: &'a [u32],
    facts: Option<&'a Facts>,
}

/// Formats the result as JSON.
pub(super) fn json(examined: &Examined) -> serde_json::Result<String> {
    let json = Json {
        schema: SCHEMA,
        subject: &examined.subject,
        in_force: examined.in_force(),
        findings: &examined.findings,
        unexamined: &examined.unexamined,
        facts: examined.facts.as_ref(),
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&json)?))
}

/// Formats the result for people: the verdict, the findings, and facts about a process.
pub(super) fn text(examined: &Examined) -> String {
    let mut text = format!("{}\n", verdict(examined));
    for finding in &examined.findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let code = finding.code.name();
        // Users choose paths that these name.
        let (sentence, fix) = (printable(&finding.sentence), printable(&finding.fix));
        text += &format!("\n{severity}: {sentence} [{code}]\n");
        text += &format!("  fix: {fix}\n");
    }
    if !examined.unexamined.is_empty() && examined.processes > 0 {
        let pids: Vec<String> = examined.unexamined.iter().map(u32::to_string).collect();
        let pids = pids.join(", ");
        text += &format!("\nonly root can examine these processes of the slice: {pids}\n");
    }
    let facts = examined.facts.as_ref().map_or(Vec::new(), Facts::lines);
    if !facts.is_empty() {
        text.push('\n');
    }
    for (name, value) in facts {
        text += &format!("{name:<11} {}\n", printable(&value));
    }
    text
}

/// Returns the first line: whether the slice is in force, or why it is not.
fn verdict(examined: &Examined) -> String {
    let subject = &examined.subject;
    let cause = examined.findings.first().filter(|first| first.breaks());
    let name = subject.name.as_deref().map(printable);
    let program = subject
        .program
        .as_deref()
        .map(printable)
        .unwrap_or_default();
    let process = subject.pid.map(|pid| format!("process {pid} ({program})"));
    let whom = match (subject.kind, &process) {
        (Kind::Process, Some(process)) => format!(" for {process}"),
        _ => String::new(),
    };
    let what = match (subject.kind, &name) {
        (Kind::Node, _) => "this node".to_owned(),
        (Kind::All, _) => return of_all(examined, cause),
        (Kind::Process, None) => return of_unsliced(examined, cause, &process.unwrap_or_default()),
        (Kind::Container, None) => "the slice of this container".to_owned(),
        (Kind::Container, Some(name)) => format!("the slice of container {name}"),
        (_, name) => format!("slice {}", name.as_deref().unwrap_or_default()),
    };
    match (examined.in_force(), subject.kind, cause) {
        (None, ..) => format!("{what} could not be examined{whom}"),
        (_, Kind::Node, Some(cause)) => {
            format!("{what} is NOT ready for slices: {}", cause.code.cause())
        }
        (_, Kind::Node, None) => format!("{what} is ready for slices"),
        (_, _, Some(cause)) => format!("{what} is NOT in force{whom}: {}", cause.code.cause()),
        (_, Kind::Process, None) => format!("{what} is in force{whom}"),
        (_, _, None) if examined.processes == 0 => format!("{what} has no processes"),
        (_, _, None) => format!("{what} is in force for {}", count(examined.processes)),
    }
}

fn of_unsliced(examined: &Examined, cause: Option<&Finding>, process: &str) -> String {
    match (examined.in_force(), cause) {
        (None, _) => format!("{process} could not be examined"),
        (_, Some(cause)) => format!("{process} is in no slice: {}", cause.code.cause()),
        (_, None) => format!("{process} is in no slice"),
    }
}

fn of_all(examined: &Examined, cause: Option<&Finding>) -> String {
    let slices = match examined.slices {
        0 => "no slices are running".to_owned(),
        1 => "1 slice is in force".to_owned(),
        many => format!("{many} slices are in force"),
    };
    match (examined.in_force(), cause) {
        (None, _) => "no slice could be examined".to_owned(),
        (_, Some(cause)) => match &cause.name {
            Some(name) => format!(
                "slice {} is NOT in force: {}",
                printable(name),
                cause.code.cause()
            ),
            None => format!("this node is NOT ready for slices: {}", cause.code.cause()),
        },
        (_, None) => format!("{slices}, and this node is ready"),
    }
}

fn count(processes: usize) -> String {
    match processes {
        1 => "its process".to_owned(),
        many => format!("its {many} processes"),
    }
}
