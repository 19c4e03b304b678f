//! Removes what nobody holds any more: after a crash, a kill, a container that no runtime deleted.
//! Touches: /run/gpuslice, /proc. Law: the kernel, not we, says who is dead.

use crate::host::{self, HostError};
use crate::place::Places;
use crate::registry::{Record, Registry, RegistryError};
use std::fs;
use std::path::Path;

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Containers, by id.
    pub containers: Vec<String>,
    /// Slices, by id.
    pub slices: Vec<String>,
    /// What could not be removed, and why. It counts as held until it can be.
    pub failures: Vec<String>,
}

/// Why something is still there.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// The records.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// What they stand for.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Some of it is still there.
    #[error("{0}")]
    Left(String),
}

/// Drops every container whose first process is dead, and every slice that nobody is left in.
/// What is left is returned, so that it need not be read again.
///
/// # Errors
/// When the records cannot be read. What cannot be removed keeps nobody else from starting.
pub fn drop_dead(registry: &Registry<'_>) -> Result<(Vec<Record>, Collected), RegistryError> {
    let mut collected = Collected::default();
    let mut living = Vec::new();
    for record in registry.records()? {
        let dead = record.containers.iter().filter(|one| !one.owner.lives());
        let dead: Vec<String> = dead.map(|member| member.id.clone()).collect();
        if dead.is_empty() && !record.containers.is_empty() {
            living.push(record);
            continue;
        }
        let slice = record.slice.clone();
        match leave(registry, record.clone(), &dead) {
            Ok(left) => {
                if left.is_none() {
                    collected.slices.push(slice);
                }
                collected.containers.extend(dead);
                living.extend(left);
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                collected.failures.push(format!("{error:#}"));
                living.push(record);
            }
        }
    }
    Ok((living, collected))
}

/// The slices of which somebody lives, as [`drop_dead`] would leave them. Nothing is removed.
#[must_use]
pub fn without_dead(records: Vec<Record>) -> Vec<Record> {
    let living = records.into_iter().filter_map(|mut record| {
        record.containers.retain(|member| member.owner.lives());
        (!record.containers.is_empty()).then_some(record)
    });
    living.collect()
}

/// Takes containers out of a slice, and removes the slice with the last of them. What is left of
/// it is returned.
///
/// # Errors
/// What cannot be removed; the record then still names it.
pub fn leave(
    registry: &Registry<'_>,
    mut record: Record,
    ids: &[String],
) -> Result<Option<Record>, GcError> {
    let places = registry.places();
    for id in ids {
        host::remove_container(places, id)?;
    }
    record.containers.retain(|member| !ids.contains(&member.id));
    if record.containers.is_empty() {
        host::remove_slice(places, &record)?;
        registry.remove(&record.slice)?;
        return Ok(None);
    }
    registry.write(&record)?;
    Ok(Some(record))
}

/// Everything: the dead, and what no record names.
///
/// # Errors
/// What cannot be read or removed.
pub fn collect(places: &Places) -> Result<Collected, GcError> {
    if !places.slices().exists() {
        return Ok(Collected::default());
    }
    let registry = Registry::lock(places)?;
    let (living, mut collected) = drop_dead(&registry)?;
    let has_container = |id: &str| {
        let mut members = living.iter().flat_map(|record| &record.containers);
        members.any(|member| member.id == id)
    };
    for id in names(&places.containers()) {
        if !has_container(&id) {
            host::remove_container(places, &id)?;
            collected.containers.push(id);
        }
    }
    for slice in names(&places.ledgers()) {
        if !living.iter().any(|record| record.slice == slice) {
            host::remove_ledger(&places.ledger(&slice))?;
            collected.slices.push(slice);
        }
    }
    match collected.failures.is_empty() {
        true => Ok(collected),
        false => Err(GcError::Left(collected.failures.join("; "))),
    }
}

/// Names that are no UTF-8 are not ours.
fn names(folder: &Path) -> Vec<String> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    listed
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
