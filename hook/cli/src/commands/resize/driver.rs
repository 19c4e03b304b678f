//! The driver's own limit of a container's cgroup follows the limit of its slice (R615 and later).
//! Touches: the policy, /proc, `gpuslice driver-limit` in a child.
//! Law: a larger limit is set in the driver before it is in force in the library, and a smaller one
//! afterwards. So programs are never shown memory that the driver refuses.

use super::target::Target;
use crate::runs::resizing::ContainerSlice;
use anyhow::{Context, bail};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::policy::{self, DriverLimits};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The driver's limits of a slice.
#[derive(Debug, Default)]
pub(super) struct DriverFence {
    /// The command that sets them, and the cgroups of the slice's containers.
    limited: Option<(PathBuf, Vec<PathBuf>)>,
}

impl DriverFence {
    /// Finds the cgroups for which the hook has set a limit in the driver.
    ///
    /// # Errors
    /// When the policy cannot be read, or there is no command.
    pub(super) fn of(
        container: &ContainerSlice,
        targets: &[Target],
    ) -> anyhow::Result<DriverFence> {
        let policy = policy::read(&container.places)?;
        let has_limits = |target: &Target| {
            let mut devices = container.devices.devices.iter();
            let own = devices.find(|device| device.uuid == target.card.uuid);
            own.is_some_and(|device| device.driver_limits == Some(true))
        };
        if policy.driver_limits == DriverLimits::Off || !targets.iter().any(has_limits) {
            return Ok(DriverFence::default());
        }
        let command = match policy.command {
            Some(command) => command,
            None => std::env::current_exe().context("cannot find gpuslice")?,
        };
        let members = container.record()?.containers;
        let pids = members.iter().map(|member| member.owner.pid);
        let cgroups = pids.filter_map(cgroup);
        Ok(DriverFence {
            limited: Some((command, cgroups.collect())),
        })
    }

    /// Sets the limit of a GPU in the driver, in the place of the former one. A lower limit that
    /// another program has set stays.
    ///
    /// # Errors
    /// When the driver does not set it.
    pub(super) fn set(&self, target: &Target, former: Bytes, limit: Bytes) -> anyhow::Result<()> {
        let Some((command, cgroups)) = &self.limited else {
            return Ok(());
        };
        for cgroup in cgroups {
            let mut command = Command::new(command);
            command
                .arg("driver-limit")
                .arg("--cgroup")
                .arg(cgroup)
                .args(["--device", &target.card.uuid.to_string()])
                .args(["--memory", &limit.get().to_string()])
                .args(["--replace", &former.get().to_string()])
                .stdin(Stdio::null());
            let said = command
                .output()
                .context("cannot run gpuslice driver-limit")?;
            if !said.status.success() {
                let text = String::from_utf8_lossy(&said.stderr);
                let text = text.trim().trim_start_matches("gpuslice: ");
                bail!(
                    "the driver keeps its limit on {}: {text}",
                    target.card.shown
                );
            }
        }
        Ok(())
    }
}

/// The mount points of cgroup version 2: beside version 1, or alone.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// Returns the cgroup of a container's first process, for which the hook has set the limit. A cgroup
/// that is not the container's own is never limited.
fn cgroup(pid: i32) -> Option<PathBuf> {
    let path = |process: &str| {
        let text = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.strip_prefix("0::/")?.to_owned()))
    };
    let own = path(&pid.to_string()).filter(|own| !own.is_empty())?;
    let is_shared = path("self").as_ref() == Some(&own);
    let mounted = |mount: &&&str| Path::new(mount).join("cgroup.controllers").exists();
    let mount = MOUNTS.iter().find(mounted).filter(|_| !is_shared)?;
    Some(Path::new(mount).join(own))
}
