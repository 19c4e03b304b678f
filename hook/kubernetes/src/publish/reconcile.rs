//! Makes the API server's slices those that are wanted.
//! Touches: the API server.
//! Law: all slices of the pool have one generation, higher than any before. The scheduler takes only
//! the highest, and only if it is complete.

use crate::api::{ApiError, Cluster};
use crate::base::log;
use crate::claims::allocation::MEMORY;
use crate::ready::Refusal;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice, ResourceSliceSpec};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a change by others is met with a new attempt.
const ATTEMPTS: u32 = 5;

/// The pause before a new attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// The API server's version of each slice: the specification that was sent, and the one that is
/// kept. A server without a feature drops its fields.
#[derive(Debug, Default)]
pub struct Kept {
    specs: BTreeMap<String, (ResourceSliceSpec, ResourceSliceSpec)>,
    /// Whether the API server has dropped a taint.
    pub drops_taints: bool,
}

/// The outcome of one attempt.
enum Attempt {
    Done,
    /// Another client changed the slices meanwhile.
    Again(ApiError),
}

/// Creates, replaces and deletes slices until they are those that are wanted beside the ones that are
/// found. A dry run changes nothing: the API server only answers whether it would keep them.
///
/// # Errors
/// [`Refusal`]; the slices are then incomplete, or none.
pub async fn reconcile(
    cluster: &Cluster,
    mut wanted: impl FnMut(&[ResourceSlice]) -> Vec<ResourceSlice>,
    kept: &mut Kept,
    dry_run: bool,
) -> Result<(), Refusal> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let found = list(cluster).await?;
        match attempt(cluster, &wanted(&found), &found, kept, dry_run).await? {
            Attempt::Done => return Ok(()),
            Attempt::Again(error) => last = error.to_string(),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Refusal::Unknown(format!(
        "cannot publish the ResourceSlice, which others change at the same time: {last}"
    )))
}

async fn attempt(
    cluster: &Cluster,
    wanted: &[ResourceSlice],
    found: &[ResourceSlice],
    kept: &mut Kept,
    dry_run: bool,
) -> Result<Attempt, Refusal> {
    if is_current(found, wanted, kept) {
        return Ok(Attempt::Done);
    }
    let generations = found.iter().map(|slice| slice.spec.pool.generation);
    let generation = generations.max().unwrap_or(0).saturating_add(1);
    for old in found {
        let name = old.metadata.name.as_deref().unwrap_or_default();
        if !dry_run && !wanted.iter().any(|new| same_name(new, old)) {
            let deleted = cluster.delete(name).await;
            deleted.map_err(|error| Refusal::of("delete an old ResourceSlice", &error))?;
        }
    }
    for new in wanted {
        let old = found.iter().find(|old| same_name(new, old));
        match put(cluster, new, old, generation, dry_run).await {
            Ok(answer) if are_shared(&answer) => {
                kept.drops_taints |= tainted(&answer) < tainted(new);
                let name = new.metadata.name.clone().unwrap_or_default();
                let specs = (timeless(&new.spec), plain(&answer.spec));
                kept.specs.insert(name, specs);
            }
            Ok(_) => {
                withdraw(cluster).await;
                return Err(Refusal::Final(
                    "the API server drops allowMultipleAllocations, so a claim would get a whole \
                     GPU: switch on the feature gate DRAConsumableCapacity (Kubernetes 1.36 has it \
                     on)"
                    .to_owned(),
                ));
            }
            Err(error) if matches!(error.code(), Some(404 | 409)) => {
                return Ok(Attempt::Again(error));
            }
            Err(error) => return Err(Refusal::of("publish the ResourceSlice", &error)),
        }
    }
    if !wanted.is_empty() && !dry_run {
        let devices = wanted.iter().flat_map(|slice| &slice.spec.devices);
        let count = devices.map(Vec::len).fold(0, usize::saturating_add);
        let devices = if count == 1 { "device" } else { "devices" };
        log::line(&format!(
            "published {count} {devices}, generation {generation}"
        ));
    }
    Ok(Attempt::Done)
}

async fn list(cluster: &Cluster) -> Result<Vec<ResourceSlice>, Refusal> {
    cluster.slices().await.map_err(|error| match error.code() {
        Some(404) => Refusal::Final(
            "the API server has no resource.k8s.io/v1: Kubernetes 1.34 or later is needed"
                .to_owned(),
        ),
        _ => Refusal::of("list the ResourceSlices of this node", &error),
    })
}

async fn put(
    cluster: &Cluster,
    new: &ResourceSlice,
    old: Option<&ResourceSlice>,
    generation: i64,
    dry_run: bool,
) -> Result<ResourceSlice, ApiError> {
    let mut slice = new.clone();
    slice.spec.pool.generation = generation;
    let Some(old) = old else {
        return cluster.create(&slice, dry_run).await;
    };
    // A slice that was deleted and created by others has another uid, and is not replaced.
    slice.metadata.resource_version = old.metadata.resource_version.clone();
    slice.metadata.uid = old.metadata.uid.clone();
    let name = old.metadata.name.as_deref().unwrap_or_default();
    cluster.replace(name, &slice, dry_run).await
}

/// Deletes all slices of this node, as far as the API server allows.
pub async fn withdraw(cluster: &Cluster) {
    let found = cluster.slices().await.unwrap_or_default();
    for slice in found {
        let name = slice.metadata.name.unwrap_or_default();
        match cluster.delete(&name).await {
            Ok(()) => log::line(&format!("withdrew ResourceSlice {name}")),
            Err(error) => log::line(&format!("cannot withdraw ResourceSlice {name}: {error}")),
        }
    }
}

fn same_name(one: &ResourceSlice, other: &ResourceSlice) -> bool {
    one.metadata.name == other.metadata.name
}

/// The specification without its generation.
fn plain(spec: &ResourceSliceSpec) -> ResourceSliceSpec {
    let mut spec = spec.clone();
    spec.pool.generation = 0;
    spec
}

/// The specification without the times of its taints, which the API server sets.
fn timeless(spec: &ResourceSliceSpec) -> ResourceSliceSpec {
    let mut spec = spec.clone();
    let devices = spec.devices.iter_mut().flatten();
    for taint in devices.flat_map(|device| device.taints.iter_mut().flatten()) {
        taint.time_added = None;
    }
    spec
}

fn is_current(found: &[ResourceSlice], wanted: &[ResourceSlice], kept: &Kept) -> bool {
    let mut generations = found.iter().map(|slice| slice.spec.pool.generation);
    let first = generations.next();
    let is_kept = |new: &ResourceSlice, spec: &ResourceSliceSpec| {
        let name = new.metadata.name.as_deref().unwrap_or_default();
        let known = kept.specs.get(name);
        known.is_some_and(|(sent, answered)| *sent == timeless(&new.spec) && answered == spec)
    };
    let is_there = |new: &ResourceSlice| {
        let old = found.iter().find(|old| same_name(new, old));
        old.is_some_and(|old| {
            let spec = plain(&old.spec);
            are_shared(old) && (spec == new.spec || is_kept(new, &spec))
        })
    };
    found.len() == wanted.len()
        && generations.all(|generation| Some(generation) == first)
        && wanted.iter().all(is_there)
}

/// The number of taints in a slice.
fn tainted(slice: &ResourceSlice) -> usize {
    let devices = slice.spec.devices.iter().flatten();
    devices
        .flat_map(|device| device.taints.iter().flatten())
        .count()
}

/// Whether the API server has kept that the devices are shared.
fn are_shared(slice: &ResourceSlice) -> bool {
    slice.spec.devices.iter().flatten().all(is_shared)
}

/// Whether a device is shared.
#[must_use]
pub fn is_shared(device: &Device) -> bool {
    let capacity = device.capacity.as_ref().and_then(|all| all.get(MEMORY));
    device.allow_multiple_allocations == Some(true)
        && capacity.is_some_and(|capacity| capacity.request_policy.is_some())
}
