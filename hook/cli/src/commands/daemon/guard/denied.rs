//! The containers that can open no GPU any more.
//! Touches: their cgroups, through `lever`; one file in the run folder of the host.
//! Law: what the guard has refused is allowed again when nobody in the container is suspected, and
//! when the guard has ended: with cgroup version 2 at once, with version 1 when the guard starts again.

use super::bypass::{SAMPLES, Suspect};
use super::lever::{self, Group, Lever, RulesBefore};
use crate::base::atomic_write::{self, Durability};
use gpuslice_host::base::paths::HostPaths;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, io};

/// The name of the file with the rules of version 1 that applied before.
const FILE: &str = "guard-denied.json";

/// The containers that can open no GPU any more.
#[derive(Debug)]
pub(super) struct Denied {
    containers: BTreeMap<Group, Refused>,
    file: PathBuf,
}

/// A container that can open no GPU any more.
#[derive(Debug)]
struct Refused {
    /// The slice's name.
    slice: String,
    /// The first processes of the containers of this slice.
    pids: Vec<i32>,
    /// The samples in a row in which nobody of the slice was suspected.
    samples_without: u32,
    lever: Lever,
}

impl Denied {
    /// No containers. Those that an earlier guard left without GPUs can open them again.
    pub(super) fn new(places: &HostPaths, tell: fn(&str)) -> Denied {
        let denied = Denied {
            containers: BTreeMap::new(),
            file: places.run().join(FILE),
        };
        let left = fs::read(&denied.file).unwrap_or_default();
        for rules in serde_json::from_slice::<Vec<RulesBefore>>(&left).unwrap_or_default() {
            let cgroup = rules.folder().display().to_string();
            match rules.restore() {
                Ok(()) => tell(&format!("the processes of {cgroup} can open GPUs again")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tell(&format!(
                    "the processes of {cgroup} still cannot open GPUs: {error}"
                )),
            }
        }
        if !left.is_empty() {
            denied.save(None);
        }
        denied
    }

    /// Refuses new opens of GPUs to the containers of a suspect. Returns what happened, as the end of
    /// a sentence.
    pub(super) fn add(&mut self, suspect: &Suspect) -> String {
        let majors = fs::read_to_string("/proc/devices").unwrap_or_default();
        let majors = lever::majors_in(&majors);
        let mut groups = suspect
            .containers
            .iter()
            .map(|pid| Group::of_container(*pid));
        let pulled = groups.try_for_each(|group| {
            let group = group.ok_or(io::ErrorKind::NotFound)?;
            self.refuse(group, &majors, suspect)
        });
        match pulled {
            Ok(()) => "; its container can no longer open a GPU (GPUs that are already open keep working)".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "; its container is not kept from opening GPUs: it has no cgroup of its own that allows GPUs"
                    .to_owned()
            }
            Err(error) => format!("; its container can still open GPUs: {error}"),
        }
    }

    /// Whether a container cannot open GPUs.
    pub(super) fn is_any(&self) -> bool {
        !self.containers.is_empty()
    }

    fn refuse(&mut self, group: Group, majors: &[u32], suspect: &Suspect) -> io::Result<()> {
        if self.containers.contains_key(&group) {
            return Ok(());
        }
        let lever = Lever::pull(&group, majors, |rules| self.save(Some(rules)));
        let lever = lever.inspect_err(|_| self.save(None))?;
        let refused = Refused {
            slice: suspect.slice.clone(),
            pids: suspect.containers.clone(),
            samples_without: 0,
            lever,
        };
        self.containers.insert(group, refused);
        Ok(())
    }

    /// Lets containers open GPUs again if nobody in their slice was suspected in several samples in a
    /// row. One sample without suspects may only mean that the driver did not answer.
    pub(super) fn keep(&mut self, found: &[Suspect], tell: fn(&str)) {
        let before = self.containers.len();
        self.containers.retain(|_, refused| {
            let is_in = |suspect: &Suspect| {
                let mut pids = suspect.containers.iter();
                pids.any(|pid| refused.pids.contains(pid))
            };
            refused.samples_without = match found.iter().any(is_in) {
                true => 0,
                false => refused.samples_without.saturating_add(1),
            };
            let stays = refused.samples_without < SAMPLES;
            if !stays {
                let slice = &refused.slice;
                tell(&format!(
                    "the container of slice {slice} can open GPUs again"
                ));
            }
            stays
        });
        if self.containers.len() != before {
            self.save(None);
        }
    }

    /// Writes the rules, and those of one more container, that a later guard must restore if this one
    /// is killed.
    fn save(&self, more: Option<&RulesBefore>) {
        let levers = self.containers.values().map(|refused| &refused.lever);
        let rules = levers.filter_map(Lever::rules_before).chain(more);
        let rules: Vec<&RulesBefore> = rules.collect();
        if rules.is_empty() {
            let _ = fs::remove_file(&self.file);
            return;
        }
        let text = serde_json::to_vec(&rules).unwrap_or_default();
        let _ = atomic_write::replace_with(&self.file, &text, Durability::Cached);
    }
}

#[cfg(test)]
#[path = "denied_tests.rs"]
mod tests;
