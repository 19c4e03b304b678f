//! Admits and records a container, and prepares the host for it. The container is not changed.
//! Touches: what [`super::create`] touches on the host.

use super::Run;
use super::decision::{Decided, decide};
use crate::base::outcome::{Messages, Report, Stage, StageFailure};
use crate::request::arguments::Arguments;
use crate::request::state::State;
use gpuslice_host::machine::process::InitProcess;

/// Does the host's part of [`super::create`] for a container whose first process is `owner`.
///
/// # Errors
/// As [`super::create`].
pub(crate) fn admit(
    state: &State,
    given: &Arguments,
    owner: InitProcess,
) -> Result<(), StageFailure> {
    let Some(decided) = decide(state, Stage::Runtime, given, &mut Messages::new())? else {
        return Ok(());
    };
    let Decided {
        plan,
        devices,
        policy,
        on,
        ..
    } = decided;
    let mut run = Run {
        limits: plan.devices.clone(),
        plan,
        devices: &devices,
        policy: &policy,
        given,
        on,
        report: &mut Report::default(),
    };
    run.admit(state, owner, Stage::Runtime).map(drop)
}
