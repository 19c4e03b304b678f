//! A scheduler with the rules of consumable capacity (DRAConsumableCapacity of Kubernetes 1.36): a
//! request without an amount gets the default, an amount is rounded up to the policy's steps from
//! its minimum, one above its maximum fits nowhere, and the parts of a device never exceed its
//! capacity. A device that is not shared is given to one claim as a whole.
//! Touches: its arguments.

use crate::scale::random::Random;
use gpuslice_config::words::units::Bytes;
use gpuslice_dra::base::quantity;
use k8s_openapi::api::resource::v1::{DeviceCapacity, ResourceClaim, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A device of a node, as its ResourceSlice describes it.
pub struct Offered {
    pub name: String,
    pub shared: bool,
    pub capacity: u64,
    policy: Option<Policy>,
}

/// The amounts of a request policy.
#[derive(Clone, Copy)]
struct Policy {
    default: u64,
    min: u64,
    step: u64,
    max: Option<u64>,
}

/// A part of a device that a claim was given.
#[derive(Clone, Debug)]
pub struct Part {
    pub request: String,
    pub device: String,
    pub share: String,
    pub memory: u64,
}

/// A request of a claim: its name, and an amount of memory.
#[derive(Clone, Debug)]
pub struct Request {
    pub name: String,
    pub memory: Option<String>,
}

/// What a claim asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub requests: Vec<Request>,
    /// The requests need different devices (`distinctAttribute: gpuslice.io/uuid`).
    pub distinct: bool,
}

pub fn amount(text: &Quantity) -> u64 {
    quantity::bytes(text).unwrap().get()
}

/// The devices of a slice without a taint, read strictly.
pub fn offered(slice: &Value) -> Vec<Offered> {
    let read: ResourceSlice = serde_json::from_value(slice.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(&read).unwrap(),
        *slice,
        "unknown fields"
    );
    let devices = read.spec.devices.unwrap_or_default().into_iter();
    // No claim of these tests tolerates a taint.
    let devices = devices.filter(|device| device.taints.is_none());
    let device = |mut device: k8s_openapi::api::resource::v1::Device| {
        let memory = device.capacity.as_mut().unwrap().remove("memory").unwrap();
        let shared = device.allow_multiple_allocations == Some(true);
        Offered::new(&device.name, shared, &memory)
    };
    devices.map(device).collect()
}

impl Offered {
    fn new(name: &str, shared: bool, memory: &DeviceCapacity) -> Offered {
        let capacity = amount(&memory.value);
        let policy = memory.request_policy.as_ref().map(|policy| {
            let range = policy.valid_range.as_ref();
            let step = range.and_then(|range| range.step.as_ref());
            let max = range.and_then(|range| range.max.as_ref());
            Policy {
                default: policy.default.as_ref().map_or(capacity, amount),
                min: range.map_or(0, |range| amount(&range.min)),
                step: step.map_or(1, amount),
                max: max.map(amount),
            }
        });
        Offered {
            name: name.to_owned(),
            shared,
            capacity,
            policy,
        }
    }

    /// What a request consumes of this device, or `None` if the policy does not allow it.
    pub fn consumed(&self, asked: Option<u64>) -> Option<u64> {
        let Some(Policy {
            default,
            min,
            step,
            max,
        }) = self.policy
        else {
            return Some(self.capacity);
        };
        let asked = asked.unwrap_or(default);
        let over = asked.saturating_sub(min);
        let rounded = min + over.div_ceil(step) * step;
        max.is_none_or(|max| rounded <= max).then_some(rounded)
    }
}

/// The parts that a claim gets of these devices beside those that are used, if it fits.
pub fn allocate(
    devices: &[Offered],
    used: &BTreeMap<String, u64>,
    wanted: &Wanted,
    random: &mut Random,
) -> Option<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for request in &wanted.requests {
        let memory = request.memory.as_ref();
        let memory = memory.map(|memory| amount(&Quantity(memory.clone())));
        let fits = |device: &&Offered| {
            let own = parts.iter().filter(|part| part.device == device.name);
            let is_new = own.clone().next().is_none();
            let own: u64 = own.map(|part| part.memory).sum();
            let used = own + used.get(&device.name).copied().unwrap_or_default();
            let asked = device.consumed(memory);
            (is_new || !wanted.distinct && device.shared)
                && (device.shared || used == 0)
                && asked.is_some_and(|asked| used + asked <= device.capacity)
        };
        // Any device that fits will do: the scheduler promises no order.
        let fitting: Vec<&Offered> = devices.iter().filter(fits).collect();
        if fitting.is_empty() {
            return None;
        }
        let device = match random.percent(70) {
            true => fitting[0],
            false => *random.one(&fitting),
        };
        parts.push(Part {
            request: request.name.clone(),
            device: device.name.clone(),
            share: random.uid(),
            memory: device.consumed(memory).unwrap(),
        });
    }
    Some(parts)
}

/// A claim as the API server keeps it.
pub fn claim(
    (namespace, name, uid): (&str, &str, &str),
    wanted: &Wanted,
    allocation: Option<(&str, &[Part])>,
) -> Value {
    let requests = wanted.requests.iter().map(|request| {
        let mut exactly = json!({
            "deviceClassName": "gpuslice.io", "allocationMode": "ExactCount", "count": 1,
        });
        if let Some(memory) = &request.memory {
            exactly["capacity"] = json!({"requests": {"memory": memory}});
        }
        json!({"name": request.name, "exactly": exactly})
    });
    let mut claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": uid},
        "spec": {"devices": {"requests": requests.collect::<Vec<_>>()}},
    });
    if wanted.distinct {
        let names: Vec<&String> = wanted.requests.iter().map(|one| &one.name).collect();
        claim["spec"]["devices"]["constraints"] =
            json!([{"requests": names, "distinctAttribute": "gpuslice.io/uuid"}]);
    }
    if let Some((node, parts)) = allocation {
        let result = |part: &Part| {
            json!({
                "request": part.request, "driver": "gpuslice.io", "pool": node,
                "device": part.device, "shareID": part.share,
                "consumedCapacity": {"memory": quantity::text(Bytes::new(part.memory)).0},
            })
        };
        let results: Vec<Value> = parts.iter().map(result).collect();
        claim["status"] = json!({"allocation": {"devices": {"results": results}}});
    }
    // A record that Kubernetes' types would not hold tests nothing.
    serde_json::from_value::<ResourceClaim>(claim.clone()).unwrap();
    claim
}

#[test]
fn an_amount_is_rounded_up_as_kubernetes_was_seen_to_round() {
    let offered = |policy: Value| {
        let memory = json!({"value": "24259Mi", "requestPolicy": policy});
        Offered::new("gpu-1", true, &serde_json::from_value(memory).unwrap())
    };
    let consumed = |device: &Offered, asked: &str| {
        let consumed = device.consumed(Some(amount(&Quantity(asked.to_owned()))));
        consumed.map(|bytes| bytes >> 20)
    };
    let range = json!({"min": "256Mi", "step": "256Mi"});
    let device = offered(json!({"default": "1Gi", "validRange": range}));
    assert_eq!(device.consumed(None), Some(1 << 30));
    for (asked, expected) in [
        ("1000Mi", 1024),
        ("1Mi", 256),
        ("8Gi", 8192),
        ("64Gi", 65536),
    ] {
        assert_eq!(consumed(&device, asked), Some(expected), "{asked}");
    }
    let range = json!({"min": "256Mi", "step": "1Mi", "max": "8Gi"});
    let device = offered(json!({"default": "8Gi", "validRange": range}));
    assert_eq!(consumed(&device, "8193Mi"), None);
    assert_eq!(consumed(&device, "1500M"), Some(1431));
}
