//! Taints devices: those under pressure, and those that the list of GPUs has lost.
//! Touches: its arguments.
//! Law: a device that is gone is published only with its taint. A server that drops taints gets no
//! such device.

use crate::claims::gpu;
use crate::publish::pressure::Cause;
use crate::publish::reconcile::is_shared;
use gpuslice_host::machine::devices::Devices;
use k8s_openapi::api::resource::v1::{Device, DeviceTaint, ResourceSlice};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// New claims avoid the device, because its memory is short.
const PRESSURE: &str = "gpuslice.io/pressure";

/// New claims avoid the device, because it does not work.
const UNHEALTHY: &str = "gpuslice.io/unhealthy";

/// The effect. Running pods stay: their slices are held, and an eviction frees nothing that a guard
/// would not free sooner.
const EFFECT: &str = "NoSchedule";

/// How long a device that is gone stays published if no claim has a part of it.
const REMEMBERED: Duration = Duration::from_secs(590);

fn taint(key: &str, value: &str) -> DeviceTaint {
    DeviceTaint {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        effect: EFFECT.to_owned(),
        time_added: None,
    }
}

/// Taints the devices under pressure.
pub fn pressed(devices: &mut [Device], list: &Devices, causes: &BTreeSet<Cause>) {
    for device in devices {
        let target = gpu::find(list, &device.name);
        let is_integrated = target.is_some_and(|target| target.device.integrated);
        let value = if is_integrated && causes.contains(&Cause::Host) {
            "host-memory"
        } else if causes.contains(&Cause::Beyond(device.name.clone())) {
            "memory-outside-slices"
        } else {
            continue;
        };
        device.taints = Some(vec![taint(PRESSURE, value)]);
    }
}

/// The devices that were published and that the list of GPUs lacks, by the time at which that was
/// noticed.
#[derive(Debug, Default)]
pub struct Gone(BTreeMap<String, Instant>);

impl Gone {
    /// The devices that stay published with a taint: for as long as a claim has a part of them, and
    /// for ten minutes, in which a driver is loaded again.
    pub fn devices(
        &mut self,
        found: &[ResourceSlice],
        list: &Devices,
        claimed: &BTreeSet<String>,
        now: Instant,
    ) -> Vec<Device> {
        let known: BTreeSet<String> = list.targets().map(|one| gpu::name(one.uuid)).collect();
        let published = found
            .iter()
            .flat_map(|slice| slice.spec.devices.iter().flatten());
        let lost = published.filter(|device| !known.contains(&device.name) && is_shared(device));
        let lost: BTreeMap<&str, &Device> = lost.map(|one| (one.name.as_str(), one)).collect();
        self.0.retain(|name, _| lost.contains_key(name.as_str()));
        let mut gone = Vec::new();
        for (name, device) in lost {
            let since = *self.0.entry(name.to_owned()).or_insert(now);
            let is_recent = now.saturating_duration_since(since) < REMEMBERED;
            if is_recent || claimed.contains(name) {
                gone.push(Device {
                    taints: Some(vec![taint(UNHEALTHY, "not-listed")]),
                    ..device.clone()
                });
            }
        }
        gone
    }
}

/// Gives taints the time at which the API server has first seen them. It would take a taint without
/// a time for a new one.
pub fn keep_times(devices: &mut [Device], found: &[ResourceSlice]) {
    let published = || {
        found
            .iter()
            .flat_map(|slice| slice.spec.devices.iter().flatten())
    };
    for device in devices {
        let old = published().filter(|old| old.name == device.name);
        let old: Vec<&DeviceTaint> = old.flat_map(|old| old.taints.iter().flatten()).collect();
        for taint in device.taints.iter_mut().flatten() {
            let is_same = |old: &&&DeviceTaint| {
                (&old.key, &old.value, &old.effect) == (&taint.key, &taint.value, &taint.effect)
            };
            let same = old.iter().find(is_same);
            taint.time_added = same.and_then(|old| old.time_added.clone());
        }
    }
}

#[cfg(test)]
#[path = "taints_tests.rs"]
mod tests;
