//! Limits the GPUs of a container that its request does not name.
//! Touches: its arguments. Law: a request that names one GPU does not evade the policy on others.

use crate::plan::{PlanError, PlanInput};
use crate::request::annotations::SliceRequest;
use crate::request::hook_slices::GivenSlice;
use crate::request::visible_gpus;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::devices::{Device, SliceTarget};
use gpuslice_host::machine::policy::Policy;
use gpuslice_host::slices::records::DeviceBudget;

/// The GPUs that a container has, or may have, besides those that its request names.
pub(super) struct Others<'a> {
    targets: Vec<SliceTarget<'a>>,
    /// Whether the container's configuration says which GPUs it has.
    are_known: bool,
    /// Whether the container certainly has them, or has no other, and has its slice alone.
    are_its_own: bool,
    /// Whether the container requests no size at all.
    is_unrequested: bool,
    /// Whether the container may have MIG instances of a GPU of which others are named.
    may_have_instances: bool,
    by: NamedBy,
}

/// The party that has named the GPUs of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// The container, by its annotations.
    Container,
    /// The host, by the hook of a CDI device or of a runtime.
    Host,
    /// A claim, or another system's scheduler. It gives the container those GPUs.
    Scheduler,
}

impl NamedBy {
    /// `by_hooks`: what hooks request. `is_foreign`: whether another system's scheduler requests.
    pub(super) fn of(by_hooks: Option<&GivenSlice>, is_foreign: bool) -> NamedBy {
        match by_hooks {
            None if !is_foreign => NamedBy::Container,
            Some(by_hooks) if !is_foreign && by_hooks.named.is_none() => NamedBy::Host,
            _ => NamedBy::Scheduler,
        }
    }
}

impl<'a> Others<'a> {
    /// Finds those GPUs. `each`: the budgets of the GPUs that are named. `visible`: the GPUs that the
    /// container is given, if they are known.
    ///
    /// # Errors
    /// When the container is given none of the GPUs that its annotations name.
    pub(super) fn of(
        each: &[DeviceBudget],
        asked: &SliceRequest,
        given: &PlanInput<'a>,
        visible: Option<&[DeviceUuid]>,
        by: NamedBy,
    ) -> Result<Others<'a>, PlanError> {
        let is_sized = asked.memory.is_some() || asked.portion.is_some();
        let has_budget =
            |target: SliceTarget<'_>| each.iter().any(|budget| budget.uuid == target.uuid);
        let is_limited = |device: &Device| device.targets().any(has_budget);
        // An instance of MIG cannot be told from its GPU's others.
        let is_other = |device: &Device| {
            let is_its = visible.is_none_or(|visible| visible.contains(&device.uuid));
            is_its && !is_limited(device)
        };
        let devices = &given.devices.devices;
        let others = devices.iter().filter(|device| is_other(device));
        let others: Vec<&Device> = match is_sized {
            true => Vec::new(),
            false => others.collect(),
        };
        let is_part = |device: &Device| is_limited(device) && !device.targets().all(has_budget);
        let may_have_instances = !is_sized && devices.iter().any(is_part);
        let is_unrequested = !asked.limits_something();
        let is_given = visible.is_some_and(|visible| !visible.is_empty());
        if is_given
            && !asked.shared
            && by == NamedBy::Container
            && !is_unrequested
            && Some(others.len()) == visible.map(<[_]>::len)
        {
            let named = asked.devices.iter().map(|named| named.selector.to_string());
            return Err(PlanError::NotGiven {
                named: named.collect::<Vec<_>>().join(", "),
                given: indices(&others),
            });
        }
        Ok(Others {
            targets: others.into_iter().flat_map(Device::targets).collect(),
            are_known: visible.is_some(),
            are_its_own: (visible.is_some() && !asked.shared)
                || (is_unrequested && visible_gpus::are_brought_by_hook(given.spec)),
            is_unrequested,
            may_have_instances,
            by,
        })
    }

    /// The limit on MIG instances beside named ones. It is not known whether the container has them. If
    /// the policy refuses containers without a request, they have the smallest size of the request.
    pub(super) fn instances(
        &self,
        each: &[DeviceBudget],
        policy: &Policy,
        memory: Option<Bytes>,
    ) -> Option<Bytes> {
        let least = each.iter().map(|budget| budget.memory).min();
        let least = least.filter(|_| policy.deny_unannotated && self.by == NamedBy::Container);
        memory.or(least).filter(|_| self.may_have_instances)
    }

    /// Limits these GPUs as the policy limits a container without a request. Adds a budget to `each`
    /// for every GPU that admission counts. Returns the limit on the GPUs that admission does not
    /// count, and a note for the user.
    ///
    /// Admission does not count a GPU if it is not known whether the container has it, or if only the
    /// policy's maximum limits it: a maximum grants no memory. `memory`: the size that the policy gives
    /// a container without a request. `allowed`: whether the policy slices a GPU.
    ///
    /// # Errors
    /// When the policy refuses such a container.
    pub(super) fn limit(
        mut self,
        each: &mut Vec<DeviceBudget>,
        policy: &Policy,
        memory: Option<Bytes>,
        allowed: impl Fn(&SliceTarget<'_>) -> bool,
    ) -> Result<(Option<Bytes>, Option<String>), PlanError> {
        if self.targets.is_empty() {
            return Ok((None, None));
        }
        let denies = policy.deny_unannotated && policy.default.is_none();
        if denies && (self.are_its_own || self.by == NamedBy::Container) {
            let gpus = self.indices();
            return Err(PlanError::Unnamed { gpus });
        }
        let why = match self.is_unrequested {
            true => "because it requests no size",
            false => "which its request does not name",
        };
        let Some(memory) = memory else {
            // Inside the container, the first GPU that NVIDIA's legacy hook brings is GPU 0, too.
            let start = match self.are_known || self.is_unrequested {
                true => "",
                false => "its configuration does not say which GPUs it is given; ",
            };
            let note = format!("{start}it has no limit on {}, {why}", self.indices());
            let is_by_scheduler = self.by == NamedBy::Scheduler;
            let is_certain = self.are_its_own || !(self.is_unrequested || is_by_scheduler);
            return Ok((None, is_certain.then_some(note)));
        };
        // A maximum limits only what could exceed it.
        let is_bounded = |target: &SliceTarget<'_>| allowed(target) && target.memory > memory;
        let is_maximum = policy.default.is_none();
        self.targets
            .retain(|target| !is_maximum || is_bounded(target));
        if self.targets.is_empty() {
            return Ok((None, None));
        }
        let rule = if is_maximum { "maximum" } else { "default" };
        let gpus = self.indices();
        let note = format!("it has the policy's {rule} of {memory} on {gpus}, {why}");
        let note = self.are_its_own.then_some(note);
        if is_maximum || !self.are_its_own {
            return Ok((Some(memory), note));
        }
        each.extend(self.targets.iter().map(|target| DeviceBudget {
            uuid: target.uuid,
            memory,
            integrated: target.device.integrated,
        }));
        Ok((self.is_unrequested.then_some(memory), note))
    }

    fn indices(&self) -> String {
        let devices = self.targets.iter().map(|target| target.device);
        indices(&devices.collect::<Vec<_>>())
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
