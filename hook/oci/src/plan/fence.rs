//! Decides what enforces the limit of a container: the driver, or the library.
//! Touches: its arguments.
//! Law: a container cannot weaken the fence that the policy chooses.

use super::{ContainerPlan, PlanError, PlanInput};
use crate::request::annotations::SliceRequest;
use gpuslice_config::slice::{self, DriverLimit, Fence, Slice, Text, Total};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_host::machine::devices::SliceTarget;
use gpuslice_host::slices::records::DeviceBudget;

/// The longest cgroup path that a slice file can hold.
const LONGEST: usize = 255;

/// The fence of a container with these budgets.
pub(super) fn of(
    asked: &SliceRequest,
    budgets: &[DeviceBudget],
    given: &PlanInput<'_>,
) -> Result<Fence, PlanError> {
    let wanted = match (given.policy.fence_for_all(), asked.fence) {
        (Some(Fence::Preload), Some(Fence::Driver)) => return Err(PlanError::NoDriverFence),
        (Some(demanded), _) => demanded,
        (None, chosen) => chosen.unwrap_or_default(),
    };
    let cannot = match asked {
        _ if wanted == Fence::Preload => None,
        asked if shows_more(asked) => Some(
            "programs would see the limit as TOTAL instead of the total that the container requests"
                .to_owned(),
        ),
        asked if asked.shared => {
            Some("a pod's containers share its slice, and each has a cgroup of its own".to_owned())
        }
        _ => budgets.iter().find_map(|budget| unable(budget, given)),
    };
    match (cannot, wanted) {
        (Some(why), Fence::Driver) => Err(PlanError::Fence(why)),
        (Some(_), _) if shows_more(asked) => Ok(Fence::Preload),
        _ => Ok(wanted),
    }
}

/// Whether TOTAL should exceed the limit. In a cgroup that the driver limits, some functions report the
/// limit instead.
fn shows_more(asked: &SliceRequest) -> bool {
    asked.total == Some(Total::Device) || asked.maximum.is_some()
}

/// Why the driver cannot limit a cgroup on a device, as far as the list of GPUs tells.
fn unable(budget: &DeviceBudget, given: &PlanInput<'_>) -> Option<String> {
    let mut targets = given.devices.targets();
    let target = targets.find(|target| target.uuid == budget.uuid)?;
    let why = match &target {
        SliceTarget { device, .. } if device.integrated => "it shares the host's memory",
        SliceTarget { device, uuid, .. } if device.uuid != *uuid => "it is a MIG instance",
        SliceTarget { device, .. } if device.driver_limits == Some(false) => {
            "its driver cannot limit cgroups (R615 and later can)"
        }
        _ => return None,
    };
    Some(format!("{target}: {why}"))
}

impl ContainerPlan {
    /// Records in the slice file that the driver enforces the limits of these devices for a cgroup.
    /// Where no other container shares the slice, the library then counts their memory, and refuses
    /// nothing. A cgroup with a path that is too long is not recorded.
    pub fn is_limited_by_driver(&mut self, cgroup: &str, held: &[DeviceUuid], by: DriverLimit) {
        if cgroup.len() > LONGEST {
            return;
        }
        let shared = self.shared;
        self.change_slice(|slice| {
            slice.driver_cgroup = Some(Text::new(cgroup));
            for uuid in held {
                let Some(listed) = slice.listed_mut(*uuid) else {
                    continue;
                };
                match shared {
                    // The driver limits each container, and the library all of them together.
                    true => listed.driver_backstop = true,
                    false => listed.driver_limit = Some(by),
                }
            }
        });
    }

    /// Keeps what an earlier stage has recorded in the slice file about the driver's limits.
    pub fn keeps_driver_limits(&mut self, recorded: &Slice) {
        self.change_slice(|slice| {
            slice.driver_cgroup = recorded.driver_cgroup;
            for listed in recorded.devices() {
                if let Some(own) = slice.listed_mut(listed.uuid) {
                    own.driver_limit = listed.driver_limit;
                    own.driver_backstop = listed.driver_backstop;
                }
            }
        });
    }

    fn change_slice(&mut self, change: impl FnOnce(&mut Slice)) {
        if let Some(file) = self.files.first_mut()
            && let Ok(mut slice) = slice::parse(file.text.as_bytes())
        {
            change(&mut slice);
            file.text = slice.to_json();
        }
    }
}
