//! The driver's limits of a slice whose limits it holds. They follow the ledger's.
//! Touches: the driver, in a child; the slice files, by reading them.
//! Law: the driver is asked under the lock of admission, for which hooks wait 30 seconds. It has
//! [`PATIENCE`] for all its answers together.

use crate::commands::status::driver::Machine;
use crate::commands::status::users::{User, with_rights_of};
use crate::driver::ask::{AskError, LOOK};
use crate::driver::limit_probe::{self, Beside, Limit};
use crate::slice::file as slice_file;
use anyhow::anyhow;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::cgroups;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time that the driver has while this process holds the lock of admission.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reasons why the driver's limits did not follow.
#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    /// The driver did not answer in time. The child that asks it is killed. A child that hangs in the
    /// kernel survives this for a while, so the limit may still change.
    #[error("the driver did not answer within {} s ({LOOK})", PATIENCE.as_secs())]
    Silent,
    /// The driver refused the limit, or cannot be asked.
    #[error("{0:#}")]
    Refused(anyhow::Error),
}

/// The moment until which the driver may answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// The deadline of a change that begins now.
    pub(super) fn begin() -> Deadline {
        let now = Instant::now();
        Deadline(now.checked_add(PATIENCE).unwrap_or(now))
    }
}

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

    /// Sets the driver's limits of those GPUs that it holds. After the deadline the driver is not asked.
    ///
    /// # Errors
    /// When the driver does not set one.
    pub(super) fn set(
        &self,
        limits: &[(DeviceUuid, Bytes)],
        deadline: Deadline,
    ) -> Result<(), DriverError> {
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
            let missing = || anyhow!("its simulated machine is not installed here");
            let vars = vars.ok_or_else(|| DriverError::Refused(missing()))?;
            let left = deadline.0.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DriverError::Silent);
            }
            let cgroup = &held.cgroup;
            match limit_probe::ask_within(cgroup, &own, Beside::Replace, &vars, left) {
                Ok(answer) => answer.map_err(|error| DriverError::Refused(error.into()))?,
                Err(AskError::Silent { .. }) => return Err(DriverError::Silent),
                Err(error) => return Err(DriverError::Refused(error.into())),
            };
        }
        Ok(())
    }
}
