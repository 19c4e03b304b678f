//! Creates a container's slice, or reports why it has none.
//! Touches: everything below.

mod injection;
pub mod unsliced;

use crate::arguments::Arguments;
use crate::beside::{Beside, HostUnread, Wanted};
use crate::devices::{self, Devices};
use crate::owner::Owner;
use crate::place::Places;
use crate::plan::{Decision, Given, Plan, PlanError, decide};
use crate::policy::{self, DriverLimits, OnError, Policy};
use crate::registry::{self, Member, Registry};
use crate::spec::{self, Spec, SpecError};
use crate::state::State;
use crate::{annotations, command, container, driver_limit, gc, hook_sizes, host, toolkit_limit};
use anyhow::{Context, bail};

/// The namespaces that the hook runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The runtime's, which are the host's: `createRuntime`, `prestart`.
    Runtime,
    /// The container's, before its root is mounted: `createContainer`.
    Container,
}

/// Why a container does not start, or has no slice.
#[derive(Debug)]
pub enum Failure {
    /// The policy, or what others hold, does not allow it. It does not start.
    Refused(anyhow::Error),
    /// Something went wrong. The policy decides whether the container starts.
    Failed(anyhow::Error, OnError),
}

/// The messages, one line each.
pub type Lines = Vec<String>;

/// The messages about a container, whether it starts or not.
#[derive(Debug, Default)]
pub struct Report {
    /// For the runtime.
    pub lines: Lines,
    /// For the host's log, too: which limits are not in force although the container starts.
    pub logged: Lines,
}

/// The decision about a container: its plan and its first process.
struct Decided {
    plan: Plan,
    devices: Devices,
    policy: Policy,
    spec: Spec,
    on: Outcomes,
}

/// The consequence of a failure for the container.
#[derive(Clone, Copy)]
struct Outcomes {
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
        let container = match policy.deny_unannotated || policy.default.is_some() {
            true => OnError::Refuse,
            false => host,
        };
        Outcomes { host, container }
    }

    fn by_host(self, error: impl Into<anyhow::Error>) -> Failure {
        Failure::Failed(error.into(), self.host)
    }

    fn by_container(self, error: impl Into<anyhow::Error>) -> Failure {
        Failure::Failed(error.into(), self.container)
    }
}

/// Decides. Returns `None` where there is nothing to be done.
fn decided(state: &State, stage: Stage, given: &Arguments) -> Result<Option<Decided>, Failure> {
    let spec = spec::read(&state.bundle);
    let annotated = given.memory.is_some()
        || annotations::any(&state.annotations)
        || spec
            .as_ref()
            .is_ok_and(|spec| annotations::any(&spec.annotations) || asks_by_hook(spec))
        || spec.as_ref().is_err_and(SpecError::requests_twice);
    let policy = policy::read(&given.places)
        .map_err(|error| Outcomes::of(&Policy::default(), annotated).by_host(error))?;
    let on = Outcomes::of(&policy, annotated);
    let spec = spec.map_err(|error| on.by_container(error))?;
    let planned = planned(state, &spec, &policy, given, stage).map_err(|error| {
        match error.downcast_ref::<PlanError>() {
            None => on.by_host(error),
            Some(PlanError::Annotation(_)) => on.by_container(error),
            // A request that policy does not allow is refused whatever `on-error` says.
            Some(_) => Failure::Refused(error),
        }
    })?;
    Ok(planned.map(|(plan, devices)| Decided {
        plan,
        devices,
        policy,
        spec,
        on,
    }))
}

/// Whether any hook definition of the container, including this hook's, gives a size. Sizes that
/// conflict count as a request, too.
fn asks_by_hook(spec: &Spec) -> bool {
    !matches!(hook_sizes::of(spec, None), Ok(None))
}

/// The plan that a container would get, and the messages that would be reported. The plan is `None`
/// where there is nothing to be done. Nothing is changed, and no memory is reserved.
///
/// # Errors
/// Those of [`create`], as far as they can occur without a container.
pub fn would(
    state: &State,
    stage: Stage,
    given: &Arguments,
) -> Result<(Option<Plan>, Lines), Failure> {
    let Some(mut decided) = decided(state, stage, given)? else {
        return Ok((None, Lines::new()));
    };
    let on = decided.on;
    let records = registry::records(&given.places).map_err(|error| on.by_host(error))?;
    let records = gc::without_dead(&given.places, records);
    let records = unsliced::without(&given.places, records, &state.id);
    let wanted = Wanted {
        plan: &decided.plan,
        devices: &decided.devices,
        policy: &decided.policy,
        places: &given.places,
        // A dry run may describe a container that does not exist. Then it has no owner.
        owner: container::owner(state, stage).ok(),
        stage,
    };
    let mut lines = Lines::new();
    let name = &decided.plan.name;
    let beside = wanted.among(&records);
    let promised = match beside.map_err(|error| unless_host(error, on))? {
        Beside::Known(promised) => {
            lines.push(format!("{name} already has its slice"));
            promised
        }
        Beside::Fits { record, note } => {
            lines.extend(note);
            let note = decided.plan.note.as_ref();
            lines.extend(note.map(|note| format!("{name}: {note}")));
            record.unified()
        }
    };
    decided.plan.is_promised(promised, &given.places);
    Ok((Some(decided.plan), lines))
}

/// A refusal because of other slices, or a failure to read them.
fn unless_host(error: anyhow::Error, on: Outcomes) -> Failure {
    match error.is::<HostUnread>() {
        true => on.by_host(error),
        false => Failure::Refused(error),
    }
}

/// Creates the slice of a container.
///
/// # Errors
/// [`Failure`] says whether the container may start all the same.
pub fn create(
    state: &State,
    stage: Stage,
    given: &Arguments,
    report: &mut Report,
) -> Result<(), Failure> {
    let Some(decided) = decided(state, stage, given)? else {
        return Ok(());
    };
    let Decided {
        plan,
        devices,
        policy,
        spec,
        on,
    } = decided;
    let owner = container::owner(state, stage).map_err(|error| on.by_container(error))?;
    let mut run = Run {
        plan,
        devices: &devices,
        policy: &policy,
        given,
        on,
        report,
    };
    if stage == Stage::Container {
        container::is_in_one().map_err(|error| on.by_host(error))?;
        container::is_out_of_reach(&spec).map_err(|error| on.by_container(error))?;
    }
    let known = run.admit(state, owner, stage)?;
    // An earlier stage has done what can be done for this image. In this namespace the host's own
    // mounts, including the ledger's, may be invisible.
    if known && stage == Stage::Container {
        return Ok(());
    }
    if !known && stage == Stage::Runtime {
        let budgets = &run.plan.devices;
        let said = driver_limit::set(state.pid, budgets, run.devices, &policy, &given.places);
        run.report.lines.extend(said);
        let raised = raised(&run.plan, &spec, &policy);
        run.report.logged.extend(raised);
    }
    if let (false, Some(note)) = (known, &run.plan.note) {
        let line = format!("{}: {note}", run.plan.name);
        run.report.lines.push(line);
    }
    match run.inject(state, &spec, stage) {
        Ok(()) => Ok(()),
        Err(error) => {
            if let Err(left) = undo(&given.places, &run.plan) {
                run.report.lines.push(format!("{left:#}"));
            }
            Err(error)
        }
    }
}

/// The plan, if there is anything to be done, and the GPUs that it was made for.
///
/// # Errors
/// When the container cannot have the slice that it requests.
fn planned(
    state: &State,
    spec: &Spec,
    policy: &Policy,
    given: &Arguments,
    stage: Stage,
) -> anyhow::Result<Option<(Plan, Devices)>> {
    let wanted = |devices: &Devices| {
        decide(&Given {
            state,
            spec,
            policy,
            devices,
            places: &given.places,
            memory: given.memory,
        })
    };
    // Errors in the container, or policy violations, can be reported without a list of GPUs.
    let without = wanted(&Devices::none());
    if matches!(
        without,
        Err(PlanError::Unannotated | PlanError::Annotation(_))
    ) {
        return Ok(without.map(|_| None)?);
    }
    // Most containers need no GPU. An error in the list of GPUs does not affect them.
    if policy.default.is_none() && matches!(without, Ok(Decision::Nothing(_))) {
        return Ok(None);
    }
    let devices = match devices::read(&given.places)? {
        Some(devices) => devices,
        None if stage == Stage::Container || given.dry_run => {
            bail!("no list of GPUs exists (run gpuslice devices --write)")
        }
        None => {
            command::list_devices(&given.places, policy)?;
            let made = devices::read(&given.places)?;
            made.context("gpuslice devices --write wrote no list of GPUs")?
        }
    };
    match wanted(&devices)? {
        Decision::Nothing(_) => Ok(None),
        Decision::Slice(plan) => Ok(Some((*plan, devices))),
    }
}

/// The message for a limit of the driver that NVIDIA's toolkit replaces by a higher one.
fn raised(plan: &Plan, spec: &Spec, policy: &Policy) -> Option<String> {
    let limit = toolkit_limit::raised(spec, &plan.devices)?;
    (policy.driver_limits != DriverLimits::Off).then(|| {
        format!(
            "{}: nvidia-cdi-hook runs after gpuslice-hook and raises the driver's limit to {limit} \
             (NVIDIA_GPU_MEMORY_LIMIT), so only the library enforces the slice (use gpuslice-runtime, \
             which runs gpuslice-hook last)",
            plan.name
        )
    })
}

/// Removes the record, and the files and mounts that were made.
fn undo(places: &Places, plan: &Plan) -> anyhow::Result<()> {
    let registry = Registry::lock(places)?;
    let (records, _) = registry::survey(places)?;
    if let Some(record) = records
        .into_iter()
        .find(|record| record.slice == plan.slice)
    {
        gc::leave(&registry, record, std::slice::from_ref(&plan.container))?;
    }
    Ok(())
}

struct Run<'a> {
    plan: Plan,
    devices: &'a Devices,
    policy: &'a Policy,
    given: &'a Arguments,
    on: Outcomes,
    report: &'a mut Report,
}

impl Run<'_> {
    /// Records the container if there is room for its slice, and prepares the host. Returns whether
    /// an earlier stage has already done so.
    fn admit(&mut self, state: &State, owner: Owner, stage: Stage) -> Result<bool, Failure> {
        let on = self.on;
        let (plan, given) = (&self.plan, self.given);
        let places = &given.places;
        let registry = Registry::lock(places).map_err(|error| on.by_host(error))?;
        given.steps.reached("locked");
        let (records, collected) = gc::drop_dead(&registry).map_err(|error| on.by_host(error))?;
        let records = unsliced::forget(&registry, records, &state.id);
        self.report.lines.extend(collected.failures);
        let wanted = Wanted {
            plan,
            devices: self.devices,
            policy: self.policy,
            places,
            owner: Some(owner),
            stage,
        };
        let beside = wanted.among(&records);
        let mut record = match beside.map_err(|error| unless_host(error, on))? {
            // The hook is configured twice, or was killed and is tried again.
            Beside::Known(promised) => {
                self.plan.is_promised(promised, places);
                if !host::is_prepared(places, &self.plan.container) {
                    let made = host::prepare(&self.plan, promised, places, &given.steps);
                    let lines = made.map_err(|error| on.by_host(error))?;
                    self.report.lines.extend(lines);
                }
                return Ok(true);
            }
            Beside::Fits { record, note } => {
                self.report.lines.extend(note);
                record
            }
        };
        given.steps.reached("admitted");
        record.containers.push(Member {
            id: plan.container.clone(),
            name: plan.name.clone(),
            owner,
            bundle: state.bundle.clone(),
            drops: plan.drops.clone(),
            no_slice: None,
        });
        registry.write(&record).map_err(|error| on.by_host(error))?;
        given.steps.reached("recorded");
        let promised = record.unified();
        self.plan.is_promised(promised, places);
        match host::prepare(&self.plan, promised, places, &given.steps) {
            Ok(lines) => self.report.lines.extend(lines),
            Err(error) => {
                let left = gc::leave(
                    &registry,
                    record,
                    std::slice::from_ref(&self.plan.container),
                );
                let _ = left.map_err(|left| self.report.lines.push(format!("{left:#}")));
                return Err(on.by_host(error));
            }
        }
        given.steps.reached("prepared");
        Ok(false)
    }
}
