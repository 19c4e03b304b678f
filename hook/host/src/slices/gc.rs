//! Removes records and resources without a live owner: after a crash, a kill, or a container that
//! no runtime deleted.
//! Touches: /run/gpuslice, /proc, the event file and the host's log.
//! Law: the kernel, not we, decides which process is dead.

use crate::base::paths::HostPaths;
use crate::machine::process::Life;
use crate::slices::ended::Ends;
use crate::slices::liveness::{self, Leaving};
use crate::slices::records::{Damaged, Member, Registry, RegistryError, SliceRecord};
use crate::slices::removal::{self, HostError};
use crate::slices::tenants;
use gpuslice_config::ledger::LedgerError;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The things that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Containers, by id.
    pub containers: Vec<String>,
    /// Slices, by id.
    pub slices: Vec<String>,
    /// Unreadable records, by their files.
    pub records: Vec<PathBuf>,
    /// The failures to remove a resource, with their causes. The resource counts as held until it
    /// is removed.
    pub failures: Vec<String>,
}

/// Why something was not removed.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// The records cannot be read or changed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A resource on the host cannot be removed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Some resources remain.
    #[error("{0}")]
    Left(String),
}

/// Removes every container whose first process is dead, and every slice without processes. A
/// process that outlives its container's first process and may hold memory keeps the slice.
/// Returns the remaining records, so that they need not be read again.
///
/// # Errors
/// When the records cannot be read. A resource that cannot be removed does not stop other
/// containers from starting.
pub fn drop_dead(registry: &Registry<'_>) -> Result<(Vec<SliceRecord>, Collected), RegistryError> {
    Ok(drop_dead_of(registry, registry.records()?))
}

/// Like [`drop_dead`], for the given records.
pub(crate) fn drop_dead_of(
    registry: &Registry<'_>,
    all: Vec<SliceRecord>,
) -> (Vec<SliceRecord>, Collected) {
    let mut collected = Collected::default();
    let mut living = Vec::new();
    for record in all {
        let unseen = |member: &&Member| member.owner.life() == Life::Unseen;
        let unseen = record.containers.iter().filter(unseen);
        collected.failures.extend(unseen.map(|member| {
            format!(
                "container {} stays: its process {} is in another pid namespace and cannot be seen \
                 from here (run gpuslice gc on the host)",
                member.name, member.owner.pid
            )
        }));
        let dead = record.containers.iter().filter(|one| !one.owner.lives());
        let dead: Vec<String> = dead.map(|member| member.id.clone()).collect();
        if dead.is_empty() && !record.containers.is_empty() {
            living.push(record);
            continue;
        }
        let slice = record.slice.clone();
        let ends = Ends::of(registry.paths(), &record, &dead);
        match leave(registry, record.clone(), &dead, Leaving::Ended) {
            Ok(Some(left)) => {
                ends.write(registry.paths(), Some(&left));
                if !names(&left, &dead) {
                    collected.containers.extend(dead);
                }
                living.push(left);
            }
            Ok(None) => {
                ends.write(registry.paths(), None);
                collected.slices.push(slice);
                collected.containers.extend(dead);
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                collected.failures.push(format!("{error:#}"));
                living.push(record);
            }
        }
    }
    (living, collected)
}

/// Whether any of these containers is in the record.
#[must_use]
pub fn names(record: &SliceRecord, ids: &[String]) -> bool {
    let mut members = record.containers.iter();
    members.any(|member| ids.contains(&member.id))
}

/// The slices with a live process, as [`drop_dead`] would leave them. Removes nothing.
#[must_use]
pub fn without_dead(paths: &HostPaths, records: Vec<SliceRecord>) -> Vec<SliceRecord> {
    let living = records.into_iter().filter_map(|mut record| {
        let is_dead = !record.containers.iter().any(|member| member.owner.lives());
        if is_dead && liveness::is_held(paths, &record, Leaving::Ended) {
            return Some(record);
        }
        record.containers.retain(|member| member.owner.lives());
        (!record.containers.is_empty()).then_some(record)
    });
    living.collect()
}

/// Takes containers out of a slice, and removes the slice with its last container. While a process
/// may hold its memory, the slice stays as it is. Returns the record that remains.
///
/// # Errors
/// When something cannot be removed; the record then still names it.
pub fn leave(
    registry: &Registry<'_>,
    mut record: SliceRecord,
    ids: &[String],
    leaving: Leaving,
) -> Result<Option<SliceRecord>, GcError> {
    let paths = registry.paths();
    let leaves = |member: &Member| ids.contains(&member.id);
    if record.containers.iter().all(leaves) && liveness::is_held(paths, &record, leaving) {
        return Ok(Some(record));
    }
    for id in ids {
        removal::remove_container(paths, id)?;
    }
    record.containers.retain(|member| !ids.contains(&member.id));
    if record.containers.is_empty() {
        removal::remove_slice(paths, &record)?;
        registry.remove(&record.slice)?;
        return Ok(None);
    }
    // The containers of other pods may still use a named slice. It takes the name of one that does.
    if let (true, Some(first)) = (record.named.is_some(), record.containers.first()) {
        record.name.clone_from(&first.name);
    }
    registry.write(&record)?;
    Ok(Some(record))
}

/// Removes everything without a live owner, and everything that no record names.
///
/// # Errors
/// When something cannot be read or removed.
pub fn collect(paths: &HostPaths) -> Result<Collected, GcError> {
    let collected = collect_all(paths, Unreadable::Keep)?;
    match collected.failures.is_empty() {
        true => Ok(collected),
        false => Err(GcError::Left(collected.failures.join("; "))),
    }
}

/// The treatment of records that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Keep them.
    Keep,
    /// Remove them, unless there is a sign that their container is alive.
    Remove,
}

/// Like [`collect`], but returns the failures together with what was removed.
///
/// # Errors
/// When the records cannot be listed, or what no record names cannot be removed.
pub fn collect_all(paths: &HostPaths, unreadable: Unreadable) -> Result<Collected, GcError> {
    if !paths.slices().exists() {
        return Ok(Collected::default());
    }
    let registry = Registry::lock(paths)?;
    let (records, damaged) = registry.survey()?;
    let (living, mut collected) = drop_dead_of(&registry, records);
    let mut kept = false;
    for damaged in damaged {
        let failure = match (liveness::first_sign(paths, &damaged), unreadable) {
            (Err(error), _) => unseen(&damaged, error),
            (Ok(Some(sign)), _) => format!(
                "{damaged}, but {sign} (stop the container of slice {}, then run gpuslice gc --force)",
                damaged.slice
            ),
            (Ok(None), Unreadable::Keep) => format!(
                "{damaged}; its container shows no sign of life (gpuslice gc --force removes the \
                 record)"
            ),
            (Ok(None), Unreadable::Remove) => match remove_damaged(paths, &damaged) {
                Ok(()) => {
                    collected.records.push(damaged.path);
                    continue;
                }
                Err(error) => format!("{:#}", anyhow::Error::new(error)),
            },
        };
        kept = true;
        collected.failures.push(failure);
    }
    // The resources of an unreadable slice are unknown.
    if kept {
        return Ok(collected);
    }
    let has_container = |id: &str| {
        let mut members = living.iter().flat_map(|record| &record.containers);
        members.any(|member| member.id == id)
    };
    for id in listed(&paths.containers()) {
        if !has_container(&id) {
            removal::remove_container(paths, &id)?;
            collected.containers.push(id);
        }
    }
    let is_slice = |slice: &str| living.iter().any(|record| record.slice == slice);
    tenants::keep_containers(paths, is_slice);
    // Only the command knows whether processes are left of a run whose watcher was killed.
    tenants::remove_dead(&paths.run().join(tenants::FOLDER), |_| true);
    for slice in listed(&paths.ledgers()) {
        if !living.iter().any(|record| record.slice == slice) {
            removal::remove_ledger(&paths.ledger(&slice))?;
            collected.slices.push(slice);
        }
    }
    for slice in listed(&paths.pages()) {
        if !is_slice(&slice) {
            removal::remove_file(&paths.page(&slice))?;
        }
    }
    Ok(collected)
}

/// Removes a record that cannot be read, after its slice's resources on the host. No process in the
/// slice is alive.
///
/// # Errors
/// When something cannot be removed; the record is then still there.
pub fn remove_damaged(paths: &HostPaths, damaged: &Damaged) -> Result<(), GcError> {
    let slice = damaged.slice.as_str();
    // A name that means a parent folder would remove resources of other slices.
    if matches!(
        Path::new(slice).components().next(),
        Some(Component::Normal(_))
    ) {
        removal::remove_container(paths, slice)?;
        removal::remove_ledger(&paths.ledger(slice))?;
        removal::remove_file(&paths.page(slice))?;
        removal::remove_promises(paths, slice)?;
    }
    Ok(removal::remove_file(&damaged.path)?)
}

/// The message about a damaged record whose slice may be alive.
fn unseen(damaged: &Damaged, error: LedgerError) -> String {
    format!(
        "{damaged}; cannot tell at the moment whether a process of its slice is alive: {error} (run \
         gpuslice gc again)"
    )
}

/// Names that are not UTF-8 are not ours.
fn listed(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_config::ledger::Errno;

    #[test]
    fn a_shortage_of_descriptors_asks_for_no_container_to_be_stopped() {
        let damaged = Damaged {
            path: "/run/gpuslice/slices/c1.json".into(),
            slice: "c1".to_owned(),
            why: "cut".to_owned(),
            text: Vec::new(),
        };
        let shortage = LedgerError::Open(Errno(libc::EMFILE));
        assert_eq!(
            unseen(&damaged, shortage),
            format!(
                "/run/gpuslice/slices/c1.json is not a valid slice record (cut); cannot tell at the \
                 moment whether a process of its slice is alive: {shortage} (run gpuslice gc again)"
            )
        );
    }
}
