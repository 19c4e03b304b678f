//! Finds containers that ask for a slice, or must have one, and run without one, because the plugin
//! was not connected when they were created.
//! Touches: the registry, by reading it; the log.

use super::adjust::{Adjusting, both, has_gpu};
use super::api::{ALIVE, Container, PodSandbox};
use crate::base::log;
use gpuslice_hook::plan::may_be_of;
use gpuslice_hook::request::annotations::{self, AnnotatedRequest};
use gpuslice_hook::request::dialects::{self, DialectError, Given};
use gpuslice_hook::request::identity::Identity;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::machine::pod::Pod;
use gpuslice_host::slices::records;
use std::collections::BTreeSet;

/// The events of these containers.
pub(super) fn of(
    pods: &[PodSandbox],
    containers: &[Container],
    host: &Adjusting<'_>,
    paths: &HostPaths,
) -> Vec<Event> {
    let (records, damaged) = match records::survey(paths) {
        Ok(found) => found,
        Err(error) => {
            log::line(&format!(
                "cannot check whether containers run without a slice: {error}"
            ));
            return Vec::new();
        }
    };
    for record in &damaged {
        log::line(&format!(
            "{record}; its containers are not checked for a missing slice"
        ));
    }
    let is_damaged = |container: &Container| {
        let mut damaged = damaged.iter();
        damaged.any(|one| may_be_of(&one.slice, &container.id, &container.pod_sandbox_id))
    };
    let members = records.iter().flat_map(|record| &record.containers);
    let known: BTreeSet<&str> = members.map(|member| member.id.as_str()).collect();
    let living = containers.iter().filter(|one| ALIVE.contains(&one.state));
    let unknown =
        living.filter(|container| !known.contains(container.id.as_str()) && !is_damaged(container));
    unknown
        .filter_map(|container| {
            let pod = pods.iter().find(|pod| pod.id == container.pod_sandbox_id)?;
            let must = host.slices_all() && !host.exempts(pod) && has_gpu(container);
            (must || asks(pod, container, host)).then(|| event(pod, container))
        })
        .collect()
}

/// Whether a container asks for a slice of its own, as the hook would read it. The hook would have
/// refused a request that cannot be read.
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
    let is_foreign = match foreign {
        Ok(foreign) => foreign.asked.is_some(),
        // A container without a GPU has no share.
        Err(DialectError::WhichShare(_)) => has_gpu(container),
        Err(_) => true,
    };
    is_foreign || matches!(native, Ok(AnnotatedRequest::Slice(_)) | Err(_))
}

fn event(pod: &PodSandbox, container: &Container) -> Event {
    let name = format!("{}/{}/{}", pod.namespace, pod.name, container.name);
    let message = "runs without a slice: it was created while gpuslice's NRI plugin was not connected \
                   (delete the pod, or make the plugin required)";
    Event {
        container: Some(container.id.clone()),
        // No record of a slice names its pod.
        pod: Some(Pod {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            container: container.name.clone(),
        }),
        ..Event::now(EventKind::Escape, &name, message.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::notices;
    use gpuslice_host::machine::policy;
    use std::path::Path;

    #[test]
    fn a_container_that_the_policy_slices_is_named_too() {
        let folder = tempfile::tempdir().unwrap();
        let paths = HostPaths::below(folder.path());
        let pods = [PodSandbox {
            id: "sandbox".to_owned(),
            name: "pod".to_owned(),
            namespace: "team".to_owned(),
            uid: "0e5c-11".to_owned(),
            ..PodSandbox::default()
        }];
        let container = |id: &str, env: &str| Container {
            id: id.to_owned(),
            pod_sandbox_id: "sandbox".to_owned(),
            name: "main".to_owned(),
            state: ALIVE[0],
            env: vec![env.to_owned()],
            ..Container::default()
        };
        let containers = [
            container("gpu", "NVIDIA_VISIBLE_DEVICES=all"),
            container("none", "A=B"),
        ];
        let named = |policy: &str| {
            let policy = policy::parse(policy).unwrap();
            let host = Adjusting {
                policy: Some(&policy),
                hook: Path::new("/usr/bin/gpuslice-hook"),
            };
            let events = of(&pods, &containers, &host, &paths);
            events
                .into_iter()
                .filter_map(|event| event.container)
                .collect::<Vec<_>>()
        };
        assert_eq!(named("[default]\nmemory = \"4GiB\""), ["gpu"]);
        // No record of a slice knows the pod, and `kubectl describe pod` shows the event.
        let notices = notices::of(&event(&pods[0], &containers[0]), &[]);
        let [notice] = notices.as_slice() else {
            panic!("{notices:?}");
        };
        assert_eq!(
            (notice.reason, &*notice.pod.name),
            (notices::NO_SLICE, "pod")
        );
        assert_eq!(notice.pod.uid, "0e5c-11");
        assert!(
            notice
                .message
                .starts_with("container main runs without a slice")
        );
        assert_eq!(named("deny-unannotated = true"), ["gpu"]);
        let exempt = "deny-unannotated = true\nexempt-namespaces = [\"team\"]";
        assert_eq!(named(exempt).len(), 0);
        assert_eq!(named("[maximum]\ncontainer = \"4GiB\"").len(), 0);
    }
}
