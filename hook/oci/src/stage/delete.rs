//! Releases the resources of a container that has stopped.
//! Touches: /run/gpuslice, the page cache of models, the event file and the host's log.

use crate::apply::page_cache;
use crate::base::outcome::Messages;
use crate::request::arguments::Arguments;
use crate::request::state::State;
use gpuslice_host::slices::ended::Ends;
use gpuslice_host::slices::gc;
use gpuslice_host::slices::liveness::{self, Leaving};
use gpuslice_host::slices::records::{Damaged, Member, Registry, SliceRecord, survey};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How long a slice is checked again while the kernel still has a process of it. The last process of
/// a killed container is gone within a millisecond, but on a machine that is busy it waits for a
/// processor first.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest pause between two checks.
const PAUSE: Duration = Duration::from_millis(20);

/// Deletes a container's record. An unknown container is not an error: its record is already
/// deleted.
///
/// # Errors
/// When something cannot be removed; the next hook tries again.
pub(crate) fn delete(state: &State, given: &Arguments) -> anyhow::Result<Messages> {
    if !given.paths.slices().exists() {
        return Ok(Messages::new());
    }
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    let mut drops = Vec::new();
    loop {
        // A refused container has no record, so the lock is not needed.
        if !is_recorded(state, given)? {
            break;
        }
        // Other hooks have their turn during the pause.
        let held = release(state, given, &mut drops)?;
        if held.is_empty() {
            break;
        }
        if start.elapsed() >= PATIENCE {
            let mut lines = page_cache::drop_folders(&drops);
            lines.extend(held.iter().map(|name| {
                format!(
                    "{name}: one of its processes may still hold GPU memory: the slice is released \
                     when that process ends"
                )
            }));
            return Ok(lines);
        }
        thread::sleep(pause);
        pause = PAUSE.min(pause.saturating_mul(2));
    }
    Ok(page_cache::drop_folders(&drops))
}

/// Takes a container out of its slices, and adds the model folders that it leaves to `drops`, once
/// each. Returns the names of the slices that a process of it still holds.
fn release(
    state: &State,
    given: &Arguments,
    drops: &mut Vec<PathBuf>,
) -> anyhow::Result<Vec<String>> {
    let registry = Registry::lock_soon(&given.paths)?;
    // Another runtime may have a container of the same id.
    let ours = |member: &&Member| {
        member.id == state.id && (member.bundle == state.bundle || !member.owner.lives())
    };
    let mut held = Vec::new();
    let (records, damaged) = registry.survey()?;
    for record in records {
        let Some(member) = record.containers.iter().find(ours) else {
            continue;
        };
        let folders = member.drops.clone();
        held.extend(leave(&registry, record, &state.id)?);
        let new = folders.into_iter().filter(|folder| !drops.contains(folder));
        drops.extend(new.collect::<Vec<_>>());
    }
    // A damaged record of the container's own slice is removed once no process of it is alive.
    let own = |damaged: &Damaged| damaged.slice == state.id;
    for damaged in damaged {
        if own(&damaged) && matches!(liveness::first_sign(&given.paths, &damaged), Ok(None)) {
            gc::remove_damaged(&given.paths, &damaged)?;
        }
    }
    gc::drop_dead(&registry)?;
    Ok(held)
}

/// Whether a record names the container, or cannot be read.
fn is_recorded(state: &State, given: &Arguments) -> anyhow::Result<bool> {
    let (records, damaged) = survey(&given.paths)?;
    let mut members = records.iter().flat_map(|record| &record.containers);
    Ok(!damaged.is_empty() || members.any(|member| member.id == state.id))
}

/// Takes a container out of its slice. Returns the slice's name if a process of it is still running.
fn leave(registry: &Registry<'_>, record: SliceRecord, id: &str) -> anyhow::Result<Option<String>> {
    let ids = [id.to_owned()];
    let name = record.name.clone();
    let ends = Ends::of(registry.paths(), &record, &ids);
    let left = gc::leave(registry, record, &ids, Leaving::Ended)?;
    if left.as_ref().is_some_and(|left| gc::names(left, &ids)) {
        return Ok(Some(name));
    }
    ends.write(registry.paths(), left.as_ref());
    Ok(None)
}
