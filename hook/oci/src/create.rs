//! A container is created: it is given its slice, or the reason why not.
//! Touches: everything below.

use crate::arguments::Arguments;
use crate::beside::{Beside, Wanted};
use crate::devices::{self, Devices};
use crate::inject::sources::Sources;
use crate::inject::{self, Outcome, Target};
use crate::owner::Owner;
use crate::place::Places;
use crate::plan::{Decision, Given, Plan, decide};
use crate::policy::{self, NotInjectable, OnError, OnErrors, Policy};
use crate::registry::{self, Member, Registry};
use crate::spec::{self, Spec};
use crate::state::State;
use crate::{annotations, command, container, driver_limit, gc, host, page_cache};
use anyhow::{Context, anyhow, bail};

/// In whose namespaces the hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The runtime's, which are the host's: `createRuntime`, `prestart`.
    Runtime,
    /// The container's, before its root is: `createContainer`.
    Container,
}

/// Why a container does not start, or has no slice.
#[derive(Debug)]
pub enum Failure {
    /// The policy, or what others hold, does not allow it. It does not start.
    Refused(anyhow::Error),
    /// Something went wrong. The policy says what becomes of it.
    Failed(anyhow::Error, OnError),
}

/// What is to be told, one line each, of a container that starts.
pub type Lines = Vec<String>;

/// What is to be done for a container, and for whom.
struct Decided {
    plan: Plan,
    devices: Devices,
    policy: Policy,
    spec: Spec,
    /// What becomes of it when something goes wrong.
    on: OnError,
}

/// Decides; None where there is nothing to be done.
fn decided(state: &State, stage: Stage, given: &Arguments) -> Result<Option<Decided>, Failure> {
    let spec = spec::read(&state.bundle);
    let annotated = given.memory.is_some()
        || annotations::any(&state.annotations)
        || spec
            .as_ref()
            .is_ok_and(|spec| annotations::any(&spec.annotations));
    let on = |on: OnErrors| match annotated {
        true => on.annotated,
        false => on.others,
    };
    let policy = policy::read(&given.places)
        .map_err(|error| Failure::Failed(error.into(), on(OnErrors::default())))?;
    let on = on(policy.on_error);
    let failed = |error| Failure::Failed(error, on);
    let spec = spec.map_err(|error| failed(error.into()))?;
    let planned = planned(state, &spec, &policy, given, stage).map_err(|error| {
        match error.downcast_ref::<crate::plan::PlanError>() {
            Some(crate::plan::PlanError::Annotation(_)) | None => failed(error),
            // What policy does not allow it does not allow by way of an error either.
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

/// What would become of the container: its plan, None where there is nothing to be done, and what
/// would be told. Nothing is changed, and no room is taken.
///
/// # Errors
/// As [`create`], as far as that can be seen without a container.
pub fn would(
    state: &State,
    stage: Stage,
    given: &Arguments,
) -> Result<(Option<Plan>, Lines), Failure> {
    let failed = |error: anyhow::Error| Failure::Failed(error, OnError::Refuse);
    let Some(mut decided) = decided(state, stage, given)? else {
        return Ok((None, Lines::new()));
    };
    let records = registry::records(&given.places).map_err(|error| failed(error.into()))?;
    let records = gc::without_dead(&given.places, records);
    let wanted = Wanted {
        plan: &decided.plan,
        devices: &decided.devices,
        policy: &decided.policy,
        places: &given.places,
        // One that is described and not there is nobody who is there.
        owner: container::owner(state, stage).ok(),
        stage,
    };
    let mut lines = Lines::new();
    let name = &decided.plan.name;
    let promised = match wanted.among(&records).map_err(Failure::Refused)? {
        Beside::Known(promised) => {
            lines.push(format!("{name} has its slice already"));
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

/// Creates.
///
/// # Errors
/// [`Failure`] says whether the container may start all the same.
pub fn create(state: &State, stage: Stage, given: &Arguments) -> Result<Lines, Failure> {
    let Some(decided) = decided(state, stage, given)? else {
        return Ok(Lines::new());
    };
    let Decided {
        plan,
        devices,
        policy,
        spec,
        on,
    } = decided;
    let failed = |error| Failure::Failed(error, on);
    let owner = container::owner(state, stage).map_err(failed)?;
    let mut run = Run {
        plan,
        devices: &devices,
        policy: &policy,
        given,
        lines: Lines::new(),
    };
    if stage == Stage::Container {
        container::is_in_one().map_err(|error| Failure::Failed(error, OnError::Refuse))?;
    }
    let known = run.admit(state, owner, stage)?;
    // An earlier stage has done what can be done for this image. Here the host's own mounts, the
    // ledger's among them, may not be seen.
    if known && stage == Stage::Container {
        return Ok(run.lines);
    }
    if !known && stage == Stage::Runtime {
        let budgets = &run.plan.devices;
        let said = driver_limit::set(state.pid, budgets, run.devices, &policy, &given.places);
        run.lines.extend(said);
    }
    if let (false, Some(note)) = (known, &run.plan.note) {
        run.lines.push(format!("{}: {note}", run.plan.name));
    }
    match run.inject(state, &spec, stage) {
        Ok(()) => Ok(run.lines),
        Err(error) => {
            if let Err(left) = undo(&given.places, &run.plan) {
                run.lines.push(format!("{left:#}"));
            }
            Err(match error {
                Failure::Failed(error, _) => failed(error),
                refused @ Failure::Refused(_) => refused,
            })
        }
    }
}

/// The plan, if there is anything to be done, and the GPUs that it was made for.
///
/// # Errors
/// When the container cannot have what it asks for.
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
    let devices = match devices::read(&given.places)? {
        Some(devices) => devices,
        None => {
            // Most containers need none: they are not made to wait for the driver.
            let nobody = policy.default.is_none()
                && matches!(wanted(&Devices::none()), Ok(Decision::Nothing(_)));
            if nobody {
                return Ok(None);
            }
            if stage == Stage::Container || given.dry_run {
                bail!("there is no list of GPUs (gpuslice devices --write makes it)");
            }
            command::list_devices(&given.places, policy)?;
            let made = devices::read(&given.places)?;
            made.context("gpuslice devices --write has made no list of GPUs")?
        }
    };
    match wanted(&devices)? {
        Decision::Nothing(_) => Ok(None),
        Decision::Slice(plan) => Ok(Some((*plan, devices))),
    }
}

/// Takes back what was recorded and made.
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
    lines: Lines,
}

impl Run<'_> {
    /// Records the container, if there is room for its slice, and makes what it needs. Whether an
    /// earlier stage has done so is returned.
    fn admit(&mut self, state: &State, owner: Owner, stage: Stage) -> Result<bool, Failure> {
        let failed = |error: anyhow::Error| Failure::Failed(error, OnError::Refuse);
        let (plan, given) = (&self.plan, self.given);
        let places = &given.places;
        let registry = Registry::lock(places).map_err(|error| failed(error.into()))?;
        given.steps.reached("locked");
        let (records, collected) =
            gc::drop_dead(&registry).map_err(|error| failed(error.into()))?;
        self.lines.extend(collected.failures);
        let wanted = Wanted {
            plan,
            devices: self.devices,
            policy: self.policy,
            places,
            owner: Some(owner),
            stage,
        };
        let mut record = match wanted.among(&records).map_err(Failure::Refused)? {
            // The hook is configured twice, or was killed and is tried again.
            Beside::Known(promised) => {
                self.plan.is_promised(promised, places);
                if !host::is_prepared(places, &self.plan.container) {
                    let made = host::prepare(&self.plan, promised, places, &given.steps);
                    self.lines
                        .extend(made.map_err(|error| failed(error.into()))?);
                }
                return Ok(true);
            }
            Beside::Fits { record, note } => {
                self.lines.extend(note);
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
        });
        registry
            .write(&record)
            .map_err(|error| failed(error.into()))?;
        given.steps.reached("recorded");
        let promised = record.unified();
        self.plan.is_promised(promised, places);
        match host::prepare(&self.plan, promised, places, &given.steps) {
            Ok(lines) => self.lines.extend(lines),
            Err(error) => {
                let left = gc::leave(
                    &registry,
                    record,
                    std::slice::from_ref(&self.plan.container),
                );
                let _ = left.map_err(|left| self.lines.push(format!("{left:#}")));
                return Err(failed(error.into()));
            }
        }
        given.steps.reached("prepared");
        Ok(false)
    }

    fn inject(&mut self, state: &State, spec: &Spec, stage: Stage) -> Result<(), Failure> {
        let failed = |error: anyhow::Error| Failure::Failed(error, OnError::Refuse);
        for folder in &self.plan.drops {
            if let Err(error) = page_cache::drop_folder(folder) {
                let path = folder.display();
                self.lines
                    .push(format!("cannot drop the pages of {path}: {error}"));
            }
        }
        let home = container::own_namespace().map_err(failed)?;
        let (namespace, mapped) = match stage {
            Stage::Container => (None, None),
            Stage::Runtime => (
                Some(container::namespace(state.pid, &home).map_err(failed)?),
                // Where it has the runtime's user namespace, root is root.
                match spec.has_user_namespace() {
                    true => container::mapped_root(state.pid).map_err(failed)?,
                    false => None,
                },
            ),
        };
        let sources = Sources::take(&self.plan, &self.given.places);
        let sources = sources.map_err(|error| failed(error.into()))?;
        let rootfs = spec.rootfs(&state.bundle);
        let text = self.plan.files.first().map_or("", |file| &file.text);
        let target = Target {
            namespace,
            rootfs: &rootfs,
            mapped,
            program: spec
                .process
                .as_ref()
                .and_then(|process| process.args.first())
                .map(String::as_str),
            hosts_dev: container::hosts_dev().map_err(failed)?,
            slice: text,
        };
        let outcome = inject::inject(sources, &target, &self.given.steps);
        if stage == Stage::Runtime {
            // What was made on the host is undone on the host.
            let back = nix::sched::setns(&home, nix::sched::CloneFlags::CLONE_NEWNS);
            back.map_err(|error| failed(error.into()))?;
        }
        match outcome.map_err(|error| failed(error.into()))? {
            Outcome::Injected | Outcome::Already => Ok(()),
            Outcome::Unreached => {
                let name = &self.plan.name;
                self.lines.push(format!(
                    "{name}: its first program is static, so its slice holds only for the dynamic \
                     programs that it starts"
                ));
                Ok(())
            }
            Outcome::Unsuited(why) => match self.policy.when_not_injectable {
                NotInjectable::Refuse => Err(Failure::Refused(anyhow!(
                    "this host's policy starts no container that no slice can be put into: {why}"
                ))),
                NotInjectable::Warn => {
                    let name = &self.plan.name;
                    let line = format!("{name} starts without a slice: {why}");
                    self.lines.push(line);
                    Ok(())
                }
            },
        }
    }
}
