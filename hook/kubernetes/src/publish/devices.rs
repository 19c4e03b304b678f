//! A device for each GPU and each MIG instance, with its memory as a consumable capacity.
//! Touches: its arguments.
//! Law: what the policy would refuse is not offered, and no byte is offered that the device lacks.

use crate::base::quantity;
use crate::claims::allocation::MEMORY;
use crate::claims::gpu;
use gpuslice_config::slice::Fence;
use gpuslice_config::slice::host_reserve::default_reserve;
use gpuslice_config::words::device::DeviceKind;
use gpuslice_config::words::units::{Bytes, MIB};
use gpuslice_host::machine::devices::{Devices, SliceTarget};
use gpuslice_host::machine::policy::{DriverLimits, Policy};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity,
    NodeAllocatableResourceMapping,
};
use std::collections::BTreeMap;

/// The smallest share. Less does not hold the driver's own context.
pub const MIN: Bytes = Bytes::mib(256);

/// The shares' sizes are multiples of this.
pub const STEP: Bytes = Bytes::mib(1);

/// The longest text of an attribute.
const LONGEST: usize = 64;

/// The facts in this machine's files.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The list of GPUs.
    pub devices: Devices,
    /// The operator's policy.
    pub policy: Policy,
    /// All memory of the host.
    pub host_memory: Option<Bytes>,
    /// The driver's version, as its module states it.
    pub driver: Option<String>,
}

/// The devices to publish. `maps_memory` says whether unified memory is counted as the node's memory
/// as well.
#[must_use]
pub fn devices(facts: &Facts, maps_memory: bool) -> Vec<Device> {
    let targets = facts.devices.targets();
    targets
        .filter(|target| is_sliced(&facts.policy, target))
        .filter_map(|target| device(facts, &target, maps_memory))
        .collect()
}

fn is_sliced(policy: &Policy, target: &SliceTarget<'_>) -> bool {
    let selectors = policy.devices.as_ref();
    selectors.is_none_or(|all| all.iter().any(|one| target.device.is(*one)))
}

/// The memory that can be given out, in whole steps; `None` if that is less than one share.
fn memory(facts: &Facts, target: &SliceTarget<'_>) -> Option<Bytes> {
    let offered = match target.device.integrated {
        false => target.memory,
        true => {
            let host = facts.host_memory?;
            let reserve = facts.policy.reserve;
            let reserve = reserve.unwrap_or_else(|| default_reserve(host));
            target.memory.at_most(host.minus(reserve))
        }
    };
    let offered = whole_steps(offered);
    (offered >= MIN.plus(STEP)).then_some(offered)
}

fn whole_steps(memory: Bytes) -> Bytes {
    Bytes::mib(memory.get() / MIB)
}

fn device(facts: &Facts, target: &SliceTarget<'_>, maps_memory: bool) -> Option<Device> {
    let memory = memory(facts, target)?;
    let most = facts.policy.container_maximum(None).map(whole_steps);
    let most = most.filter(|most| *most < memory);
    // A maximum below the smallest share would refuse every container.
    if most.is_some_and(|most| most < MIN) {
        return None;
    }
    let policy = CapacityRequestPolicy {
        default: Some(quantity::text(most.unwrap_or(memory))),
        valid_range: Some(CapacityRequestPolicyRange {
            min: quantity::text(MIN),
            step: Some(quantity::text(STEP)),
            max: most.map(quantity::text),
        }),
        valid_values: None,
    };
    let capacity = DeviceCapacity {
        value: quantity::text(memory),
        request_policy: Some(policy),
    };
    let mapping = NodeAllocatableResourceMapping {
        capacity_key: Some(MEMORY.to_owned()),
        allocation_multiplier: None,
    };
    let is_mapped = target.device.integrated && maps_memory;
    Some(Device {
        name: gpu::name(target.uuid),
        allow_multiple_allocations: Some(true),
        attributes: Some(attributes(facts, target)),
        capacity: Some(BTreeMap::from([(MEMORY.to_owned(), capacity)])),
        node_allocatable_resource_mappings: is_mapped
            .then(|| BTreeMap::from([("memory".to_owned(), mapping)])),
        ..Device::default()
    })
}

fn attributes(facts: &Facts, target: &SliceTarget<'_>) -> BTreeMap<String, DeviceAttribute> {
    let string = |value: &str| DeviceAttribute {
        string: Some(cut(value)),
        ..DeviceAttribute::default()
    };
    let device = target.device;
    let is_instance = target.uuid.kind == DeviceKind::Mig;
    let mut all = vec![
        ("uuid", string(&target.uuid.to_string())),
        ("type", string(if is_instance { "mig" } else { "gpu" })),
        ("productName", string(&device.name)),
        ("fence", string(fence(&facts.policy, target))),
        (
            "index",
            DeviceAttribute {
                int: Some(device.index.into()),
                ..DeviceAttribute::default()
            },
        ),
        (
            "integrated",
            DeviceAttribute {
                bool: Some(device.integrated),
                ..DeviceAttribute::default()
            },
        ),
    ];
    if is_instance {
        all.push(("parentUUID", string(&device.uuid.to_string())));
    }
    if let Some(version) = facts.driver.as_deref().and_then(semantic) {
        let version = DeviceAttribute {
            version: Some(version),
            ..DeviceAttribute::default()
        };
        all.push(("driverVersion", version));
    }
    let named = all
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    named.collect()
}

/// The fence of a slice on this device, unless its claim names another.
fn fence(policy: &Policy, target: &SliceTarget<'_>) -> &'static str {
    let is_off = policy.fence == Some(Fence::Preload) || policy.driver_limits == DriverLimits::Off;
    match target.device.driver_limits == Some(true) && !is_off {
        true => "driver",
        false => "preload",
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST);
    text.chars()
        .scan(0_usize, |at, letter| {
            *at = at.saturating_add(letter.len_utf8());
            (*at <= end).then_some(letter)
        })
        .collect()
}

/// A driver's version as a semantic version, which has three numbers without leading zeros:
/// `580.65.06` is 580.65.6.
fn semantic(version: &str) -> Option<String> {
    let numbers: Vec<u32> = version
        .trim()
        .split('.')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    match numbers.as_slice() {
        [major, minor] => Some(format!("{major}.{minor}.0")),
        [major, minor, patch] => Some(format!("{major}.{minor}.{patch}")),
        _ => None,
    }
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;
