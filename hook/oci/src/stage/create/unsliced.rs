//! Records a container that starts without the slice that it should have, so that `gpuslice status`
//! shows it.
//! Touches: the registry.

use crate::apply::container;
use crate::base::outcome::Stage;
use crate::plan::is_reserved;
use crate::request::arguments::Arguments;
use crate::request::identity::Identity;
use crate::request::spec;
use crate::request::state::State;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::records::{Member, Registry, SliceRecord};

/// Records that a container starts without a slice, because of a failure. The record holds no
/// memory. A container that a record names already is left alone.
///
/// # Errors
/// When the record cannot be written. The host's log names the container all the same.
pub(crate) fn record(
    state: &State,
    stage: Stage,
    given: &Arguments,
    why: &str,
) -> anyhow::Result<()> {
    let places = &given.paths;
    let owner = container::owner(state, stage)?;
    let registry = Registry::lock_soon(places)?;
    if is_reserved(&state.id) || places.slice(&state.id).exists() {
        return Ok(());
    }
    let who = identity(state);
    registry.write(&SliceRecord {
        version: SliceRecord::VERSION,
        slice: state.id.clone(),
        name: who.title(),
        namespace: who.namespace.clone(),
        shared: false,
        sandbox: None,
        named: None,
        devices: Vec::new(),
        promised: None,
        before_resize: None,
        containers: vec![Member {
            id: state.id.clone(),
            name: who.title(),
            owner,
            bundle: state.bundle.clone(),
            drops: Vec::new(),
            no_slice: Some(why.to_owned()),
            pod: who.place(),
        }],
    })?;
    Ok(())
}

/// The identity of a container without a plan.
pub(crate) fn identity(state: &State) -> Identity {
    let mut annotations = state.annotations.clone();
    annotations.extend(spec::read(&state.bundle).unwrap_or_default().annotations);
    Identity::of(&state.id, &annotations)
}

/// Leaves out the record of a container that an earlier attempt has recorded without a slice.
pub(super) fn without(places: &HostPaths, records: Vec<SliceRecord>, id: &str) -> Vec<SliceRecord> {
    let is_its = |record: &SliceRecord| record.slice == id && !record.has_slice(places);
    records.into_iter().filter(|one| !is_its(one)).collect()
}

/// Removes the record that an earlier attempt made without a slice: this attempt may succeed.
pub(super) fn forget(
    registry: &Registry<'_>,
    records: Vec<SliceRecord>,
    id: &str,
) -> Vec<SliceRecord> {
    let before = records.len();
    let left = without(registry.paths(), records, id);
    if left.len() < before {
        // If this fails, the record that this attempt writes replaces the old one.
        let _ = registry.remove(id);
    }
    left
}
