//! Releases the resources of a container that has stopped.
//! Touches: /run/gpuslice, the page cache of models, the event file and the host's log.

use crate::apply::page_cache;
use crate::base::outcome::Messages;
use crate::request::arguments::Arguments;
use crate::request::state::State;
use gpuslice_host::slices::ended::Ends;
use gpuslice_host::slices::records::{Damaged, Member, Registry, SliceRecord, survey};
use gpuslice_host::slices::{gc, liveness};
use std::thread;
use std::time::Duration;

/// Deletes a container's record. An unknown container is not an error: its record is already
/// deleted.
///
/// # Errors
/// When something cannot be removed; the next hook tries again.
pub(crate) fn delete(state: &State, given: &Arguments) -> anyhow::Result<Messages> {
    let mut lines = Messages::new();
    if !given.paths.slices().exists() {
        return Ok(lines);
    }
    // A refused container has no record, so the lock is not needed.
    if !is_recorded(state, given)? {
        return Ok(lines);
    }
    let registry = Registry::lock_soon(&given.paths)?;
    // Another runtime may have a container of the same id.
    let ours = |member: &&Member| {
        member.id == state.id && (member.bundle == state.bundle || !member.owner.lives())
    };
    let mut drops = Vec::new();
    let (records, damaged) = survey(&given.paths)?;
    for record in records {
        let Some(member) = record.containers.iter().find(ours) else {
            continue;
        };
        drops.extend(member.drops.iter().cloned());
        lines.extend(leave(&registry, record, &state.id)?);
    }
    // A damaged record of the container's own slice is removed once no process of it is alive.
    let own = |damaged: &Damaged| damaged.slice == state.id;
    for damaged in damaged {
        if own(&damaged) && liveness::first_sign(&given.paths, &damaged).is_none() {
            gc::remove_damaged(&given.paths, &damaged)?;
        }
    }
    gc::drop_dead(&registry)?;
    drop(registry);
    lines.extend(page_cache::drop_folders(&drops));
    Ok(lines)
}

/// Whether a record names the container, or cannot be read.
fn is_recorded(state: &State, given: &Arguments) -> anyhow::Result<bool> {
    let (records, damaged) = survey(&given.paths)?;
    let mut members = records.iter().flat_map(|record| &record.containers);
    Ok(!damaged.is_empty() || members.any(|member| member.id == state.id))
}

/// How many times a slice is checked again while the kernel still has a process of it. The last
/// process of a killed container is gone within a millisecond.
const ROUNDS: u32 = 50;

/// Takes a container out of its slice. Returns a message if a process of it is still running.
fn leave(registry: &Registry<'_>, record: SliceRecord, id: &str) -> anyhow::Result<Option<String>> {
    let ids = [id.to_owned()];
    let name = record.name.clone();
    let mut record = record;
    let ends = Ends::of(registry.paths(), &record, &ids);
    for _ in 0..ROUNDS {
        match gc::leave(registry, record, &ids)? {
            Some(left) if gc::names(&left, &ids) => record = left,
            left => {
                ends.write(registry.paths(), left.as_ref());
                return Ok(None);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(Some(format!(
        "{name}: one of its processes still runs and holds GPU memory: the slice is released when that \
         process ends"
    )))
}
