//! The checks of one process. Each file holds one subject, and adds its findings.
//! Touches: nothing by itself.
//! Law: a check that depends on another's outcome is called by it, so that a cause is reported once
//! and not with its consequences.

mod container;
mod driver;
mod gpus;
mod kernel;
mod ledger;
pub(super) mod library;
mod not_loaded;
mod settings;
mod slice_file;

pub(super) use container::ContainerSeen;
pub(super) use gpus::Gpus;

use super::codes::{Code, Severity};
use super::finding::Finding;
use super::membership::{Membership, Origin, reason};
use super::process::ProcessFacts;
use gpuslice_host::base::paths::HostPaths;
use std::path::Path;

/// Everything that the checks of one process look at.
pub(super) struct Case<'a> {
    pub(super) process: &'a ProcessFacts,
    pub(super) slice: &'a Membership,
    /// The library of this installation.
    pub(super) installed: Option<&'a Path>,
    pub(super) gpus: &'a Gpus,
    pub(super) places: &'a HostPaths,
}

/// The inputs of a process's checks, besides the process itself.
pub(super) struct Surroundings<'a> {
    pub(super) slice: Option<&'a Membership>,
    pub(super) container: Option<&'a ContainerSeen>,
    pub(super) installed: Option<&'a Path>,
    pub(super) gpus: &'a Gpus,
    pub(super) places: &'a HostPaths,
}

/// Checks one process.
pub(super) fn process(process: &ProcessFacts, around: &Surroundings<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    match around.slice {
        None => found.push(without_slice(process, around)),
        Some(slice) => {
            let case = Case {
                process,
                slice,
                installed: around.installed,
                gpus: around.gpus,
                places: around.places,
            };
            in_slice(&case, &mut found);
        }
    }
    for finding in &mut found {
        finding.pid = Some(process.pid);
        finding.name = around.slice.map(Membership::name);
    }
    found
}

fn in_slice(case: &Case<'_>, found: &mut Vec<Finding>) {
    let loaded = !case.process.maps.libraries().is_empty();
    match loaded {
        false => found.push(not_loaded::cause(case)),
        true => {
            found.extend(not_loaded::other_libc(case));
            library::check(case, found);
        }
    }
    // Without the library, or without the slice's name, the process reads neither file.
    if loaded && case.slice.is_named() {
        slice_file::check(case, found);
        let is_usable = case.slice.slice().is_some();
        if is_usable {
            ledger::check(case, found);
            settings::check(case, found);
        }
        let is_broken = found.iter().any(Finding::breaks);
        if is_usable && !is_broken {
            kernel::check(case, found);
        }
    } else if loaded {
        found.push(slice_file::not_named(case));
    }
    driver::check(case, found);
    // A process that does not use the GPU holds nothing that could be limited.
    let is_broken = found.iter().any(Finding::breaks);
    if !is_broken && case.slice.slice().is_some() {
        driver::visible(case, found);
    }
}

/// Returns the reason why a process has no slice at all.
fn without_slice(process: &ProcessFacts, around: &Surroundings<'_>) -> Finding {
    if let Some(why) = reason(process) {
        let sentence = format!(
            "the container of {} started without its slice: {why}",
            process.shown()
        );
        return Finding::new(Code::NotInjectable, sentence);
    }
    if let Some(finding) = around.container.and_then(ContainerSeen::fault) {
        return finding;
    }
    let loaded = !process.maps.libraries().is_empty();
    let sentence = match loaded {
        true => format!(
            "{} has loaded libgpuslice.so, but neither its environment nor a mounted file names a \
             slice",
            process.shown()
        ),
        false => format!(
            "{} was not started by gpuslice run, and it is in no container with a slice",
            process.shown()
        ),
    };
    match loaded {
        true => Finding::new(Code::SliceVariableLost, sentence),
        false => Finding::new(Code::NoSlice, sentence),
    }
}

impl Case<'_> {
    /// Returns the process as sentences name it.
    fn who(&self) -> String {
        self.process.shown()
    }

    /// Checks whether the hook has mounted the slice.
    fn is_mounted(&self) -> bool {
        self.slice.origin == Origin::Mounted
    }

    /// Returns the usual severity, or a warning where a copy of the slice stays in force.
    fn severity(&self) -> Severity {
        match self.slice.carried.is_some() && !self.is_mounted() {
            true => Severity::Warning,
            false => Severity::Error,
        }
    }
}
