//! Injects a container's slice, or the reason why it starts without one.
//! Touches: the container's mount namespace, through `inject`; the container's record.

use super::Run;
use crate::apply::{container, page, page_cache};
use crate::base::outcome::{Stage, StageFailure};
use crate::inject::reason::{self, Reason};
use crate::inject::sources::Sources;
use crate::inject::{self, InjectError, Injection, Outcome};
use crate::request::spec::Spec;
use crate::request::state::State;
use anyhow::anyhow;
use gpuslice_host::base::library::{RELEASE, Statement};
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::machine::policy::NotInjectable;
use gpuslice_host::slices::ended;
use gpuslice_host::slices::records::{self, Member, Registry};
use std::fs::File;

/// Returns a field of a container's record.
type Field = fn(&mut Member) -> &mut Option<String>;

impl Run<'_> {
    /// Makes the slice's meminfo page. Without it, the library still shows the slice.
    pub(super) fn make_page(&mut self) {
        if !page::is_planned(&self.plan) {
            return;
        }
        if let Err(error) = page::make(&self.plan, &self.given.paths) {
            page::leave_out(&mut self.plan);
            self.report.logged.push(format!(
                "{}: /proc/meminfo shows the slice only to programs that load the library: {error:#}",
                self.plan.name
            ));
        }
    }

    pub(super) fn inject(
        &mut self,
        state: &State,
        spec: &Spec,
        stage: Stage,
    ) -> Result<(), StageFailure> {
        let on = self.on;
        let container = |error| on.by_container(error);
        let lines = page_cache::drop_folders(&self.plan.drops);
        self.report.lines.extend(lines);
        let home = container::own_namespace().map_err(|error| on.by_host(error))?;
        let (namespace, mapped) = match stage {
            Stage::Container => (None, None),
            Stage::Runtime => (
                Some(container::namespace(state.pid, &home).map_err(container)?),
                // Without a user namespace of its own, the container's root is the host's root.
                match spec.has_user_namespace() {
                    true => container::mapped_root(state.pid).map_err(container)?,
                    false => None,
                },
            ),
        };
        let sources = Sources::take(&self.plan, &self.given.paths);
        let sources = sources.map_err(|error| on.by_host(error))?;
        let rootfs = spec.rootfs(&state.bundle);
        let text = self.plan.files.first().map(|file| file.text.clone());
        let text = text.unwrap_or_default();
        self.check_library(&sources.library, &text)?;
        let target = Injection {
            namespace,
            rootfs: &rootfs,
            mapped,
            program: spec
                .process
                .as_ref()
                .and_then(|process| process.args.first())
                .map(String::as_str),
            hosts_dev: container::hosts_dev().map_err(|error| on.by_host(error))?,
            slice: &text,
            mounts: &spec.mounts,
            masked: spec.masked_paths(),
        };
        let outcome = inject::inject(sources, &target, &self.given.crash_points);
        go_home(&home, stage).map_err(|error| on.by_host(error))?;
        let outcome = outcome.map_err(|error| match error {
            InjectError::Library => on.by_host(error),
            // Whatever `on-error` says: the container would run without one of its volumes.
            InjectError::Displaced => StageFailure::Refused(error.into()),
            _ => on.by_container(error),
        });
        match outcome? {
            Outcome::Injected | Outcome::Already => Ok(()),
            Outcome::Unreached(why) => {
                self.is_limited_in_part(why);
                let root = self.given.paths.container_root(&self.plan.container);
                self.reason_is_in(reason::write(&root, why).map_err(Into::into));
                Ok(())
            }
            // It needs no library.
            Outcome::Unsuited(_) if self.plan.has_no_gpu => Ok(()),
            Outcome::Unsuited(why) => match self.policy.when_not_injectable {
                NotInjectable::Refuse => Err(StageFailure::Refused(anyhow!(
                    "this host's policy refuses containers that cannot load libgpuslice.so: {why}"
                ))),
                NotInjectable::Warn => {
                    let why = why.to_string();
                    let message = format!("starts without a slice: {why}");
                    self.runs_without(state, message, &why);
                    let folder = self.given.paths.container_reason(&self.plan.container);
                    let mounted = Reason::write(&folder, &why)
                        .map_err(Into::into)
                        .and_then(|reason| Ok(reason.mount(&target)?));
                    self.reason_is_in(mounted);
                    go_home(&home, stage).map_err(|error| on.by_host(error))
                }
            },
        }
    }

    /// Checks that the library, which may be of another release, understands the slice.
    fn check_library(&mut self, library: &File, slice: &str) -> Result<(), StageFailure> {
        let stated = Statement::of(library);
        let understood = stated.and_then(|stated| stated.understands(slice).map(|()| stated));
        let stated = understood.map_err(|misfit| {
            let error = anyhow!("libgpuslice.so {misfit}");
            self.on.by_host(error)
        })?;
        if let Some(release) = stated.other_release() {
            let line =
                format!("libgpuslice.so is from gpuslice {release}, this hook from {RELEASE}");
            self.report.logged.push(line);
        }
        Ok(())
    }

    /// Reports a container that runs without its slice, and keeps the reason in its record.
    fn runs_without(&mut self, state: &State, message: String, why: &str) {
        let event = self.event(EventKind::Escape, state, message);
        self.report.events.push(event);
        self.keep(why, |member| &mut member.no_slice);
    }

    /// Reports a container of which the slice does not limit all programs.
    fn is_limited_in_part(&mut self, why: &str) {
        let line = format!("{} starts, but {why}", self.plan.name);
        self.report.logged.push(line);
        self.keep(why, |member| &mut member.not_limited);
    }

    /// A container whose own `gpuslice check` cannot know the reason starts all the same.
    fn reason_is_in(&mut self, done: anyhow::Result<()>) {
        if let Err(error) = done {
            let name = &self.plan.name;
            let line =
                format!("{name}: gpuslice check in the container cannot know why: {error:#}");
            self.report.lines.push(line);
        }
    }

    /// An event of the container, with the limits of its slice.
    pub(super) fn event(&self, kind: EventKind, state: &State, message: String) -> Event {
        let plan = &self.plan;
        let event = Event {
            pid: (state.pid > 0).then_some(state.pid),
            container: Some(plan.container.clone()),
            pod: plan.pod.clone(),
            ..Event::now(kind, &plan.name, message)
        };
        event.with_devices(plan.devices.iter().map(ended::limited).collect())
    }

    /// Writes a reason into the container's record, at one of its fields.
    fn keep(&mut self, why: &str, field: Field) {
        if let Err(error) = self.write(why, field) {
            self.report.lines.push(format!("{error:#}"));
        }
    }

    fn write(&self, why: &str, field: Field) -> anyhow::Result<()> {
        let registry = Registry::lock(&self.given.paths)?;
        let (records, _) = records::survey(&self.given.paths)?;
        let own = records
            .into_iter()
            .find(|record| record.slice == self.plan.slice);
        let Some(mut record) = own else { return Ok(()) };
        let mut members = record.containers.iter_mut();
        if let Some(member) = members.find(|member| member.id == self.plan.container) {
            *field(member) = Some(why.to_owned());
            registry.write(&record)?;
        }
        Ok(())
    }
}

/// Returns to the host's mount namespace, because files made on the host must be removed there.
fn go_home(home: &File, stage: Stage) -> nix::Result<()> {
    match stage {
        Stage::Runtime => nix::sched::setns(home, nix::sched::CloneFlags::CLONE_NEWNS),
        Stage::Container => Ok(()),
    }
}
