//! The driver's limits of a slice whose limits it holds. They follow the ledger's.
//! Touches: the driver, in a child; the slice files, by reading them.

use crate::commands::status::driver::Machine;
use crate::commands::status::users::{User, with_rights_of};
use crate::driver::limit_probe::{self, Beside, Limit};
use crate::slice::file as slice_file;
use anyhow::Context;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::cgroups;
use std::path::PathBuf;

/// The driver's limits of a slice.
pub(super) struct DriverFence {
    cgroups: Vec<Held>,
    machine: Machine,
}

/// A cgroup, and the GPUs on which the driver limits it.
struct Held {
    cgroup: PathBuf,
    devices: Vec<DeviceUuid>,
}

impl DriverFence {
    /// Finds the cgroups and the GPUs for which the driver holds the slice's limits. Each container
    /// of a pod has a slice file of its own.
    pub(super) fn of(files: &[PathBuf], machine: &Machine, user: User) -> DriverFence {
        let held = |file: &PathBuf| {
            let written = with_rights_of(user, || slice_file::read(file)).ok()?;
            let listed = written.devices().filter(|it| it.driver_limit.is_some());
            let path = written.driver_cgroup.filter(|_| written.enforce)?;
            Some(Held {
                cgroup: cgroups::folder(path.as_str())?,
                devices: listed.map(|listed| listed.uuid).collect(),
            })
        };
        DriverFence {
            cgroups: files.iter().filter_map(held).collect(),
            machine: machine.clone(),
        }
    }

    /// Sets the driver's limits of those GPUs that it holds.
    ///
    /// # Errors
    /// When the driver does not set one.
    pub(super) fn set(&self, limits: &[(DeviceUuid, Bytes)]) -> anyhow::Result<()> {
        for held in &self.cgroups {
            let own = limits
                .iter()
                .filter(|(uuid, _)| held.devices.contains(uuid));
            let own = own.map(|(uuid, hard)| Limit {
                uuid: *uuid,
                hard: *hard,
                soft: Bytes::ZERO,
            });
            let own: Vec<Limit> = own.collect();
            if own.is_empty() {
                continue;
            }
            let vars = self.machine.variables();
            let vars = vars.context("its simulated machine is not installed here")?;
            limit_probe::ask(&held.cgroup, &own, Beside::Replace, &vars)??;
        }
        Ok(())
    }
}
