//! Repeats numbers under the names and labels of other exporters, so that their dashboards work.
//! Touches: the host's name.
//! Law: a name means here what it means there. What gpuslice does not measure is left out.

use super::Dialect;
use super::exposition::{Family, Labels, Samples, Type};
use super::slices::{self, Indexes};
use crate::commands::status::model::{CardStatus, DeviceStatus, SliceStatus};
use crate::commands::status::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

const fn bytes(name: &'static str, labels: &'static str, help: &'static str) -> Family {
    Family {
        name,
        unit: Some("bytes"),
        kind: Type::Gauge,
        labels,
        help,
    }
}

/// The labels of `HAMi` for a container's share of a GPU.
const SHARE: &str = "namespace, pod, container, vdevice_index, device_uuid";
/// The labels of `HAMi` for a GPU.
const GPU: &str = "node, device_index, device_uuid, device_type";

const USED: Family = bytes(
    "hami_vgpu_memory_used",
    SHARE,
    "vGPU device memory usage in bytes",
);
const LIMIT: Family = bytes(
    "hami_vgpu_memory_limit",
    SHARE,
    "vGPU device memory limit in bytes",
);
const OF_CONTAINER: Family = bytes(
    "hami_container_device_memory",
    SHARE,
    "Container device memory usage in bytes",
);
const CONTEXT: Family = bytes(
    "hami_vgpu_memory_context",
    SHARE,
    "Container device memory context size in bytes",
);
const MODULE: Family = bytes(
    "hami_vgpu_memory_module",
    SHARE,
    "Container device memory module size in bytes",
);
const BUFFER: Family = bytes(
    "hami_vgpu_memory_buffer",
    SHARE,
    "Container device memory buffer size in bytes",
);
const HOST_USED: Family = bytes(
    "hami_host_gpu_memory_used",
    GPU,
    "GPU device memory usage in bytes",
);
const GPU_LIMIT: Family = bytes(
    "hami_gpu_memory_limit",
    GPU,
    "Device memory limit for a certain GPU",
);
const ALLOCATED: Family = bytes(
    "hami_gpu_memory_allocated",
    GPU,
    "Device memory allocated for a certain GPU",
);
const SHARING_USED: Family = bytes(
    "gpu_sharing_gpu_memory_used",
    "namespace, pod, pod_uuid, gpu_uuid, gpu",
    "GPU memory used by the pod on this GPU, in bytes",
);

/// The metrics of each exporter.
pub const ALL: &[(Dialect, &[Family])] = &[
    (
        Dialect::Hami,
        &[
            USED,
            LIMIT,
            OF_CONTAINER,
            CONTEXT,
            MODULE,
            BUFFER,
            HOST_USED,
            GPU_LIMIT,
            ALLOCATED,
        ],
    ),
    (Dialect::GpuSharing, &[SHARING_USED]),
];

/// Adds the samples of an exporter.
pub(super) fn add(samples: &mut Samples, dialect: Dialect, snapshot: &Snapshot, indexes: &Indexes) {
    let mut known = BTreeSet::new();
    for slice in &snapshot.slices {
        // Runs that were given one slice file are one slice.
        if known.insert(slices::labels(slice)) {
            for (place, device) in slice.devices.iter().enumerate() {
                match dialect {
                    Dialect::Hami => add_hami(samples, slice, place, device),
                    Dialect::GpuSharing => add_gpu_sharing(samples, slice, device, indexes),
                }
            }
        }
    }
    if dialect == Dialect::Hami {
        let node = node();
        for card in &snapshot.cards {
            add_card(samples, &node, card);
        }
    }
}

/// Returns the namespace, pod and container of a slice. A slice that is in no pod has its own name
/// as pod and container.
fn place(slice: &SliceStatus) -> [(&'static str, String); 3] {
    let pod = slice.pod.clone().unwrap_or_default();
    let or_name = |part: String| match part.is_empty() {
        true => slice.name.clone(),
        false => part,
    };
    [
        ("namespace", pod.namespace),
        ("pod", or_name(pod.name)),
        ("container", or_name(pod.container)),
    ]
}

fn add_hami(samples: &mut Samples, slice: &SliceStatus, index: usize, device: &DeviceStatus) {
    let mut labels: Labels = place(slice).into();
    labels.push(("vdevice_index", index.to_string()));
    labels.push(("device_uuid", device.device.clone().unwrap_or_default()));
    let labels = Arc::new(labels);
    let of_kind = |kind: &str| {
        let by_kind = device.by_kind.as_ref()?;
        let bytes = by_kind.get(kind).and_then(serde_json::Value::as_u64);
        Some(bytes.unwrap_or(0))
    };
    let (context, module) = (of_kind("context"), of_kind("code"));
    let rest = |used: u64| Some(used.saturating_sub(context?).saturating_sub(module?));
    let values = [
        (&USED, device.used),
        (&LIMIT, device.limit),
        (&OF_CONTAINER, device.used),
        (&CONTEXT, context),
        (&MODULE, module),
        (&BUFFER, device.used.and_then(rest)),
    ];
    for (family, value) in values {
        if let Some(value) = value {
            samples.add(family, &labels, value);
        }
    }
}

fn add_card(samples: &mut Samples, node: &str, card: &CardStatus) {
    let labels: Labels = vec![
        ("node", node.to_owned()),
        ("device_index", card.index.to_string()),
        ("device_uuid", card.device.clone()),
        ("device_type", format!("NVIDIA-{}", card.name)),
    ];
    let labels = Arc::new(labels);
    let values = [
        (&HOST_USED, card.used),
        (&GPU_LIMIT, card.total),
        (&ALLOCATED, Some(card.limits_sum)),
    ];
    for (family, value) in values {
        if let Some(value) = value {
            samples.add(family, &labels, value);
        }
    }
}

fn add_gpu_sharing(
    samples: &mut Samples,
    slice: &SliceStatus,
    device: &DeviceStatus,
    indexes: &Indexes,
) {
    let [namespace, pod, _] = place(slice);
    let uid = slice.pod.as_ref().map(|pod| pod.uid.clone());
    let uuid = device.device.clone().unwrap_or_default();
    let labels: Labels = vec![
        namespace,
        pod,
        ("pod_uuid", uid.unwrap_or_default()),
        ("gpu", indexes.get(&uuid).cloned().unwrap_or_default()),
        ("gpu_uuid", uuid),
    ];
    if let Some(used) = device.used {
        samples.add(&SHARING_USED, &Arc::new(labels), used);
    }
}

/// Returns the node's name: that of Kubernetes if it is given, or the host's.
fn node() -> String {
    let given = std::env::var("NODE_NAME").ok();
    given.unwrap_or_else(|| {
        let name = nix::unistd::gethostname().unwrap_or_default();
        name.to_string_lossy().into_owned()
    })
}
