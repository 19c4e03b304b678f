//! The samples of slices.
//! Touches: its arguments.
//! Law: the labels of a slice do not change while it lives, so its counters only grow. Those of a claim
//! that several containers share name the containers that live.

use super::exposition::{Labels, Samples};
use super::families as family;
use crate::commands::status::model::{DeviceStatus, Fence, SliceStatus};
use gpuslice_config::ledger::Kind;
use gpuslice_host::base::clock;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// The indexes of GPUs, by uuid.
pub(super) type Indexes = BTreeMap<String, String>;

/// Adds the samples of all slices.
pub(super) fn add(samples: &mut Samples, slices: &[SliceStatus], indexes: &Indexes) {
    let mut known = BTreeSet::new();
    for slice in slices {
        let labels = labels(slice);
        // Runs that were given one slice file are one slice.
        if known.insert(labels.clone()) {
            add_slice(samples, slice, labels, indexes);
        }
    }
}

/// Returns the labels of a slice.
pub(super) fn labels(slice: &SliceStatus) -> Labels {
    let user = slice.user.map(|user| user.name()).unwrap_or_default();
    let pod = slice.pod.clone().unwrap_or_default();
    let first = slice.containers.first();
    let container = match (&slice.pod, first) {
        // A container that no kubelet has started.
        (None, Some(first)) => first.name.clone(),
        _ => pod.container,
    };
    vec![
        ("slice", slice.name.clone()),
        ("id", id(slice)),
        ("user", user),
        ("namespace", pod.namespace),
        ("pod", pod.name),
        ("container", container),
    ]
}

/// Returns a text that tells slices of the same name apart: the id of a container or pod, the random
/// part of a run's folder, or the path of a slice file that a user wrote.
fn id(slice: &SliceStatus) -> String {
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    if let Some(first) = slice.containers.first() {
        let ledger = slice.ledger.as_deref().and_then(Path::parent);
        return short(ledger.map_or_else(|| first.id.clone(), name));
    }
    let folder = slice.file.parent().map(name).unwrap_or_default();
    match folder.strip_prefix("gpuslice-") {
        Some(random) if slice.file.ends_with("slice.json") => random.to_owned(),
        _ => slice.file.display().to_string(),
    }
}

/// Shortens the id of a container as engines do.
fn short(id: String) -> String {
    let is_digest = id.len() == 64 && id.bytes().all(|letter| letter.is_ascii_hexdigit());
    match id.get(..12) {
        Some(start) if is_digest => start.to_owned(),
        _ => id,
    }
}

fn add_slice(samples: &mut Samples, slice: &SliceStatus, labels: Labels, indexes: &Indexes) {
    let mut info = labels.clone();
    let uid = slice.pod.as_ref().map(|pod| pod.uid.clone());
    let own = Arc::new(labels.clone());
    samples.add(&family::SLICE_READABLE, &own, slice.error.is_none());
    if slice.fence != Fence::Unknown {
        samples.add(&family::SLICE_IN_FORCE, &own, slice.no_slice.is_none());
    }
    if slice.error.is_none() {
        info.push(("fence", slice.fence.name().to_owned()));
        info.push(("total", slice.total.unwrap_or_default().to_owned()));
        info.push(("pod_uid", uid.unwrap_or_default()));
        samples.add(&family::SLICE_INFO, &Arc::new(info), true);
    }
    let started = slice.started.as_deref().and_then(clock::parse);
    let started = started.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    if let Some(started) = started {
        samples.add(&family::STARTED, &own, started.as_secs());
    }
    if let Some(uncounted) = slice.uncounted {
        samples.add(&family::UNCOUNTED, &own, uncounted);
    }
    if let Some(promise) = &slice.promise {
        samples.add(&family::PROMISE, &own, promise.budget);
        samples.add(&family::PROMISE_UNUSED, &own, promise.unused);
    }
    if let Some(age) = slice.page_age {
        samples.add(&family::PAGE_AGE, &own, age.as_secs_f64());
    }
    for device in &slice.devices {
        add_share(samples, slice.fence, device, labels.clone(), indexes);
    }
}

fn add_share(
    samples: &mut Samples,
    fence: Fence,
    device: &DeviceStatus,
    mut labels: Labels,
    indexes: &Indexes,
) {
    let uuid = device.device.clone().unwrap_or_default();
    labels.push(("gpu", indexes.get(&uuid).cloned().unwrap_or_default()));
    labels.push(("gpu_uuid", uuid));
    let labels = Arc::new(labels);
    let mut some = |family, value: Option<u64>| {
        if let Some(value) = value {
            samples.add(family, &labels, value);
        }
    };
    some(&family::LIMIT, device.limit);
    some(&family::FREE, device.left);
    some(&family::HEADROOM, Some(device.headroom));
    some(
        &family::PROCESSES,
        device.used.and(count(&device.processes)),
    );
    // Where nothing is refused, the ledger counts requests over the limit instead.
    if let Some(refusals) = device.refusals.filter(|_| fence != Fence::Counted) {
        some(&family::REFUSALS, Some(refusals.count));
        some(&family::SHORTFALL, Some(refusals.worst_short_by));
    }
    let bypassing = device.without_library.iter();
    let bypassing = bypassing.map(|escaped| escaped.used.unwrap_or(0));
    let bypassing = bypassing.fold(0, u64::saturating_add);
    some(&family::BYPASSING, Some(bypassing));
    some(&family::BYPASSING_PROCESSES, count(&device.without_library));
    if let Some(by_kind) = &device.by_kind {
        for kind in Kind::ALL {
            let name = kind.name();
            let used = by_kind.get(name).and_then(serde_json::Value::as_u64);
            let more = Some(("kind", name));
            samples.add_with(&family::USED, &labels, more, used.unwrap_or(0));
        }
    }
    if let (Some(used), Some(limit)) = (device.used, device.limit.filter(|limit| *limit > 0)) {
        samples.add(&family::USAGE, &labels, ratio(used, limit));
    }
}

fn count<T>(of: &[T]) -> Option<u64> {
    u64::try_from(of.len()).ok()
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is not exact")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::containers::ContainerStatus;

    fn container(id: &str, ledger: Option<&str>) -> SliceStatus {
        SliceStatus {
            containers: vec![ContainerStatus {
                id: id.to_owned(),
                name: id.to_owned(),
                pid: 1,
                lives: true,
                no_slice: None,
                not_limited: None,
            }],
            ledger: ledger.map(Into::into),
            ..SliceStatus::default()
        }
    }

    fn run(file: &str) -> SliceStatus {
        SliceStatus {
            file: file.into(),
            ..SliceStatus::default()
        }
    }

    #[test]
    fn the_id_of_a_slice_is_short_and_its_own() {
        let digest = "0123456789abcdef".repeat(4);
        let ledger = format!("/run/gpuslice/ledgers/{digest}/ledger");
        assert_eq!(id(&container("c1", Some(&ledger))), "0123456789ab");
        assert_eq!(id(&container("c1", None)), "c1");
        assert_eq!(id(&run("/dev/shm/gpuslice-xyyjoo/slice.json")), "xyyjoo");
        assert_eq!(id(&run("/home/a/team.json")), "/home/a/team.json");
        assert_eq!(id(&run("/home/a/slice.json")), "/home/a/slice.json");
    }
}
