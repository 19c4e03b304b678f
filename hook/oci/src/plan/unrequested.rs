//! Finds the slice of a container that requests none: the policy's default or maximum.
//! Touches: its arguments.

use crate::plan::PlanInput;
use crate::plan::foreign::Foreign;
use crate::request::annotations::SliceRequest;
use crate::request::dialects::Portion;
use crate::request::identity::Identity;
use crate::request::visible_gpus;
use gpuslice_config::words::device::DeviceUuid;

/// The host has no GPU, or no list of GPUs.
pub(crate) const NO_GPU: &str = "this host has no GPU";

/// The maximum is no limit on the container's GPUs.
pub(super) const UNBOUNDED: &str = "the policy's maximum bounds none of its GPUs";

/// The default is for GPUs that may be sliced.
const UNSLICED: &str = "the policy slices none of its GPUs";

/// A maximum limits only a container that certainly has a GPU. Otherwise it would reach all privileged
/// containers, and those that could get a GPU and do not.
const UNKNOWN: &str = "its configuration does not say that it has a GPU";

/// The request that the container is taken to make, or the reason why it gets no slice. `visible`: the
/// GPUs that the container is given, if they are known.
pub(super) fn of(
    given: &PlanInput<'_>,
    who: &Identity,
    foreign: &Foreign,
    visible: Option<&[DeviceUuid]>,
) -> Result<SliceRequest, &'static str> {
    let mut request = SliceRequest::default();
    let memory = given.policy.unrequested(who.namespace.as_deref());
    let is_brought = visible_gpus::are_brought_by_hook(given.spec);
    let has_host_any = !given.devices.devices.is_empty();
    match (&given.policy.default, foreign.ceiling()) {
        (Some(_), _) if !has_host_any => return Err(NO_GPU),
        (Some(_), None) if !may_have_a_sliced_one(given, visible) => return Err(UNSLICED),
        (Some(default), _) => {
            request.takes(default);
            request.memory = memory;
        }
        // A variable lowers the whole GPU, or the maximum.
        (None, Some(ceiling)) => {
            request.memory = Some(ceiling.at_most(memory.unwrap_or(ceiling)));
            request.portion = Some(Portion::WHOLE);
        }
        (None, None) if memory.is_none() => return Err("it asks for no slice"),
        (None, None) if visible.is_some_and(<[_]>::is_empty) => return Err("it is given no GPU"),
        (None, None) if !is_brought && !visible_gpus::has_any(given.spec) => return Err(UNKNOWN),
        (None, None) if !has_host_any => return Err(NO_GPU),
        (None, None) if !is_brought && visible.is_none() => return Err(UNKNOWN),
        // Every GPU is one that the request does not name.
        (None, None) => {}
    }
    Ok(request)
}

/// Whether the container may have a GPU that the policy slices. A policy that slices no GPU of this host
/// at all is a mistake, which must not leave every container without its default.
fn may_have_a_sliced_one(given: &PlanInput<'_>, visible: Option<&[DeviceUuid]>) -> bool {
    let (Some(selectors), Some(visible)) = (&given.policy.devices, visible) else {
        return true;
    };
    let sliced = || {
        let targets = selectors
            .iter()
            .flat_map(|selector| given.devices.select(*selector));
        targets.map(|target| target.device.uuid)
    };
    visible.is_empty() || sliced().next().is_none() || sliced().any(|uuid| visible.contains(&uuid))
}
