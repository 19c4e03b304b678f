//! The driver's limits of the cgroups of a slice. They follow the ledger's.
//! Touches: the driver, in a child; the slice files, by reading them.
//! Law: the driver is asked under the lock of admission, for which hooks wait 30 seconds. It has
//! [`CHANGE`] and [`RESTORE`] for all its answers together, and is loaded before the lock is taken.

use crate::commands::status::driver::Machine;
use crate::commands::status::users::{User, with_rights_of};
use crate::driver::ask::{AskError, LOOK, PATIENCE};
use crate::driver::keeper::{Keeper, NotLoadedError};
use crate::driver::limit_probe::{self, Beside, Limit};
use crate::slice::file as slice_file;
use anyhow::anyhow;
use gpuslice_config::slice::ListedDevice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::cgroups;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time that the driver has for a change while this process holds the lock of admission.
const CHANGE: Duration = Duration::from_secs(7);

/// The time that is left to restore the driver's limits if the change fails.
const RESTORE: Duration = Duration::from_secs(3);

/// Reasons why the driver's limits did not follow.
#[derive(Debug, thiserror::Error)]
pub(super) enum DriverError {
    /// The driver did not answer in time. The child that asks it is killed. A child that hangs in the
    /// kernel survives this for a while, so the limit may still change.
    #[error("the driver did not answer within {} s ({LOOK})", .0.as_secs())]
    Silent(Duration),
    /// The driver refused the limit, or cannot be asked.
    #[error("{0:#}")]
    Refused(anyhow::Error),
}

/// The moment until which the driver may answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    end: Instant,
    /// The time from the start until then.
    patience: Duration,
}

impl Deadline {
    /// The deadlines of a change that begins now, and of its undoing.
    pub(super) fn under_lock() -> (Deadline, Deadline) {
        let now = Instant::now();
        let undone = CHANGE.saturating_add(RESTORE);
        (Deadline::after(now, CHANGE), Deadline::after(now, undone))
    }

    /// A deadline that begins now, while no hook waits.
    pub(super) fn without_lock() -> Deadline {
        Deadline::after(Instant::now(), PATIENCE)
    }

    fn after(start: Instant, patience: Duration) -> Deadline {
        let end = start.checked_add(patience).unwrap_or(start);
        Deadline { end, patience }
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
    /// Finds the cgroups and the GPUs for which the driver has the slice's limits. Each container
    /// of a pod has a slice file of its own.
    pub(super) fn of(files: &[PathBuf], machine: &Machine, user: User) -> DriverFence {
        let held = |file: &PathBuf| {
            let written = with_rights_of(user, || slice_file::read(file)).ok()?;
            let is_limited = |it: &&ListedDevice| it.driver_limit.is_some() || it.driver_backstop;
            let listed = written.devices().filter(is_limited);
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

    /// Waits until the driver is loaded, and keeps it loaded. If it has none of the slice's limits, it is
    /// not asked.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub(super) fn load(&self) -> Result<Option<Keeper>, NotLoadedError> {
        let devices = self.cgroups.iter().flat_map(|held| &held.devices);
        let devices: Vec<DeviceUuid> = devices.copied().collect();
        match (devices.is_empty(), self.machine.variables()) {
            (false, Some(vars)) => Keeper::load(&devices, &vars).map(Some),
            _ => Ok(None),
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
            let left = deadline.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DriverError::Silent(deadline.patience));
            }
            let cgroup = &held.cgroup;
            match limit_probe::ask_within(cgroup, &own, Beside::Replace, &vars, left) {
                Ok(answer) => answer.map_err(|error| DriverError::Refused(error.into()))?,
                Err(AskError::Silent { .. }) => return Err(DriverError::Silent(deadline.patience)),
                Err(error) => return Err(DriverError::Refused(error.into())),
            };
        }
        Ok(())
    }
}
