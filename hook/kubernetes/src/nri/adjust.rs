//! Decides how a container is adjusted: the hook and the annotations that it reads.
//! Touches: its arguments. Law: pure.

use super::api::{Adjustment, Container, DeviceRule, Hook, Hooks, Number, PodSandbox};
use gpuslice_hook::request::annotations::{self, PREFIX};
use gpuslice_hook::request::dialects::{self, Given};
use gpuslice_hook::request::identity::Annotations;
use gpuslice_hook::request::nvidia_variables::{BY_MOUNTS, VISIBLE, is_none, is_of_old_cuda};
use gpuslice_host::engine::hook_arguments::{NAME, is_ours};
use gpuslice_host::engine::hook_entry::{ENVIRONMENT, STAGES};
use gpuslice_host::machine::devices::{FIRST_CONTROL_MINOR, NVIDIA_MAJOR};
use gpuslice_host::machine::dialects::Dialects;
use gpuslice_host::machine::policy::Policy;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Every dialect, where the policy cannot say which of them count.
const ALL: Dialects = Dialects {
    kai: true,
    hami: true,
    nvidia: true,
};

/// The decisions of the host about containers.
#[derive(Clone, Copy, Debug)]
pub struct Adjusting<'a> {
    /// The policy; `None` if it cannot be used. The hook then refuses what asks for a slice.
    pub policy: Option<&'a Policy>,
    /// The hook, by its path on the host.
    pub hook: &'a Path,
}

impl Adjusting<'_> {
    pub(super) fn dialects(&self) -> Dialects {
        self.policy.map_or(ALL, |policy| policy.dialects)
    }

    /// Whether each container with a GPU must have a slice. A maximum may limit none of its GPUs.
    pub(super) fn slices_all(&self) -> bool {
        let slices = |policy: &Policy| policy.default.is_some() || policy.deny_unannotated;
        self.policy.is_some_and(slices)
    }

    /// Whether the policy decides about containers of this pod that ask for nothing.
    fn decides_about_others(&self, pod: &PodSandbox) -> bool {
        self.policy.is_none_or(Policy::rules_unrequested) && !self.exempts(pod)
    }

    /// Whether the policy's rules for containers that ask for nothing leave this pod out.
    pub(super) fn exempts(&self, pod: &PodSandbox) -> bool {
        let names = self.policy.map(|policy| &policy.exempt_namespaces);
        names.is_some_and(|names| names.contains(&pod.namespace))
    }

    /// Whether the policy's rules do not reach a container that asks for nothing because it is
    /// privileged: it sees every GPU, and nothing shows that it uses one.
    pub(super) fn leaves_privileged(&self, pod: &PodSandbox, container: &Container) -> bool {
        let sees_any = nodes(container).any(is_gpu);
        let is_left = sees_all_devices(container) && sees_any && !has_gpu(container);
        is_left && self.decides_about_others(pod)
    }
}

/// The annotations that a container of a pod has: its pod's, and its own, which override them.
pub(super) fn both(pod: &PodSandbox, container: &Container) -> Annotations {
    let all = pod.annotations.iter().chain(&container.annotations);
    all.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The adjustment of a container; `None` where it is left as it is.
#[must_use]
pub fn adjust(pod: &PodSandbox, container: &Container, host: &Adjusting<'_>) -> Option<Adjustment> {
    let dialects = host.dialects();
    let all = both(pod, container);
    let asks = annotations::any(&all)
        || dialects::any(&Given {
            dialects,
            annotations: &all,
            env: &container.env,
            name: Some(&container.name),
            visible: None,
        });
    let is_decided = asks || (host.decides_about_others(pod) && has_gpu(container));
    if !is_decided {
        return None;
    }
    let is_read = |key: &str| key.starts_with(PREFIX) || dialects::is_annotation(key, dialects);
    let missing = pod
        .annotations
        .iter()
        .filter(|(key, _)| is_read(key) && !container.annotations.contains_key(*key));
    let adjustment = Adjustment {
        annotations: missing
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<HashMap<_, _>>(),
        hooks: (!has_hook(container)).then(|| hooks(host.hook)),
    };
    (adjustment != Adjustment::default()).then_some(adjustment)
}

/// The hooks of `gpuslice runtime configure`.
fn hooks(path: &Path) -> Hooks {
    let [create, stop] = STAGES.map(|stage| Hook {
        path: path.to_string_lossy().into_owned(),
        args: vec![NAME.to_owned(), stage.to_owned()],
        env: vec![ENVIRONMENT.to_owned()],
    });
    Hooks {
        prestart: Vec::new(),
        create_runtime: vec![create],
        poststop: vec![stop],
    }
}

/// Whether the container has our hook already: by a RuntimeClass or a CDI device.
fn has_hook(container: &Container) -> bool {
    let hooks = container.hooks.iter();
    let mut starts = hooks.flat_map(|hooks| hooks.create_runtime.iter().chain(&hooks.prestart));
    starts.any(|hook| is_ours(Path::new(&hook.path), &hook.args))
}

/// Whether the container certainly has a GPU of NVIDIA's: among its devices, or asked for by a CDI
/// device, a mount or its environment. Engines give a privileged container every device of the host, so its
/// devices show nothing: the node's network and storage, NVIDIA's driver and gpuslice's own daemons
/// are privileged, and a default slice for each would leave no room on any GPU.
pub(super) fn has_gpu(container: &Container) -> bool {
    let annotations = container.annotations.iter();
    // NVIDIA's runtime reads these; so do engines that know CDI.
    let by_annotation = annotations.filter(|(key, _)| key.starts_with("cdi.k8s.io/"));
    let devices = container.cdi_devices.iter().map(|device| &device.name);
    let mut names = devices.chain(by_annotation.map(|(_, value)| value));
    let mut wanted = container
        .env
        .iter()
        .filter_map(|variable| variable.strip_prefix(VISIBLE));
    let mut mounts = container.mounts.iter();
    (!sees_all_devices(container) && nodes(container).any(is_gpu))
        || is_given_one(container)
        || mounts.any(|mount| mount.destination.starts_with(BY_MOUNTS))
        || names.any(|name| name.contains("nvidia.com/"))
        || wanted.any(|value| !is_none(value.trim()))
        || is_of_old_cuda(&container.env)
}

/// The paths of the container's device nodes.
fn nodes(container: &Container) -> impl Iterator<Item = &str> {
    let devices = container.linux.iter().flat_map(|linux| &linux.devices);
    devices.map(|device| device.path.as_str())
}

/// Whether a device node is of a GPU of NVIDIA's: /dev/nvidia0, or Jetson's /dev/nvmap and others.
/// Disks are /dev/nvme0, and a mainboard's memory is /dev/nvram.
fn is_gpu(path: &str) -> bool {
    let others = ["/dev/nvme", "/dev/nvram"];
    path.starts_with("/dev/nv") && !others.iter().any(|other| path.starts_with(other))
}

/// Whether the container is privileged: its cgroup allows every device, and the engine has given it those
/// of the host, of which every host has /dev/null.
fn sees_all_devices(container: &Container) -> bool {
    let every = |number: &Option<Number>| number.as_ref().is_none_or(|number| number.value < 0);
    let is_allowed = rules(container).any(|rule| {
        let is_any = matches!(rule.kind.as_str(), "" | "a");
        rule.allow && is_any && every(&rule.major) && every(&rule.minor)
    });
    is_allowed && nodes(container).any(|path| path == "/dev/null")
}

/// Whether a privileged container is given a GPU beside the host's devices. CDI and CRI-O then allow that
/// device once more, and containerd lists it twice. Most engines do not tell plugins of CDI devices.
fn is_given_one(container: &Container) -> bool {
    let number = |number: &Option<Number>| number.as_ref().map(|number| number.value);
    let is_rule = |rule: &DeviceRule| {
        let is_gpu =
            number(&rule.minor).is_some_and(|minor| (0..FIRST_CONTROL_MINOR).contains(&minor));
        rule.allow && rule.kind == "c" && number(&rule.major) == Some(NVIDIA_MAJOR) && is_gpu
    };
    let mut gpus = nodes(container).filter(|path| is_gpu(path));
    let mut seen = HashSet::new();
    rules(container).any(is_rule) || gpus.any(|path| !seen.insert(path))
}

/// The rules of the container's cgroup about devices.
fn rules(container: &Container) -> impl Iterator<Item = &DeviceRule> {
    let linux = container.linux.iter();
    let resources = linux.filter_map(|linux| linux.resources.as_ref());
    resources.flat_map(|resources| &resources.devices)
}

#[cfg(test)]
#[path = "adjust_tests.rs"]
mod tests;
