//! What Kubernetes 1.36 accepts as a ResourceSlice: its types, read strictly, and its rules.
//! Touches: its arguments.

use gpuslice_dra::base::{names, quantity};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use serde_json::Value;
use std::collections::BTreeSet;

/// Reads a slice strictly, and checks it. The text names the rule that it breaks.
pub fn check(body: &[u8]) -> Result<Value, String> {
    let sent: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let slice: ResourceSlice =
        serde_json::from_value(sent.clone()).map_err(|error| error.to_string())?;
    let read = serde_json::to_value(&slice).unwrap();
    if read != sent {
        return Err(format!("unknown fields: sent {sent}, read {read}"));
    }
    let rule = |holds: bool, rule: &str| match holds {
        true => Ok(()),
        false => Err(rule.to_owned()),
    };
    let name = slice.metadata.name.as_deref().unwrap_or_default();
    names::subdomain("name", name).map_err(|error| error.to_string())?;
    let devices = slice.spec.devices.as_deref().unwrap_or_default();
    rule(
        slice.spec.pool.resource_slice_count > 0,
        "resourceSliceCount",
    )?;
    rule(slice.spec.pool.generation > 0, "generation")?;
    rule(devices.len() <= 128, "more than 128 devices")?;
    let unique: BTreeSet<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    rule(unique.len() == devices.len(), "two devices of one name")?;
    let is_tainted = devices.iter().any(|device| device.taints.is_some());
    rule(
        !is_tainted || devices.len() <= 64,
        "more than 64 devices, of which one has a taint",
    )?;
    devices.iter().try_for_each(device)?;
    Ok(sent)
}

fn device(device: &Device) -> Result<(), String> {
    let rule = |holds: bool, rule: &str| match holds {
        true => Ok(()),
        false => Err(format!("{}: {rule}", device.name)),
    };
    let is_label = !device.name.contains('.') && device.name.len() <= 63;
    rule(
        is_label && names::subdomain("device", &device.name).is_ok(),
        "no DNS label",
    )?;
    let taints = device.taints.as_deref().unwrap_or_default();
    rule(taints.len() <= 16, "more than 16 taints")?;
    for taint in taints {
        let (domain, name) = taint.key.split_once('/').ok_or("a qualified key")?;
        let value = taint.value.as_deref().unwrap_or_default();
        let is_word = |text: &str| text.len() <= 63 && !text.contains(['/', '.', ' ']);
        rule(
            names::subdomain("key", domain).is_ok() && is_word(name) && is_word(value),
            "a taint's key is qualified, and its value is a label",
        )?;
        let effects = ["None", "NoSchedule", "NoExecute"];
        rule(effects.contains(&taint.effect.as_str()), "an effect")?;
    }
    let attributes = device.attributes.as_ref().map_or(0, |all| all.len());
    let capacities = device.capacity.iter().flatten();
    rule(
        attributes + capacities.clone().count() <= 32,
        "more than 32 attributes",
    )?;
    for (name, attribute) in device.attributes.iter().flatten() {
        let values = [
            attribute.string.is_some(),
            attribute.int.is_some(),
            attribute.bool.is_some(),
            attribute.version.is_some(),
        ];
        rule(
            values.iter().filter(|is| **is).count() == 1,
            "one value each",
        )?;
        let texts = attribute.string.iter().chain(&attribute.version);
        rule(
            texts.clone().all(|text| text.len() <= 64),
            "a text of 64 bytes",
        )?;
        rule(
            name.len() <= 32 && !name.contains(['-', '.']),
            "a C identifier",
        )?;
    }
    for (_, capacity) in capacities {
        let read = |text| quantity::bytes(text).map(|bytes| bytes.get());
        let value = read(&capacity.value).ok_or("value")?;
        let Some(policy) = &capacity.request_policy else {
            continue;
        };
        rule(
            device.allow_multiple_allocations == Some(true),
            "policy needs sharing",
        )?;
        let Some(range) = &policy.valid_range else {
            continue;
        };
        let default = policy.default.as_ref().ok_or("a range needs a default")?;
        let default = read(default).ok_or("default")?;
        let min = read(&range.min).ok_or("min")?;
        let max = range.max.as_ref().map_or(Some(value), read).ok_or("max")?;
        rule(
            min <= default && default <= max && max <= value,
            "min <= default <= max <= value",
        )?;
        if let Some(step) = &range.step {
            let step = read(step).ok_or("step")?;
            rule(min + step <= value, "min + step <= value")?;
            rule(default % step == 0, "default is no multiple of step")?;
            rule(
                range.max.is_none() || max % step == 0,
                "max is no multiple of step",
            )?;
        }
    }
    Ok(())
}
