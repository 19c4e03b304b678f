//! Sets the driver's own limit for a container's cgroup, where the driver supports such limits.
//! The driver's limit also holds for processes that do not load the library.
//! Touches: /proc/PID/cgroup, the host's folder of cgroups; `gpuslice driver-limit` on the host.
//! Law: a limit that the driver does not set is reported, and stops no container.

use crate::apply::command;
use crate::base::outcome::Messages;
use anyhow::{Context, bail};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::base::read;
use gpuslice_host::machine::devices::{Devices, SliceTarget};
use gpuslice_host::machine::policy::{DriverLimits, Policy};
use gpuslice_host::slices::records::DeviceBudget;
use std::path::{Path, PathBuf};

/// The mount points of cgroup version 2: beside version 1, or alone.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// Asks the driver to limit the cgroup of a container's first process to its budgets.
pub(crate) fn set(
    pid: i32,
    budgets: &[DeviceBudget],
    devices: &Devices,
    policy: &Policy,
    paths: &HostPaths,
) -> Messages {
    let mut lines = Messages::new();
    if policy.driver_limits == DriverLimits::Off {
        return lines;
    }
    // The cgroup is looked up once, and only if a limit is set.
    let mut cgroup = None;
    for budget in budgets {
        let found = devices.targets().find(|target| target.uuid == budget.uuid);
        let Some(target) = found.filter(|target| target.uuid == target.device.uuid) else {
            // The driver has no limits for MIG instances.
            continue;
        };
        match limit(pid, &target, budget, &mut cgroup, policy, paths) {
            Ok(()) => {}
            Err(error) => {
                lines.push(format!("{target}: {error:#}"));
                // The container has already waited once for this driver.
                if error.is::<command::Hung>() {
                    break;
                }
            }
        }
    }
    lines
}

fn limit(
    pid: i32,
    target: &SliceTarget<'_>,
    budget: &DeviceBudget,
    cgroup: &mut Option<PathBuf>,
    policy: &Policy,
    paths: &HostPaths,
) -> anyhow::Result<()> {
    if target.device.driver_limits == Some(false) {
        bail!("the driver has no limits per cgroup: only the library enforces the slice");
    }
    let cgroup = match cgroup {
        Some(known) => known,
        None => cgroup.insert(own_cgroup(pid)?),
    };
    command::limit_driver(paths, policy, cgroup, budget)
}

/// The folder of a container's cgroup, which must be its own.
fn own_cgroup(pid: i32) -> anyhow::Result<PathBuf> {
    let theirs = path_of(&format!("/proc/{pid}/cgroup"))?;
    if theirs == "/" || theirs == path_of("/proc/self/cgroup")? {
        bail!("the container has no cgroup (v2) of its own that the driver could limit");
    }
    let mounted = |mount: &&&str| Path::new(mount).join("cgroup.controllers").exists();
    let mount = MOUNTS.iter().find(mounted);
    let mount = mount.context("cgroup v2 is not mounted on this host")?;
    Ok(PathBuf::from(format!("{mount}{theirs}")))
}

fn path_of(file: &str) -> anyhow::Result<String> {
    let text = read::file(Path::new(file), 1 << 16);
    let text = text.with_context(|| format!("cannot read {file}"))?;
    Ok(version_2(&String::from_utf8_lossy(&text)).to_owned())
}

/// The path in cgroup version 2, from a list that also has the controllers of version 1.
fn version_2(text: &str) -> &str {
    let mut lines = text.lines();
    lines
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_found_beside_those_of_version_1() {
        let hybrid = "9:name=systemd:/docker/ab\n4:memory:/docker/ab\n0::/docker/ab\n";
        assert_eq!(version_2(hybrid), "/docker/ab");
        assert_eq!(version_2("4:memory:/docker/ab\n"), "/");
        assert_eq!(version_2("0::/a::b\n"), "/a::b");
    }

    #[test]
    fn the_hosts_own_cgroup_is_never_limited() {
        let own = i32::try_from(std::process::id()).unwrap();
        let error = own_cgroup(own).unwrap_err().to_string();
        assert!(error.starts_with("the container has no cgroup"), "{error}");
    }
}
