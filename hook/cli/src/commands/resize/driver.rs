//! The driver's limit of a slice whose limit it holds. It follows the ledger's.
//! Touches: the driver, in a child; the slice file, by reading it.

use crate::commands::status::driver::Machine;
use crate::commands::status::model::SliceStatus;
use crate::commands::status::users::{User, with_rights_of};
use crate::driver::limit_probe::{self, Beside, Limit};
use crate::slice::file as slice_file;
use anyhow::Context;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::cgroups;
use std::path::PathBuf;

/// The driver's limits of a slice.
#[derive(Default)]
pub(super) struct DriverFence {
    cgroup: Option<PathBuf>,
    devices: Vec<DeviceUuid>,
    machine: Machine,
}

impl DriverFence {
    /// Finds the cgroup and the GPUs for which the driver holds the slice's limits.
    pub(super) fn of(slice: &SliceStatus, user: User) -> DriverFence {
        let Ok(written) = with_rights_of(user, || slice_file::read(&slice.file)) else {
            return DriverFence::default();
        };
        let held = written.devices().filter(|it| it.driver_limit.is_some());
        let path = written.driver_cgroup.filter(|_| written.enforce);
        DriverFence {
            cgroup: path.and_then(|path| cgroups::folder(path.as_str())),
            devices: held.map(|listed| listed.uuid).collect(),
            machine: slice.machine.clone(),
        }
    }

    /// Sets the driver's limits of those GPUs that it holds.
    ///
    /// # Errors
    /// When the driver does not set one.
    pub(super) fn set(&self, limits: &[(DeviceUuid, Bytes)]) -> anyhow::Result<()> {
        let held = limits
            .iter()
            .filter(|(uuid, _)| self.devices.contains(uuid));
        let limits: Vec<Limit> = held
            .map(|(uuid, hard)| Limit {
                uuid: *uuid,
                hard: *hard,
                soft: Bytes::ZERO,
            })
            .collect();
        let (Some(cgroup), false) = (&self.cgroup, limits.is_empty()) else {
            return Ok(());
        };
        let vars = self.machine.variables();
        let vars = vars.context("its simulated machine is not installed here")?;
        limit_probe::ask(cgroup, &limits, Beside::Replace, &vars)??;
        Ok(())
    }
}
