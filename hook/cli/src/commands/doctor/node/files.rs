//! Checks the files of the host: the policy, the list of GPUs, the records of containers.
//! Touches: these files, by reading them; the driver, in a child.

use super::{has_hook, is_here};
use crate::commands::devices::stale;
use crate::commands::doctor::checks::Gpus;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::driver::sim;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::devices;
use gpuslice_host::machine::policy::{self, OnError};
use gpuslice_host::slices::records::{self, RegistryError};
use std::io::ErrorKind;

/// Adds the findings about the host's files.
pub(super) fn check(places: &HostPaths, gpus: &Gpus, found: &mut Vec<Finding>) {
    found.extend(policy(places));
    found.extend(records(places));
    found.extend(list(places));
    // The driver of a machine below another root cannot be queried from here.
    if is_here(places)
        && let Err(why) = gpus.here()
    {
        found.push(Finding::new(Code::NoDriver, why));
    }
}

fn policy(places: &HostPaths) -> Option<Finding> {
    match policy::read(places) {
        Ok(policy) => (policy.on_error.annotated == OnError::Start).then(|| {
            let sentence = format!(
                "{} says [on-error] annotated = \"start\": a container whose slice fails starts \
                 without a limit",
                places.policy().display()
            );
            Finding::new(Code::OnErrorStart, sentence)
        }),
        Err(error) => {
            let sentence = format!("{:#}", anyhow::Error::new(error));
            Some(Finding::new(Code::PolicyInvalid, sentence))
        }
    }
}

fn records(places: &HostPaths) -> Option<Finding> {
    let damaged = match records::survey(places) {
        Ok((_, damaged)) => damaged.into_iter().next().map(|it| it.to_string()),
        Err(RegistryError::File { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            None
        }
        Err(error) => Some(format!("{:#}", anyhow::Error::new(error))),
    };
    damaged.map(|damaged| {
        let sentence = format!("{damaged}: no container is admitted meanwhile");
        Finding::new(Code::RecordsDamaged, sentence)
    })
}

fn list(places: &HostPaths) -> Option<Finding> {
    match devices::read(places) {
        Ok(None) => has_hook(places).then(|| {
            let sentence = format!(
                "{} does not exist: the first container waits until the hook has made it",
                places.devices().display()
            );
            Finding::new(Code::DevicesMissing, sentence)
        }),
        // A user may not read root's list, which is no fault of the host.
        Err(devices::DevicesError::Read { source, .. })
            if source.kind() == ErrorKind::PermissionDenied =>
        {
            None
        }
        Err(error) => {
            let sentence = format!("{:#}", anyhow::Error::new(error));
            Some(Finding::new(Code::DevicesInvalid, sentence))
        }
        Ok(Some(_)) if is_here(places) && sim::of_environment().is_some() => None,
        Ok(Some(_)) => {
            let sentence = stale::of(&places.devices())?;
            Some(Finding::new(Code::DevicesStale, sentence))
        }
    }
}
