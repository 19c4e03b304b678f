//! Finds the GPUs that a container is given by its configuration. A size without an index applies
//! to those, and not to every GPU of the host.
//! Touches: its arguments. Never: the environment, which images set. Exception: the variable that
//! tells NVIDIA's own hook to bring no GPU.
//! Law: if the GPUs cannot be determined, the container is assumed to have every GPU. The library
//! limits the other GPUs, too; only admission does not count them.

use crate::request::nvidia_variables::{BY_MOUNTS, VISIBLE, is_none, is_of_old_cuda};
use crate::request::spec::{DeviceRule, Hook, Linux, Spec};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_host::machine::devices::{Devices, FIRST_CONTROL_MINOR, NVIDIA_MAJOR};
use std::path::Path;

/// The GPUs that a container is given, possibly zero. Returns `None` if its configuration does not
/// determine them.
#[must_use]
pub(crate) fn of(spec: &Spec, devices: &Devices) -> Option<Vec<DeviceUuid>> {
    let linux = spec.linux.as_ref()?;
    if may_make_any(linux) || is_given_more_later(spec) {
        return None;
    }
    let nodes = linux.devices.iter().flatten();
    let numbers = nodes.filter(|node| node.kind == "c" && node.major == Some(NVIDIA_MAJOR));
    let minors = numbers.filter_map(|node| node.minor);
    let mounts = spec
        .mounts
        .iter()
        .filter_map(|mount| minor(mount.source.as_deref()?));
    let mut minors: Vec<i64> = minors.chain(mounts).collect();
    if !minors.is_empty() {
        minors.extend(may_make(linux));
    }
    let mut given = Vec::new();
    for device in &devices.devices {
        // A list from a version that wrote no minor numbers does not determine the GPU.
        if minors.contains(&i64::from(device.minor?)) {
            given.push(device.uuid);
        }
    }
    (!given.is_empty() || is_given_none(spec, linux)).then_some(given)
}

/// Whether the configuration gives the container at least one GPU.
pub(crate) fn has_any(spec: &Spec) -> bool {
    let linux = spec.linux.iter();
    let mut nodes = linux.flat_map(|linux| linux.devices.iter().flatten());
    let mut mounts = spec.mounts.iter();
    nodes.any(|node| {
        let is_gpu = node
            .minor
            .is_some_and(|minor| (0..FIRST_CONTROL_MINOR).contains(&minor));
        node.kind == "c" && node.major == Some(NVIDIA_MAJOR) && is_gpu
    }) || mounts.any(|mount| mount.source.as_deref().and_then(minor).is_some())
}

/// Whether a container without a listed GPU certainly has none: its cgroup denies every device that
/// is not listed, no listed device could be a GPU, and no hook brings one.
fn is_given_none(spec: &Spec, linux: &Linux) -> bool {
    let rules = || {
        let all = linux.resources.iter();
        all.flat_map(|all| all.devices.iter().flatten())
    };
    let denies_all = |rule: &DeviceRule| {
        let every = |number: Option<i64>| number.is_none_or(|number| number < 0);
        let kind = rule.kind.as_deref().unwrap_or("a");
        !rule.allow && kind == "a" && every(rule.major) && every(rule.minor)
    };
    let of_nvidia = |rule: &DeviceRule| rule.allow && rule.major == Some(NVIDIA_MAJOR);
    let mut nodes = linux.devices.iter().flatten();
    let node = |path: &Path| {
        let device = path.strip_prefix("/dev").ok().and_then(Path::to_str);
        device.is_some_and(|name| {
            ["nv", "dri", "dxg", "mali"]
                .iter()
                .any(|gpu| name.starts_with(gpu))
        })
    };
    let mut sources = spec
        .mounts
        .iter()
        .filter_map(|mount| mount.source.as_deref());
    rules().any(denies_all)
        && !rules().any(of_nvidia)
        && !nodes.any(|own| own.major == Some(NVIDIA_MAJOR) || node(&own.path))
        && !sources.any(node)
        && !hooks(spec).any(|hook| {
            let brings_none = is_legacy(&hook.path) && wants_none(spec);
            runs_cli(hook) || name(&hook.path).contains("nvidia") && !brings_none
        })
}

/// Whether NVIDIA's legacy-mode hook is configured to bring no GPU.
fn wants_none(spec: &Spec) -> bool {
    let mut wanted = wanted(spec).peekable();
    wanted.peek().is_some() && wanted.all(is_none) && !wants_by_mounts(spec)
}

/// Whether a hook of NVIDIA's brings GPUs that the configuration does not list.
pub(crate) fn are_brought_by_hook(spec: &Spec) -> bool {
    let wants_any = || {
        wants_by_mounts(spec)
            || wanted(spec).any(|value| !is_none(value))
            || is_of_old_cuda(spec.env())
    };
    hooks(spec).any(|hook| runs_cli(hook) || (is_legacy(&hook.path) && wants_any()))
}

/// The GPUs that the environment requests of NVIDIA's legacy-mode hook.
fn wanted(spec: &Spec) -> impl Iterator<Item = &str> {
    let variables = spec.process.iter().flat_map(|process| &process.env);
    variables.filter_map(|variable| variable.strip_prefix(VISIBLE))
}

/// Mounts can request GPUs, too.
fn wants_by_mounts(spec: &Spec) -> bool {
    let mut mounts = spec.mounts.iter();
    mounts.any(|mount| mount.destination.starts_with(BY_MOUNTS))
}

fn hooks(spec: &Spec) -> impl Iterator<Item = &Hook> {
    let stages = spec
        .hooks
        .iter()
        .flat_map(|stages| stages.values().flatten());
    stages.flatten()
}

/// Whether a hook runs NVIDIA's program that brings GPUs: `ctr run --gpus` and older nerdctl call it
/// through `containerd oci-hook`.
fn runs_cli(hook: &Hook) -> bool {
    let mut words = hook.args.iter().map(|word| name(Path::new(word)));
    words.any(|word| word == "nvidia-container-cli")
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn is_legacy(path: &Path) -> bool {
    let name = name(path);
    name.starts_with("nvidia-container-runtime-hook")
        || name.starts_with("nvidia-container-toolkit")
}

/// The number in a device path: 3 for `/dev/nvidia3`, `None` for `/dev/nvidiactl`.
fn minor(path: &Path) -> Option<i64> {
    let number = path.to_str()?.strip_prefix("/dev/nvidia")?;
    number
        .parse()
        .ok()
        .filter(|number| (0..FIRST_CONTROL_MINOR).contains(number))
}

/// Whether the container may create device files of its own, or sees all of the host's.
fn may_make_any(linux: &Linux) -> bool {
    opens(linux).any(|rule| rule.minor.is_none_or(|minor| minor < 0))
}

/// The GPUs whose device files the container may create itself.
fn may_make(linux: &Linux) -> impl Iterator<Item = i64> {
    opens(linux)
        .filter_map(|rule| rule.minor)
        .filter(|minor| (0..FIRST_CONTROL_MINOR).contains(minor))
}

/// The rules of the cgroup that let the container open GPUs.
fn opens(linux: &Linux) -> impl Iterator<Item = &DeviceRule> {
    let rules = linux
        .resources
        .iter()
        .flat_map(|all| all.devices.iter().flatten());
    rules.filter(|rule| {
        let kind = rule.kind.as_deref().unwrap_or("a");
        let is_gpus = rule
            .major
            .is_none_or(|major| major < 0 || major == NVIDIA_MAJOR);
        // Runtimes themselves let containers create any device file and open none. Without `r` such
        // a file is of no use.
        let access = rule.access.as_deref();
        let opens = access.is_none_or(|access| access.contains('r'));
        rule.allow && (kind == "a" || kind == "c") && is_gpus && opens
    })
}

/// Whether the container is given GPUs that its configuration does not list: by NVIDIA's
/// legacy-mode hook, by its program, or because it sees the whole of the host's /dev.
pub(crate) fn is_given_more_later(spec: &Spec) -> bool {
    let mut sources = spec
        .mounts
        .iter()
        .filter_map(|mount| mount.source.as_deref());
    hooks(spec).any(runs_cli)
        || (hooks(spec).any(|hook| is_legacy(&hook.path)) && !wants_none(spec))
        || sources.any(|source| source == Path::new("/dev") || source == Path::new("/"))
}

#[cfg(test)]
#[path = "visible_gpus_tests.rs"]
mod tests;
