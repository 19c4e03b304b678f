//! Sets the driver's own limit for a container's cgroup, where the driver supports such limits.
//! The driver's limit also holds for processes that do not load the library.
//! Touches: the cgroups of the host, by reading them; `gpuslice driver-limit` on the host.
//! Law: a limit that the driver does not set is reported, and stops no container.

use crate::apply::command;
use crate::base::outcome::Messages;
use anyhow::{Context, bail};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::cgroups;
use gpuslice_host::machine::devices::{Devices, SliceTarget};
use gpuslice_host::machine::policy::Policy;
use gpuslice_host::slices::records::DeviceBudget;

/// The limits that the driver holds for a container.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The path of the container's cgroup in `/proc/PID/cgroup`, if it was needed.
    pub(crate) cgroup: Option<String>,
    /// The GPUs.
    pub(crate) devices: Vec<DeviceUuid>,
    /// Why it does not hold the others'.
    pub(crate) lines: Messages,
}

/// Asks the driver to limit the cgroup of a container's first process to its budgets.
pub(crate) fn set(
    pid: i32,
    budgets: &[DeviceBudget],
    devices: &Devices,
    policy: &Policy,
    paths: &HostPaths,
) -> Held {
    let mut held = Held::default();
    for budget in budgets {
        let found = devices.targets().find(|target| target.uuid == budget.uuid);
        let Some(target) = found.filter(|target| target.uuid == target.device.uuid) else {
            // The driver has no limits for MIG instances.
            continue;
        };
        match limit(pid, &target, budget, &mut held.cgroup, policy, paths) {
            Ok(()) => held.devices.push(budget.uuid),
            Err(error) => {
                held.lines.push(format!("{target}: {error:#}"));
                // The container has already waited once for this driver.
                if error.is::<command::Hung>() {
                    break;
                }
            }
        }
    }
    held
}

fn limit(
    pid: i32,
    target: &SliceTarget<'_>,
    budget: &DeviceBudget,
    cgroup: &mut Option<String>,
    policy: &Policy,
    paths: &HostPaths,
) -> anyhow::Result<()> {
    if target.device.driver_limits == Some(false) {
        bail!("the driver has no limits per cgroup: only the library enforces the slice");
    }
    // The cgroup is looked up once, and only if a limit is set.
    let cgroup = match cgroup {
        Some(known) => known,
        None => cgroup.insert(own_cgroup(pid)?),
    };
    let folder = cgroups::folder(cgroup).context("cgroup v2 is not mounted on this host")?;
    command::limit_driver(paths, policy, &folder, budget)
}

/// The path of a container's cgroup, which must be its own.
fn own_cgroup(pid: i32) -> anyhow::Result<String> {
    let theirs = cgroups::path_of(Some(pid))?;
    if theirs == "/" || theirs == cgroups::path_of(None)? {
        bail!("the container has no cgroup (v2) of its own that the driver could limit");
    }
    Ok(theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_cgroup_is_never_limited() {
        let own = i32::try_from(std::process::id()).unwrap();
        let error = own_cgroup(own).unwrap_err().to_string();
        assert!(error.starts_with("the container has no cgroup"), "{error}");
    }
}
