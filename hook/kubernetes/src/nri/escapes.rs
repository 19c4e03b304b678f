//! Finds containers that ask for a slice and run without one, because the plugin was not connected
//! when they were created.
//! Touches: the registry, by reading it.

use super::adjust::{Adjusting, both};
use super::api::{ALIVE, Container, PodSandbox};
use gpuslice_hook::request::annotations::{self, AnnotatedRequest};
use gpuslice_hook::request::dialects::{self, Given};
use gpuslice_hook::request::identity::Identity;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::slices::records;
use std::collections::BTreeSet;

/// The events of these containers.
pub(super) fn of(
    pods: &[PodSandbox],
    containers: &[Container],
    host: &Adjusting<'_>,
    paths: &HostPaths,
) -> Vec<Event> {
    // A damaged record may be of any of them.
    let Ok((records, damaged)) = records::survey(paths) else {
        return Vec::new();
    };
    if !damaged.is_empty() {
        return Vec::new();
    }
    let members = records.iter().flat_map(|record| &record.containers);
    let known: BTreeSet<&str> = members.map(|member| member.id.as_str()).collect();
    let living = containers.iter().filter(|one| ALIVE.contains(&one.state));
    let unknown = living.filter(|container| !known.contains(container.id.as_str()));
    unknown
        .filter_map(|container| {
            let pod = pods.iter().find(|pod| pod.id == container.pod_sandbox_id)?;
            asks(pod, container, host).then(|| event(pod, container))
        })
        .collect()
}

/// Whether a container asks for a slice of its own, as the hook would read it.
fn asks(pod: &PodSandbox, container: &Container, host: &Adjusting<'_>) -> bool {
    let all = both(pod, container);
    let who = Identity {
        id: container.id.clone(),
        name: Some(container.name.clone()),
        ..Identity::default()
    };
    let native = annotations::read(&all, &who);
    let foreign = dialects::read(&Given {
        dialects: host.dialects(),
        annotations: &all,
        env: &container.env,
        name: Some(&container.name),
        visible: None,
    });
    matches!(native, Ok(AnnotatedRequest::Slice(_)))
        || foreign.is_ok_and(|foreign| foreign.asked.is_some())
}

fn event(pod: &PodSandbox, container: &Container) -> Event {
    let name = format!("{}/{}/{}", pod.namespace, pod.name, container.name);
    let message = "runs without a slice: it was created while gpuslice's NRI plugin was not connected \
                   (delete the pod, or make the plugin required)";
    Event {
        container: Some(container.id.clone()),
        ..Event::now(EventKind::Escape, &name, message.to_owned())
    }
}
