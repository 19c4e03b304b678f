//! Which GPUs a container is given, as far as its configuration says: a slice without an index counts
//! on those, and not on every GPU of the host.
//! Touches: its arguments. Never: the environment (NVIDIA_VISIBLE_DEVICES), which images set.
//! Law: what cannot be told is every GPU. The library holds the limit on the others, too; it is only
//! admission that does not count them.

use crate::devices::Devices;
use crate::spec::{DeviceRule, Linux, Spec};
use gpuslice_config::device::DeviceUuid;
use std::path::Path;

/// The kernel's number of NVIDIA's devices.
const NVIDIA: i64 = 195;

/// The GPUs that a container is given. None: its configuration does not say.
#[must_use]
pub fn of(spec: &Spec, devices: &Devices) -> Option<Vec<DeviceUuid>> {
    let linux = spec.linux.as_ref()?;
    if may_make_any(linux) || is_given_more_later(spec) {
        return None;
    }
    let nodes = linux.devices.iter().flatten();
    let numbers = nodes.filter(|node| node.kind == "c" && node.major == Some(NVIDIA));
    let minors = numbers.filter_map(|node| node.minor);
    let mounts = spec
        .mounts
        .iter()
        .filter_map(|mount| minor(mount.source.as_deref()?));
    let minors: Vec<i64> = minors.chain(mounts).collect();
    let mut given = Vec::new();
    for device in &devices.devices {
        // A list of before it had these numbers tells nothing.
        if minors.contains(&i64::from(device.minor?)) {
            given.push(device.uuid);
        }
    }
    (!given.is_empty()).then_some(given)
}

/// `/dev/nvidia3` is 3; `/dev/nvidiactl` is none.
fn minor(path: &Path) -> Option<i64> {
    let number = path.to_str()?.strip_prefix("/dev/nvidia")?;
    number
        .parse()
        .ok()
        .filter(|number| (0..254).contains(number))
}

/// Whether the container may make devices of its own, or sees all of the host's.
fn may_make_any(linux: &Linux) -> bool {
    let rules = linux
        .resources
        .iter()
        .flat_map(|all| all.devices.iter().flatten());
    let any = |rule: &DeviceRule| {
        let kind = rule.kind.as_deref().unwrap_or("a");
        let every_gpu = rule.major.is_none_or(|major| major < 0 || major == NVIDIA)
            && rule.minor.is_none_or(|minor| minor < 0);
        rule.allow && (kind == "a" || kind == "c") && every_gpu
    };
    // Runtimes themselves let containers make any device and open none: without `r` it is of no use.
    let opens = |rule: &DeviceRule| {
        rule.access
            .as_deref()
            .is_none_or(|access| access.contains('r'))
    };
    rules.into_iter().any(|rule| any(rule) && opens(rule))
}

/// Whether somebody gives the container GPUs of whom the configuration says nothing: NVIDIA's hook
/// of its legacy mode, or the whole of the host's /dev.
fn is_given_more_later(spec: &Spec) -> bool {
    let hooks = spec
        .hooks
        .iter()
        .flat_map(|stages| stages.values().flatten().flatten());
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let legacy = ["nvidia-container-runtime-hook", "nvidia-container-toolkit"];
    let is_legacy = |path: &Path| name(path).is_some_and(|name| legacy.contains(&name.as_str()));
    let mut sources = spec
        .mounts
        .iter()
        .filter_map(|mount| mount.source.as_deref());
    hooks.into_iter().any(|hook| is_legacy(&hook.path))
        || sources.any(|source| source == Path::new("/dev") || source == Path::new("/"))
}

#[cfg(test)]
#[path = "given_gpus_tests.rs"]
mod tests;
