//! Creates a container's slice, or reports why it has none.
//! Touches: everything below.

mod decision;
mod fence;
mod injection;

pub(crate) mod recorded;
pub(crate) mod unsliced;

use self::decision::{Decided, Outcomes, decide};
use crate::apply::{container, host_dirs};
use crate::base::outcome::{Messages, Report, Stage, StageFailure};
use crate::plan::neighbours::{Admission, Candidate, HostUnread};
use crate::plan::{ContainerPlan, PlanError};
use crate::request::arguments::Arguments;
use crate::request::state::State;
use gpuslice_config::slice::Fence;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::base::selinux;
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::machine::devices::Devices;
use gpuslice_host::machine::policy::Policy;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::gc;
use gpuslice_host::slices::host_state;
use gpuslice_host::slices::liveness::Leaving;
use gpuslice_host::slices::records::{self, DeviceBudget, Member, Registry};

/// The plan that a container would get, and the messages that would be reported. The plan is `None`
/// where there is nothing to be done. Nothing is changed, and no memory is reserved.
///
/// # Errors
/// Those of [`create`], as far as they can occur without a container.
pub(crate) fn dry_run(
    state: &State,
    stage: Stage,
    given: &Arguments,
) -> Result<(Option<ContainerPlan>, Messages), StageFailure> {
    let mut lines = Messages::new();
    let Some(mut decided) = decide(state, stage, given, &mut lines)? else {
        return Ok((None, lines));
    };
    let on = decided.on;
    let records = records::records(&given.paths).map_err(|error| on.by_host(error))?;
    let records = gc::without_dead(&given.paths, records);
    let records = unsliced::without(&given.paths, records, &state.id);
    let candidate = Candidate {
        plan: &decided.plan,
        devices: &decided.devices,
        policy: &decided.policy,
        paths: &given.paths,
        // A dry run may describe a container that does not exist. Then it has no owner.
        owner: container::owner(state, stage).ok(),
        stage,
    };
    let name = &decided.plan.name;
    let admission = candidate.admit_beside(&records);
    let promised = match admission.map_err(|error| unless_host(error, on))? {
        Admission::Existing(promised) => {
            lines.push(format!("{name} already has its slice"));
            promised
        }
        Admission::New { record, note } => {
            lines.extend(note);
            let note = decided.plan.note.as_ref();
            let unheld = decided.plan.unheld.iter();
            lines.extend(
                note.into_iter()
                    .chain(unheld)
                    .map(|note| format!("{name}: {note}")),
            );
            record.unified()
        }
    };
    decided.plan.is_promised(promised, &given.paths);
    Ok((Some(decided.plan), lines))
}

/// A refusal because of other slices, or a failure to read them.
fn unless_host(error: anyhow::Error, on: Outcomes) -> StageFailure {
    match error.is::<HostUnread>() {
        true => on.by_host(error),
        false => StageFailure::Refused(error),
    }
}

/// Creates the slice of a container.
///
/// # Errors
/// [`StageFailure`] says whether the container may start all the same.
pub(crate) fn create(
    state: &State,
    stage: Stage,
    given: &Arguments,
    report: &mut Report,
) -> Result<(), StageFailure> {
    let Some(decided) = decide(state, stage, given, &mut report.logged)? else {
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
        limits: plan.devices.clone(),
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
    let labelled = selinux::label_new_files(&given.paths);
    if let Err(error) = &labelled {
        let line = format!("SELinux may hide the slice: its files cannot be labelled: {error}");
        run.report.logged.push(line);
    }
    let known = run.admit(state, owner, stage)?;
    // An earlier stage has done what can be done for this image. In this namespace the host's own
    // mounts, including the ledger's, may be invisible.
    if known && stage == Stage::Container {
        return Ok(());
    }
    if stage == Stage::Container && run.plan.fence == Fence::Driver {
        run.undo();
        let why = "at createContainer the hook cannot ask the driver (run it at createRuntime)";
        let error = PlanError::Fence(why.to_owned());
        return Err(StageFailure::Refused(error.into()));
    }
    run.make_page();
    if stage == Stage::Runtime {
        let held = run.raise_fence(state, &spec, known);
        held.map_err(|failure| run.undone(failure, known))?;
    }
    if let (false, Some(note)) = (known, &run.plan.note) {
        // A runtime shows what a hook prints only if the hook fails.
        let line = format!("{}: {note}", run.plan.name);
        run.report.logged.push(line);
    }
    if !known {
        let line = |unheld| format!("{}: {unheld}", run.plan.name);
        run.report.logged.extend(run.plan.unheld.iter().map(line));
    }
    match run.inject(state, &spec, stage) {
        Ok(()) => {
            if !known && run.report.events.is_empty() {
                let started = run.event(EventKind::Start, state, run.plan.started());
                run.report.events.push(Event {
                    unhonoured: run.plan.unheld.clone(),
                    ..started
                });
            }
            Ok(())
        }
        Err(failure) => Err(run.undone(failure, known)),
    }
}

/// Removes the record, and the files and mounts that were made.
fn undo(paths: &HostPaths, plan: &ContainerPlan) -> anyhow::Result<()> {
    let registry = Registry::lock(paths)?;
    let (records, _) = records::survey(paths)?;
    if let Some(record) = records
        .into_iter()
        .find(|record| record.slice == plan.slice)
    {
        let own = std::slice::from_ref(&plan.container);
        gc::leave(&registry, record, own, Leaving::NotMade)?;
    }
    Ok(())
}

struct Run<'a> {
    plan: ContainerPlan,
    /// The limits in force: the plan's, unless the slice that the container joins was resized.
    limits: Vec<DeviceBudget>,
    devices: &'a Devices,
    policy: &'a Policy,
    given: &'a Arguments,
    on: Outcomes,
    report: &'a mut Report,
}

impl Run<'_> {
    /// Undoes what this hook has done. What an earlier hook has put into the container stays, and the
    /// container does not start: without its files on the host, it would break.
    fn undone(&mut self, failure: StageFailure, known: bool) -> StageFailure {
        match failure {
            StageFailure::Failed(error, _) if known => StageFailure::Refused(error),
            failure if known => failure,
            failure => {
                self.undo();
                failure
            }
        }
    }

    /// Removes the record, and what was made.
    fn undo(&mut self) {
        if let Err(left) = undo(&self.given.paths, &self.plan) {
            self.report.lines.push(format!("{left:#}"));
        }
    }

    /// Records the container if there is room for its slice, and prepares the host. Returns whether
    /// an earlier stage has already done so.
    fn admit(
        &mut self,
        state: &State,
        owner: InitProcess,
        stage: Stage,
    ) -> Result<bool, StageFailure> {
        let on = self.on;
        let (plan, given) = (&self.plan, self.given);
        let paths = &given.paths;
        let registry = Registry::lock(paths).map_err(|error| on.by_host(error))?;
        given.crash_points.reached("locked");
        let (records, collected) = gc::drop_dead(&registry).map_err(|error| on.by_host(error))?;
        let records = unsliced::forget(&registry, records, &state.id);
        self.report.lines.extend(collected.failures);
        let candidate = Candidate {
            plan,
            devices: self.devices,
            policy: self.policy,
            paths,
            owner: Some(owner),
            stage,
        };
        let admission = candidate.admit_beside(&records);
        let mut record = match admission.map_err(|error| unless_host(error, on))? {
            // The hook is configured twice, or was killed and is tried again.
            Admission::Existing(promised) => {
                self.plan.is_promised(promised, paths);
                if !host_dirs::is_prepared(paths, &self.plan.container) {
                    let made = host_dirs::prepare(&self.plan, promised, paths, &given.crash_points);
                    let lines = made.map_err(|error| on.by_host(error))?;
                    self.report.lines.extend(lines);
                }
                return Ok(true);
            }
            Admission::New { record, note } => {
                self.report.logged.extend(note);
                *record
            }
        };
        self.limits.clone_from(&record.devices);
        given.crash_points.reached("admitted");
        record.containers.push(Member {
            id: plan.container.clone(),
            name: plan.name.clone(),
            owner,
            bundle: state.bundle.clone(),
            drops: plan.drops.clone(),
            no_slice: None,
            not_limited: None,
            claims: None,
            pod: plan.pod.clone(),
        });
        let uncounted = registry.write(&record).map_err(|error| on.by_host(error))?;
        let line = uncounted.map(|why| format!("{}: {why}", plan.name));
        self.report.logged.extend(line);
        given.crash_points.reached("recorded");
        let promised = host_state::promised(paths, &record);
        self.plan.is_promised(promised, paths);
        match host_dirs::prepare(&self.plan, promised, paths, &given.crash_points) {
            Ok(lines) => self.report.logged.extend(lines),
            Err(error) => {
                let left = gc::leave(
                    &registry,
                    record,
                    std::slice::from_ref(&self.plan.container),
                    Leaving::NotMade,
                );
                let _ = left.map_err(|left| self.report.lines.push(format!("{left:#}")));
                return Err(on.by_host(error));
            }
        }
        given.crash_points.reached("prepared");
        Ok(false)
    }
}
