//! Has the driver enforce the limit of a container, where it can.
//! Touches: the driver, through `apply::driver_limit`; the container's slice file on the host.
//! Law: the slice file names the driver only after the driver has set the limit. Until then, where
//! NVIDIA's toolkit raises it again, and where containers share it, the library holds the slice.

use super::Run;
use crate::apply::driver_limit::{self, Held};
use crate::base::outcome::StageFailure;
use crate::plan::{ContainerPlan, PlanError};
use crate::request::spec::Spec;
use crate::request::state::State;
use crate::request::toolkit_limit;
use anyhow::Context;
use gpuslice_config::slice::{self, DriverLimit, Fence};
use gpuslice_host::base::{read, sys};
use nix::fcntl::OFlag;
use std::fs;
use std::io::Write;

impl Run<'_> {
    /// Has the driver enforce the limit. `known`: an earlier hook has done so.
    pub(super) fn raise_fence(
        &mut self,
        state: &State,
        spec: &Spec,
        known: bool,
    ) -> Result<(), StageFailure> {
        if self.plan.fence == Fence::Preload {
            return Ok(());
        }
        if known {
            self.keep_fence();
            return Ok(());
        }
        let given = self.given;
        let held = driver_limit::set(
            state.pid,
            &self.limits,
            self.devices,
            self.policy,
            &given.paths,
        );
        let raised = raised(&self.plan, spec);
        if self.plan.fence == Fence::Driver {
            self.is_held(&held, raised.as_deref())?;
        }
        let is_raised = raised.is_some();
        self.report.lines.extend(held.lines);
        self.report.logged.extend(raised);
        if let (Some(cgroup), false) = (held.cgroup, is_raised) {
            let by = self.devices.driver_limit.unwrap_or(DriverLimit::Misc);
            self.plan.is_limited_by_driver(&cgroup, &held.devices, by);
            let written = self.rewrite_slice();
            written.map_err(|error| self.on.by_host(error))?;
        }
        Ok(())
    }

    /// Checks that the driver enforces the limit of every GPU.
    fn is_held(&self, held: &Held, raised: Option<&str>) -> Result<(), StageFailure> {
        let mut budgets = self.plan.devices.iter();
        let missing = budgets.any(|budget| !held.devices.contains(&budget.uuid));
        let why = raised.map(str::to_owned).or_else(|| {
            let why = held.lines.join("; ");
            missing.then_some(why)
        });
        match why {
            None => Ok(()),
            Some(why) => Err(StageFailure::Refused(PlanError::Fence(why).into())),
        }
    }

    /// Keeps what the slice file says about the driver's limits, in case it is written again.
    fn keep_fence(&mut self) {
        let Some(file) = self.plan.files.first() else {
            return;
        };
        let text = read::file(&file.path, slice::MAX_FILE);
        if let Some(recorded) = text.ok().and_then(|text| slice::parse(&text).ok()) {
            self.plan.keeps_driver_limits(&recorded);
        }
    }

    /// Writes the slice file again, as a whole.
    fn rewrite_slice(&self) -> anyhow::Result<()> {
        let Some(file) = self.plan.files.first() else {
            return Ok(());
        };
        let new = file.path.with_extension("new");
        let flags = OFlag::O_WRONLY | OFlag::O_TRUNC;
        let written = sys::make(&new, flags, 0o444)
            .and_then(|mut made| made.write_all(file.text.as_bytes()))
            .and_then(|()| fs::rename(&new, &file.path));
        written.with_context(|| format!("cannot write {}", file.path.display()))
    }
}

/// The message for a limit of the driver that NVIDIA's toolkit replaces by a higher one.
fn raised(plan: &ContainerPlan, spec: &Spec) -> Option<String> {
    let limit = toolkit_limit::raised(spec, &plan.devices)?;
    Some(format!(
        "{}: nvidia-cdi-hook runs after gpuslice-hook and raises the driver's limit to {limit} \
         (NVIDIA_GPU_MEMORY_LIMIT), so only the library enforces the slice (use gpuslice-runtime, \
         which runs gpuslice-hook last)",
        plan.name
    ))
}
