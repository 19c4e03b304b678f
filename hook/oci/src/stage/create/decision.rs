//! Decides whether a container gets a slice, and what a failure means for it.
//! Touches: the container's configuration, the policy, the list of GPUs.

use crate::apply::command;
use crate::base::outcome::{Messages, Stage, StageFailure};
use crate::plan::{self, ContainerPlan, Decision, NO_GPU, PlanError, PlanInput};
use crate::request::annotations;
use crate::request::arguments::Arguments;
use crate::request::dialects;
use crate::request::hook_slices::{self, HookSlice};
use crate::request::identity::Identity;
use crate::request::spec::{self, Spec};
use crate::request::spec_error::SpecError;
use crate::request::state::State;
use crate::request::visible_gpus;
use anyhow::{Context, bail};
use gpuslice_host::machine::devices::{self, Devices};
use gpuslice_host::machine::dialects::Dialects;
use gpuslice_host::machine::policy::{self, OnError, Policy};

/// A container that gets a slice, with all that was read for it.
pub(super) struct Decided {
    pub(super) plan: ContainerPlan,
    pub(super) devices: Devices,
    pub(super) policy: Policy,
    pub(super) spec: Spec,
    pub(super) on: Outcomes,
}

/// The consequence of a failure for the container.
#[derive(Clone, Copy)]
pub(super) struct Outcomes {
    /// The host caused the failure: `on-error` decides.
    host: OnError,
    /// The container caused the failure, which must not switch off a policy for all containers.
    container: OnError,
}

impl Outcomes {
    fn of(policy: &Policy, annotated: bool) -> Outcomes {
        let host = match annotated {
            true => policy.on_error.annotated,
            false => policy.on_error.others,
        };
        let container = match policy.rules_unrequested() {
            true => OnError::Refuse,
            false => host,
        };
        Outcomes { host, container }
    }

    pub(super) fn by_host(self, error: impl Into<anyhow::Error>) -> StageFailure {
        StageFailure::Failed(error.into(), self.host)
    }

    pub(super) fn by_container(self, error: impl Into<anyhow::Error>) -> StageFailure {
        StageFailure::Failed(error.into(), self.container)
    }
}

/// Decides. Returns `None` where there is nothing to be done. A GPU that annotations leave without a
/// limit adds a line to `logged`.
pub(super) fn decide(
    state: &State,
    stage: Stage,
    given: &Arguments,
    logged: &mut Messages,
) -> Result<Option<Decided>, StageFailure> {
    let spec = spec::read(&state.bundle);
    let annotated = given.slice.request.limits_something()
        || annotations::any(&state.annotations)
        || spec
            .as_ref()
            .is_ok_and(|spec| annotations::any(&spec.annotations) || asks_by_hook(spec))
        || is_twice(&spec, Dialects::default());
    let policy = policy::read(&given.paths)
        .map_err(|error| Outcomes::of(&Policy::default(), annotated).by_host(error))?;
    // The state has the annotations even if the configuration cannot be read.
    let annotated = annotated
        || plan::is_foreign(&policy, &state.annotations, spec.as_ref().ok())
        || is_twice(&spec, policy.dialects);
    let on = Outcomes::of(&policy, annotated);
    let spec = spec.map_err(|error| on.by_container(error))?;
    let planned = plan_for(state, &spec, &policy, given, stage).map_err(|error| {
        match error.downcast_ref::<PlanError>() {
            None => on.by_host(error),
            Some(PlanError::Annotation(_) | PlanError::Dialect(_)) => on.by_container(error),
            // A request that policy does not allow is refused whatever `on-error` says.
            Some(_) => StageFailure::Refused(error),
        }
    })?;
    let is_request = |key: &String| {
        key.starts_with(annotations::PREFIX) || dialects::is_annotation(key, policy.dialects)
    };
    let mut keys = state.annotations.keys().chain(spec.annotations.keys());
    let by_annotations = keys.any(is_request);
    let may_have_any = || visible_gpus::has_any(&spec) || visible_gpus::is_given_more_later(&spec);
    if planned.is_none() && by_annotations && may_have_any() {
        let mut annotations = state.annotations.clone();
        annotations.extend(spec.annotations.clone());
        let who = Identity::of(&state.id, &annotations);
        let line = "its annotations name other containers or GPUs, and its GPU has no limit";
        logged.push(format!("{}: {line}", who.title()));
    }
    Ok(planned.map(|(plan, devices)| Decided {
        plan,
        devices,
        policy,
        spec,
        on,
    }))
}

/// Whether the configuration gives annotations twice, with a request among them.
fn is_twice(spec: &Result<Spec, SpecError>, dialects: Dialects) -> bool {
    let error = spec.as_ref().err();
    error.is_some_and(|error| error.requests_twice(dialects))
}

/// Whether any hook definition of the container, including this hook's, gives a size. Sizes that
/// conflict count as a request, too.
fn asks_by_hook(spec: &Spec) -> bool {
    !matches!(hook_slices::of(spec, &HookSlice::default()), Ok(None))
}

/// The plan, if there is anything to be done, and the GPUs that it was made for.
///
/// # Errors
/// When the container cannot have the slice that it requests.
fn plan_for(
    state: &State,
    spec: &Spec,
    policy: &Policy,
    given: &Arguments,
    stage: Stage,
) -> anyhow::Result<Option<(ContainerPlan, Devices)>> {
    let wanted = |devices: &Devices| {
        plan::decide(&PlanInput {
            state,
            spec,
            policy,
            devices,
            paths: &given.paths,
            own: &given.slice,
        })
    };
    // Errors in the container, or policy violations, can be reported without a list of GPUs.
    let without = wanted(&Devices::none());
    if matches!(
        without,
        Err(PlanError::Unannotated | PlanError::Annotation(_) | PlanError::Dialect(_))
    ) {
        return Ok(without.map(|_| None)?);
    }
    // Most containers need no GPU. An error in the list of GPUs does not affect them.
    if matches!(without, Ok(Decision::Nothing(why)) if why != NO_GPU) {
        return Ok(None);
    }
    let devices = match devices::read(&given.paths)? {
        Some(devices) => devices,
        None if stage == Stage::Container || given.dry_run => {
            bail!("no list of GPUs exists (run gpuslice devices --write)")
        }
        None => {
            command::list_devices(&given.paths, policy)?;
            let made = devices::read(&given.paths)?;
            made.context("gpuslice devices --write wrote no list of GPUs")?
        }
    };
    match wanted(&devices)? {
        Decision::Nothing(_) => Ok(None),
        Decision::Slice(plan) => Ok(Some((*plan, devices))),
    }
}
