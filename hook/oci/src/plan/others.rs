//! Limits the GPUs of a container that its request does not name.
//! Touches: its arguments. Law: a request that names one GPU does not evade the policy on others.

use crate::plan::{PlanError, PlanInput};
use crate::request::annotations::SliceRequest;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::devices::{Device, SliceTarget};
use gpuslice_host::slices::records::DeviceBudget;

/// The GPUs that a container has, or may have, beside those that its request names.
pub(super) struct Others<'a> {
    targets: Vec<SliceTarget<'a>>,
    /// Whether the container certainly has them, and has its slice alone.
    are_its_own: bool,
    /// Whether hooks or another system's scheduler have named the GPUs, and no annotation.
    by_host: bool,
}

impl<'a> Others<'a> {
    /// Finds them. `each`: the budgets of the GPUs that are named. `visible`: the GPUs that the
    /// container is given, if they are known.
    ///
    /// # Errors
    /// When the container is given none of the GPUs that its annotations name.
    pub(super) fn of(
        each: &[DeviceBudget],
        asked: &SliceRequest,
        given: &PlanInput<'a>,
        visible: Option<&[DeviceUuid]>,
        by_host: bool,
    ) -> Result<Others<'a>, PlanError> {
        let is_sized = asked.memory.is_some() || asked.portion.is_some();
        let is_limited = |device: &Device| {
            let mut targets = device.targets();
            targets.any(|target| each.iter().any(|budget| budget.uuid == target.uuid))
        };
        // An instance of MIG cannot be told from its GPU's others.
        let is_other = |device: &Device| {
            let is_its = visible.is_none_or(|visible| visible.contains(&device.uuid));
            is_its && !is_limited(device)
        };
        let devices = &given.devices.devices;
        let others = devices.iter().filter(|device| is_other(device));
        let others: Vec<&Device> = match is_sized || each.is_empty() {
            true => Vec::new(),
            false => others.collect(),
        };
        let is_given = visible.is_some_and(|visible| !visible.is_empty());
        if is_given && !asked.shared && !by_host && Some(others.len()) == visible.map(<[_]>::len) {
            let named = asked.devices.iter().map(|named| named.selector.to_string());
            return Err(PlanError::NotGiven {
                named: named.collect::<Vec<_>>().join(", "),
                given: indices(&others),
            });
        }
        Ok(Others {
            targets: others.into_iter().flat_map(Device::targets).collect(),
            are_its_own: visible.is_some() && !asked.shared,
            by_host,
        })
    }

    /// Limits them as the policy limits a container without a request: adds budgets to `each`.
    /// Returns the limit on GPUs of which it is not known whether the container has them, and a note.
    ///
    /// # Errors
    /// When the policy refuses such a container, or bounds it without giving it a size.
    pub(super) fn limit(
        self,
        each: &mut Vec<DeviceBudget>,
        given: &PlanInput<'_>,
        maximum: Option<Bytes>,
    ) -> Result<(Option<Bytes>, Option<String>), PlanError> {
        if self.targets.is_empty() {
            return Ok((None, None));
        }
        let devices: Vec<&Device> = self.targets.iter().map(|target| target.device).collect();
        let gpus = indices(&devices);
        let default = given.policy.default.map(|default| default.memory);
        let denies = given.policy.deny_unannotated && default.is_none();
        if !self.are_its_own {
            return match denies && !self.by_host {
                true => Err(PlanError::Unnamed { gpus }),
                false => Ok((default.into_iter().chain(maximum).min(), None)),
            };
        }
        let Some(memory) = default else {
            return match denies || maximum.is_some() {
                true => Err(PlanError::Unnamed { gpus }),
                false => Ok((
                    None,
                    Some(format!(
                        "it has no limit on {gpus}, which its request does not name"
                    )),
                )),
            };
        };
        let memory = memory.at_most(maximum.unwrap_or(memory));
        each.extend(self.targets.iter().map(|target| DeviceBudget {
            uuid: target.uuid,
            memory,
            integrated: target.device.integrated,
        }));
        let note = format!(
            "it has the policy's default of {memory} on {gpus}, which its request does not name"
        );
        Ok((None, Some(note)))
    }
}

/// Names GPUs by their indices: `GPUs 0, 1`.
fn indices(devices: &[&Device]) -> String {
    let mut numbers: Vec<String> = devices
        .iter()
        .map(|device| device.index.to_string())
        .collect();
    numbers.dedup();
    let word = if numbers.len() == 1 { "GPU" } else { "GPUs" };
    format!("{word} {}", numbers.join(", "))
}
