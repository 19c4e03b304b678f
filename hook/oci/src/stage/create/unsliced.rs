//! Records a container that starts without the slice that it should have, so that `gpuslice status`
//! shows it.
//! Touches: the registry.

use crate::apply::container;
use crate::base::outcome::Stage;
use crate::plan::is_reserved;
use crate::request::arguments::Arguments;
use crate::request::hook_slices;
use crate::request::identity::Identity;
use crate::request::spec::{self, Spec};
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
    let spec = spec::read(&state.bundle).unwrap_or_default();
    let who = identity_in(&spec, state, given);
    let by_hooks = hook_slices::of(&spec, &given.slice).ok().flatten();
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
            not_limited: None,
            claims: by_hooks.and_then(|by_hooks| by_hooks.named),
            pod: who.place(),
        }],
    })?;
    Ok(())
}

/// The identity of a container without a plan.
pub(crate) fn identity(state: &State, given: &Arguments) -> Identity {
    let spec = spec::read(&state.bundle).unwrap_or_default();
    identity_in(&spec, state, given)
}

/// As a plan has it: the namespace of a claim counts, and not that of an annotation.
fn identity_in(spec: &Spec, state: &State, given: &Arguments) -> Identity {
    let mut annotations = state.annotations.clone();
    let own = spec.annotations.iter();
    annotations.extend(own.map(|(key, value)| (key.clone(), value.clone())));
    let mut who = Identity::of(&state.id, &annotations);
    // Hooks that contradict each other may be why there is no plan. This one still has its claim.
    let by_hooks = hook_slices::of(spec, &given.slice).ok().flatten();
    let namespace = by_hooks.and_then(|by_hooks| by_hooks.namespace);
    if let Some(namespace) = namespace.or_else(|| given.slice.namespace.clone()) {
        who.namespace = Some(namespace);
    }
    who
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::arguments::{self, Invocation};
    use std::fs;

    #[test]
    fn a_container_without_a_plan_is_in_the_namespace_of_its_claim() {
        let bundle = tempfile::tempdir().unwrap();
        let config = serde_json::json!({"ociVersion": "1.0.0", "annotations": {
            "io.kubernetes.cri.sandbox-namespace": "other",
            "io.kubernetes.cri.sandbox-name": "web",
        }});
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        let path = bundle.path().to_str().unwrap();
        let text = serde_json::json!({
            "ociVersion": "1.0.0", "id": "abc", "status": "created", "bundle": path,
        });
        let state: State = serde_json::from_value(text).unwrap();
        let namespace = |options: &str| {
            let words = options.split_whitespace().map(Into::into);
            let Ok(Invocation::Stage(given)) = arguments::parse(words) else {
                panic!("{options}");
            };
            identity(&state, &given).place().unwrap().namespace
        };
        assert_eq!(namespace("createRuntime"), "other");
        let claim = "--slice a --claim team/c1 --memory 1GiB createRuntime";
        assert_eq!(namespace(claim), "team");
    }
}
