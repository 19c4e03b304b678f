//! Applies the checks to a process, a slice, a container, this node, or all of them.
//! Touches: everything the checks touch.

use super::bundles;
use super::checks::{self, ContainerSeen, Gpus, Surroundings};
use super::codes::{Code, Severity};
use super::finding::{Finding, sorted};
use super::membership::{Membership, Origin, RunSeen, mounted_places};
use super::node;
use super::process::{ProcessFacts, Unexamined};
use super::report::Facts;
use super::seen::{self, SliceSeen};
use crate::base::text::printable;
use crate::commands::status::process::Processes;
use crate::driver::preload;
use gpuslice_config::words::paths::NO_SLICE;
use gpuslice_host::base::paths::HostPaths;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What was examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Process,
    Slice,
    Container,
    Node,
    All,
}

/// The subject of an examination, in its JSON form.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Subject {
    pub(super) kind: Kind,
    /// The slice's name.
    pub(super) name: Option<String>,
    pub(super) pid: Option<u32>,
    /// The process's name.
    pub(super) program: Option<String>,
    /// The container's id.
    pub(super) container: Option<String>,
}

/// The result of an examination.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) subject: Subject,
    /// The findings, the most likely cause first.
    pub(super) findings: Vec<Finding>,
    /// The processes that this user may not examine.
    pub(super) unexamined: Vec<u32>,
    /// Messages about the subject, if it could not be examined.
    pub(super) refused: Vec<String>,
    /// The number of processes that were examined.
    pub(super) processes: usize,
    /// The number of slices that were examined.
    pub(super) slices: usize,
    /// Facts about the process, if the subject is one.
    pub(super) facts: Option<Facts>,
}

impl Examined {
    fn of(kind: Kind) -> Examined {
        let subject = Subject {
            kind,
            name: None,
            pid: None,
            program: None,
            container: None,
        };
        Examined {
            subject,
            findings: Vec::new(),
            unexamined: Vec::new(),
            refused: Vec::new(),
            processes: 0,
            slices: 0,
            facts: None,
        }
    }

    /// Returns whether the slice is in force; None if nothing of it could be examined.
    pub(super) fn in_force(&self) -> Option<bool> {
        let is_broken = self.findings.iter().any(Finding::breaks);
        let is_unknown = self.processes == 0 && !self.unexamined.is_empty();
        match (is_broken, is_unknown) {
            (true, _) => Some(false),
            (false, true) => None,
            (false, false) => Some(true),
        }
    }
}

/// The machine, as it is examined.
pub(super) struct Examination<'a> {
    places: &'a HostPaths,
    processes: Processes,
    slices: Vec<SliceSeen>,
    installed: Result<PathBuf, String>,
    gpus: Gpus,
}

impl<'a> Examination<'a> {
    pub(super) fn new(places: &'a HostPaths) -> Examination<'a> {
        let own = std::env::current_exe().unwrap_or_default();
        let beside = own.parent().unwrap_or(Path::new("/"));
        let installed = preload::find(beside);
        Examination {
            places,
            processes: Processes::default(),
            slices: seen::slices(places),
            installed: installed.map_err(|error| format!("{:#}", anyhow::Error::new(error))),
            gpus: Gpus::default(),
        }
    }

    /// Examines this node. Without a driver it is not ready for slices, although a slice of a
    /// simulated machine may be in force on it.
    pub(super) fn node(&self) -> Examined {
        let mut found = node::findings(self.places, &self.installed, &self.gpus);
        for finding in &mut found {
            if finding.code == Code::NoDriver {
                finding.severity = Severity::Error;
            }
        }
        Examined {
            findings: sorted(found),
            ..Examined::of(Kind::Node)
        }
    }

    /// Examines all slices that are visible here, and this node. In a container, that is the
    /// container's slice alone.
    pub(super) fn all(&self) -> Examined {
        if is_in_container() {
            let own = std::process::id();
            let all = self.processes.all().keys().copied();
            let members: BTreeSet<u32> = all.filter(|pid| *pid != own).collect();
            let first = members.iter().next().copied();
            return self.members(Kind::Container, &members, &Vec::from_iter(first), None);
        }
        let mut whole = Examined::of(Kind::All);
        let mut found = node::findings(self.places, &self.installed, &self.gpus);
        for slice in &self.slices {
            let one = self.slice(slice);
            found.extend(one.findings);
            whole.unexamined.extend(one.unexamined);
            whole.processes = whole.processes.saturating_add(one.processes);
            whole.slices = whole.slices.saturating_add(1);
        }
        whole.findings = sorted(found);
        whole
    }

    /// Examines the process, slice or container that a word names.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn subject(&self, word: &str) -> anyhow::Result<Examined> {
        let named: Vec<&SliceSeen> = self
            .slices
            .iter()
            .filter(|slice| slice.is_called(word))
            .collect();
        match (named.as_slice(), word.parse::<u32>()) {
            ([], Ok(pid)) => self.process(pid),
            ([], Err(_)) => match bundles::find(self.places, word) {
                Some(container) => Ok(self.unrecorded(&container)),
                None => anyhow::bail!(
                    "no slice, container or process that is visible here is called \"{}\"",
                    printable(word)
                ),
            },
            ([one], _) => Ok(self.slice(one)),
            (several, _) => {
                let mut whole = self.merged(several);
                whole.subject.name = Some(word.to_owned());
                Ok(whole)
            }
        }
    }

    /// Examines several slices of one name.
    fn merged(&self, slices: &[&SliceSeen]) -> Examined {
        let mut whole = Examined::of(Kind::Slice);
        let mut found = Vec::new();
        for one in slices.iter().map(|slice| self.slice(slice)) {
            found.extend(one.findings);
            whole.unexamined.extend(one.unexamined);
            whole.processes = whole.processes.saturating_add(one.processes);
        }
        whole.findings = sorted(found);
        whole
    }

    fn slice(&self, slice: &SliceSeen) -> Examined {
        let kind = match slice.run {
            Some(_) => Kind::Slice,
            None => Kind::Container,
        };
        let members = slice.members(&self.processes);
        let mut examined = self.members(kind, &members, &slice.first(), Some(slice));
        examined.subject.name = Some(slice.name.clone());
        let container = slice.containers.first();
        examined.subject.container = container.map(|one| one.id.clone());
        examined
    }

    /// Examines the processes of a slice.
    fn members(
        &self,
        kind: Kind,
        members: &BTreeSet<u32>,
        first: &[u32],
        slice: Option<&SliceSeen>,
    ) -> Examined {
        let mut examined = Examined::of(kind);
        let mut found = Vec::new();
        for pid in members {
            let process = match ProcessFacts::read(*pid) {
                Ok(process) => process,
                Err(Unexamined::Gone(_)) => continue,
                Err(error @ Unexamined::NotPermitted { .. }) => {
                    examined.unexamined.push(*pid);
                    examined.refused.push(error.to_string());
                    continue;
                }
            };
            let (membership, findings) = self.judge(&process, slice);
            let is_printed = membership
                .as_ref()
                .is_some_and(|it| it.origin == Origin::Printed);
            let name = membership.map(|membership| membership.name());
            examined.subject.name = examined.subject.name.or(name);
            // A helper without the GPU holds nothing that could be limited.
            let is_helper = (is_printed || !first.contains(pid)) && !uses_gpu(&process);
            // Nobody has said that the owner of printed variables, and what it started before it
            // set them, should be in the slice.
            if is_printed && is_helper {
                continue;
            }
            examined.processes = examined.processes.saturating_add(1);
            found.extend(findings.into_iter().map(|finding| match is_helper {
                true => as_helper(finding),
                false => finding,
            }));
        }
        // The reason in a container's record holds also where its processes cannot be examined.
        if examined.processes == 0 {
            let containers = slice.into_iter().flat_map(|slice| &slice.containers);
            found.extend(containers.filter_map(ContainerSeen::fault));
        }
        if examined.processes > 0 {
            examined.refused.clear();
        }
        examined.findings = sorted(found);
        if let Some(slice) = slice {
            for finding in &mut examined.findings {
                finding.name.get_or_insert_with(|| slice.name.clone());
            }
        }
        examined
    }

    fn judge(
        &self,
        process: &ProcessFacts,
        slice: Option<&SliceSeen>,
    ) -> (Option<Membership>, Vec<Finding>) {
        let runs: Vec<RunSeen> = self
            .slices
            .iter()
            .filter_map(|slice| slice.run.clone())
            .collect();
        let membership = Membership::of(process, &self.processes, &runs);
        let container = slice.and_then(|slice| slice.container_of(process.pid));
        let findings = checks::process(
            process,
            &Surroundings {
                slice: membership.as_ref(),
                container,
                installed: self.installed.as_deref().ok(),
                gpus: &self.gpus,
                places: self.places,
            },
        );
        (membership, findings)
    }

    /// Examines one process.
    fn process(&self, pid: u32) -> anyhow::Result<Examined> {
        let mut examined = Examined::of(Kind::Process);
        examined.subject.pid = Some(pid);
        let process = match ProcessFacts::read(pid) {
            Ok(process) => process,
            Err(error @ Unexamined::Gone(_)) => return Err(error.into()),
            Err(error) => {
                examined.subject.program = crate::commands::status::process::name(pid);
                examined.unexamined.push(pid);
                examined.refused.push(error.to_string());
                return Ok(examined);
            }
        };
        examined.processes = 1;
        examined.subject.program = Some(process.name.clone());
        let mut slices = self.slices.iter();
        let recorded = slices.find(|slice| slice.container_of(pid).is_some());
        let slice = recorded.cloned().or_else(|| {
            let id = bundles::container_of(pid)?;
            examined.subject.container = Some(id.clone());
            let mut container = bundles::find(self.places, &id)?;
            container.pid = Some(pid);
            Some(SliceSeen {
                name: container.name.clone(),
                run: None,
                containers: vec![container],
            })
        });
        let (membership, findings) = self.judge(&process, slice.as_ref());
        if let Some(container) = slice.as_ref().and_then(|slice| slice.containers.first()) {
            examined.subject.container = Some(container.id.clone());
        }
        examined.subject.name = membership.as_ref().map(Membership::name);
        examined.facts = Some(Facts::of(&process, membership.as_ref(), self.places));
        examined.findings = sorted(findings);
        Ok(examined)
    }

    /// Examines a container that no record names.
    fn unrecorded(&self, container: &ContainerSeen) -> Examined {
        let mut examined = Examined::of(Kind::Container);
        examined.subject.container = Some(container.id.clone());
        examined.subject.name = Some(container.name.clone());
        examined.findings = sorted(container.fault().into_iter().collect());
        examined
    }
}

/// Checks whether this process is in a container that the hook knows.
fn is_in_container() -> bool {
    let mut places = mounted_places().into_iter();
    places.any(|slice| slice.exists() || slice.with_file_name(NO_SLICE).exists())
}

/// Checks whether a process has loaded a driver, or has one of its devices open.
fn uses_gpu(process: &ProcessFacts) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", process.pid));
    let links = open.into_iter().flatten().flatten();
    let mut links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    !process.maps.drivers().is_empty()
        || links.any(|file| {
            file.as_os_str()
                .as_encoded_bytes()
                .starts_with(b"/dev/nvidia")
        })
}

/// Turns the finding of a process that does not use the GPU into a warning.
fn as_helper(finding: Finding) -> Finding {
    match finding.breaks() {
        false => finding,
        true => Finding {
            severity: Severity::Warning,
            sentence: format!("{}; it does not use a GPU now", finding.sentence),
            ..finding
        },
    }
}
