//! A pod whose containers share a slice. One of them has a lower limit of NVIDIA's toolkit
//! (NVIDIA_GPU_MEMORY_LIMIT).
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{CARD, Container, Host, is_root};
use serde_json::{Value, json};
use std::fs;

/// Returns a container of the pod, whose slice has 12 GiB.
fn of_pod<'a>(host: &'a Host, id: &str) -> Container<'a> {
    host.asking(
        id,
        &[
            ("gpuslice.io/memory", "12GiB"),
            ("gpuslice.io/share", "pod"),
            ("io.kubernetes.cri.container-name", id),
            (
                "io.kubernetes.cri.sandbox-id",
                "0123456789abcdef0123456789abcdef",
            ),
        ],
    )
}

fn memory(container: &Container<'_>) -> u64 {
    let slice = fs::read(container.inside(".gpuslice/slice.json")).unwrap();
    let slice: Value = serde_json::from_slice(&slice).unwrap();
    let memory = slice.pointer("/devices/0/memory");
    memory.and_then(Value::as_u64).unwrap()
}

#[test]
fn a_containers_lower_limit_leaves_its_pods_slice_and_is_reported() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let (one, other) = (of_pod(&host, "one"), of_pod(&host, "other"));
    one.is_given_its_slice();
    let path = other.bundle.join("config.json");
    let mut spec: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    spec["process"] =
        json!({"env": ["NVIDIA_GPU_MEMORY_REQUEST=0", "NVIDIA_GPU_MEMORY_LIMIT=8192"]});
    spec["hooks"] = json!({"createRuntime": [{
        "path": "/usr/bin/nvidia-cdi-hook",
        "args": ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--gpu-id", CARD],
    }]});
    fs::write(&path, spec.to_string()).unwrap();
    let said = other.hook(&["createRuntime"]);
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.success(), "{told}");
    assert!(
        told.contains(
            "other: NVIDIA's toolkit limits this container alone to 8.00 GiB \
             (NVIDIA_GPU_MEMORY_LIMIT); it shares the pod's or the claim's larger slice"
        ),
        "{told}"
    );
    // Both limits hold: the driver's for this container, the slice's for the pod.
    assert_eq!((memory(&one), memory(&other)), (12 << 30, 12 << 30));
}
