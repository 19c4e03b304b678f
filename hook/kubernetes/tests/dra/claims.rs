//! Claims as a scheduler of Kubernetes 1.36.2 leaves them.
//! Touches: its arguments.

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};

pub const CARD: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
pub const OTHER: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c5";
pub const UID: &str = "4f8f2b6c-0a1b-4c3d-8e9f-001122334455";
pub const SHARE: &str = "a3c1de52-7c1e-4f6a-9d53-6f0e2b8f1c01";

/// The uid of another claim.
pub fn uid(number: usize) -> String {
    format!("4f8f2b6c-0a1b-4c3d-8e9f-{number:012x}")
}

/// One result of an allocation.
pub fn result(request: &str, gpu: &str, memory: &str, share: &str) -> Value {
    json!({
        "request": request,
        "driver": "gpuslice.io",
        "pool": "node1",
        "device": gpu.to_ascii_lowercase(),
        "shareID": share,
        "consumedCapacity": {"memory": memory},
    })
}

/// A claim with these results and configurations.
pub fn claim(name: &str, uid: &str, results: &[Value], config: &[Value]) -> Value {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid, "resourceVersion": "812",
            "creationTimestamp": "2026-11-20T10:00:00Z",
        },
        "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {
                "deviceClassName": "gpuslice.io",
                "capacity": {"requests": {"memory": "8Gi"}},
                "allocationMode": "ExactCount", "count": 1,
            }},
        ]}},
        "status": {
            "allocation": {
                "devices": {"results": results, "config": config},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": ["node1"]},
                ]}]},
            },
            "reservedFor": [{"resource": "pods", "name": "d1", "uid": UID}],
        },
    });
    // A record that Kubernetes' types would not hold tests nothing.
    serde_json::from_value::<ResourceClaim>(claim.clone()).unwrap();
    claim
}

/// A claim of 8 GiB of the card.
pub fn simple() -> Value {
    claim("c1", UID, &[result("r", CARD, "8Gi", SHARE)], &[])
}

/// An opaque configuration.
pub fn config(source: &str, requests: &[&str], parameters: &Value) -> Value {
    json!({
        "source": source,
        "requests": requests,
        "opaque": {"driver": "gpuslice.io", "parameters": parameters},
    })
}
