//! A container has stopped: what it held is free.
//! Touches: /run/gpuslice, the page cache of models.

use crate::arguments::Arguments;
use crate::create::Lines;
use crate::registry::{Damaged, Member, Registry, survey};
use crate::state::State;
use crate::{gc, page_cache, traces};

/// Forgets a container. One that is not known is forgotten already.
///
/// # Errors
/// What cannot be removed; the next hook tries again.
pub fn delete(state: &State, given: &Arguments) -> anyhow::Result<Lines> {
    let mut lines = Lines::new();
    if !given.places.slices().exists() {
        return Ok(lines);
    }
    // One that was refused has no record: it waits for nobody.
    if !is_recorded(state, given)? {
        return Ok(lines);
    }
    let registry = Registry::lock_soon(&given.places)?;
    // Another runtime may have a container of the same id.
    let ours = |member: &&Member| {
        member.id == state.id && (member.bundle == state.bundle || !member.owner.lives())
    };
    let mut drops = Vec::new();
    let (records, damaged) = survey(&given.places)?;
    for record in records {
        let Some(member) = record.containers.iter().find(ours) else {
            continue;
        };
        drops.extend(member.drops.iter().cloned());
        gc::leave(&registry, record, std::slice::from_ref(&state.id))?;
    }
    // Its own record, when nothing of it lives.
    let own = |damaged: &Damaged| damaged.slice == state.id;
    for damaged in damaged {
        if own(&damaged) && traces::of_life(&given.places, &damaged).is_none() {
            gc::remove_damaged(&given.places, &damaged)?;
        }
    }
    gc::drop_dead(&registry)?;
    drop(registry);
    lines.extend(page_cache::drop_folders(&drops));
    Ok(lines)
}

/// Whether a record names the container, or cannot be read.
fn is_recorded(state: &State, given: &Arguments) -> anyhow::Result<bool> {
    let (records, damaged) = survey(&given.places)?;
    let mut members = records.iter().flat_map(|record| &record.containers);
    Ok(!damaged.is_empty() || members.any(|member| member.id == state.id))
}
