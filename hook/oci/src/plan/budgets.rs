//! Computes the memory that a container requests of each GPU.
//! Touches: its arguments. Law: a request above the policy's maximum is refused, and so are two
//! different sizes for one GPU. A request that names some GPUs does not evade the policy on others.
//! The maximum lowers a default, and a whole GPU that nobody requested.

use crate::plan::others::{NamedBy, Others};
use crate::plan::{PlanError, PlanInput};
use crate::request::annotations::{Named, SliceRequest};
use crate::request::dialects::Portion;
use crate::request::identity::Identity;
use gpuslice_config::words::device::{DeviceUuid, Selector};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::devices::SliceTarget;
use gpuslice_host::slices::records::DeviceBudget;

/// The budget of each GPU, with a note for the user.
pub(crate) struct Budgets {
    pub(crate) each: Vec<DeviceBudget>,
    pub(crate) note: Option<String>,
    /// The limit on any other GPU that the container has. Admission does not count it.
    pub(crate) elsewhere: Option<Bytes>,
    /// Whether the container certainly has no GPU.
    pub(crate) has_no_gpu: bool,
}

/// Computes the budgets. `visible`: the GPUs that the container is given, if they are known.
/// `by`: the party that has named the GPUs.
pub(crate) fn of(
    asked: &SliceRequest,
    given: &PlanInput<'_>,
    who: &Identity,
    visible: Option<&[DeviceUuid]>,
    by: NamedBy,
) -> Result<Budgets, PlanError> {
    let devices = given.devices;
    let names = |selector: Selector, target: &SliceTarget<'_>| {
        let selected = devices.select(selector);
        selected.iter().any(|chosen| chosen.uuid == target.uuid)
    };
    let allowed = |target: &SliceTarget<'_>| match &given.policy.devices {
        None => true,
        Some(selectors) => selectors.iter().any(|selector| names(*selector, target)),
    };
    for Named { selector, .. } in &asked.devices {
        let selected = devices.select(*selector);
        if selected.is_empty() {
            return Err(PlanError::NoSuchDevice(
                selector.to_string(),
                devices.indices(),
            ));
        }
        if !selected.iter().all(allowed) {
            return Err(PlanError::NotForSlices(selector.to_string()));
        }
    }
    // A pod's containers share one slice, whichever GPU each of them is given.
    let seen = match asked.shared {
        true => None,
        false => visible,
    };
    let is_seen = |target: &SliceTarget<'_>| match seen {
        None => true,
        Some(seen) => seen.contains(&target.device.uuid),
    };
    let namespace = who.namespace.as_deref();
    let maximum = given.policy.container_maximum(namespace);
    let unrequested = given.policy.unrequested(namespace);
    let lowered = |memory: Bytes| match unrequested {
        Some(maximum) if asked.portion == Some(Portion::WHOLE) => memory.at_most(maximum),
        _ => memory,
    };
    let above = |memory: Bytes| maximum.filter(|maximum| memory > *maximum);
    // The annotations of a pod name GPUs for all of its containers, also for those that have none. A
    // claim or a hook names those that its container has.
    let nothing =
        seen.is_some_and(<[_]>::is_empty) && (asked.devices.is_empty() || by == NamedBy::Container);
    if nothing && !devices.devices.is_empty() {
        let named = asked.devices.iter().map(|named| named.memory);
        let most = named.clone().chain(asked.memory).max().unwrap_or_default();
        if let Some(maximum) = above(most) {
            return Err(PlanError::Maximum {
                asked: most,
                maximum,
            });
        }
        return Ok(Budgets {
            each: Vec::new(),
            note: Some(
                "its memory counts on no GPU, because the container is given none".to_owned(),
            ),
            elsewhere: named.min(),
            has_no_gpu: true,
        });
    }
    let mut each = Vec::new();
    for target in devices.targets().filter(allowed) {
        let named = asked
            .devices
            .iter()
            .filter(|named| names(named.selector, &target));
        let everywhere = asked.memory_of(target.memory).filter(|_| is_seen(&target));
        let everywhere = everywhere.map(lowered);
        let Some(memory) = one(named, target.uuid)?.or(everywhere) else {
            continue;
        };
        if let Some(maximum) = above(memory) {
            return Err(PlanError::Maximum {
                asked: memory,
                maximum,
            });
        }
        each.push(DeviceBudget {
            uuid: target.uuid,
            memory,
            integrated: target.device.integrated,
        });
    }
    let others = Others::of(&each, asked, given, visible, by)?;
    let instances = others.instances(&each, given.policy, unrequested);
    let (elsewhere, unlimited) = others.limit(&mut each, given.policy, unrequested, allowed)?;
    let is_named = asked.limits_something();
    match (is_named && each.is_empty(), devices.devices.is_empty()) {
        (true, true) => Err(PlanError::NoDevices),
        (true, false) => Err(PlanError::NoneForSlices(devices.indices())),
        (false, _) => {
            let guessed = seen.is_none() && asked.memory.is_some() && devices.devices.len() > 1;
            let note = guessed.then(|| {
                let which = match asked.shared {
                    true => "a pod shares it",
                    false => "the container's configuration does not say which GPUs it is given",
                };
                let count = each.len();
                format!("its memory counts on {count} GPUs, because {which}")
            });
            Ok(Budgets {
                each,
                note: note.or(unlimited),
                elsewhere: elsewhere.or(instances),
                has_no_gpu: false,
            })
        }
    }
}

/// The one size that those names give; the container's own sizes override its pod's.
fn one<'a>(
    named: impl Iterator<Item = &'a Named>,
    uuid: DeviceUuid,
) -> Result<Option<Bytes>, PlanError> {
    let named: Vec<&Named> = named.collect();
    let own = named.iter().any(|named| named.own);
    let mut counting = named.iter().filter(|named| named.own == own);
    let Some(first) = counting.next() else {
        return Ok(None);
    };
    match counting.find(|other| other.memory != first.memory) {
        None => Ok(Some(first.memory)),
        Some(other) => Err(PlanError::Twice {
            uuid: uuid.to_string(),
            one: (first.selector.to_string(), first.memory),
            other: (other.selector.to_string(), other.memory),
        }),
    }
}
