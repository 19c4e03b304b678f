//! Translates host events into notices for pods.
//! Touches: its arguments.
//! Law: an invalid Kubernetes name is never part of a request.

use crate::base::names::{self, Uid};
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::machine::pod::Pod;
use gpuslice_host::slices::records::SliceRecord;

/// The most bytes of a message, as for events of the kubelet.
const LONGEST: usize = 1024;

/// A notice for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The pod.
    pub pod: Pod,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
    /// The time, as the event has it.
    pub time: String,
}

/// The container was not started.
pub const REFUSED: &str = "SliceRefused";
/// The container runs, and its limit is not in force.
pub const NO_SLICE: &str = "NoSlice";
/// A process holds memory that its slice does not count.
pub const ESCAPED: &str = "SliceEscaped";
/// A part of what the pod asks for has no effect.
pub const NOT_HONOURED: &str = "NotHonoured";
/// The guard sent a signal.
pub const ACTED: &str = "GuardActed";
/// The guard would have sent a signal, and only warns.
pub const WARNED: &str = "GuardWarned";

/// The notices of an event: one for each pod of the slice. None for runs, for events of the host
/// itself, and for what pods' own status shows.
#[must_use]
pub fn of(event: &Event, records: &[SliceRecord]) -> Vec<Notice> {
    let Some((reason, message)) = sentence(event) else {
        return Vec::new();
    };
    let pods = pods(event, records).into_iter();
    let named = pods.filter(is_named).map(|pod| {
        let subject = match (reason, pod.container.as_str()) {
            (REFUSED | NO_SLICE | NOT_HONOURED, "") => "a container ".to_owned(),
            (REFUSED | NO_SLICE | NOT_HONOURED, name) => format!("container {name} "),
            (ACTED | WARNED, _) => "the guard ".to_owned(),
            _ => String::new(),
        };
        let mut message = format!("{subject}{message}");
        message.truncate(message.floor_char_boundary(LONGEST));
        Notice {
            pod,
            reason,
            message,
            time: event.time.clone(),
        }
    });
    named.collect()
}

/// The reason and the sentence. Its subject is added by [`of`], but for processes.
fn sentence(event: &Event) -> Option<(&'static str, String)> {
    let message = event.message.clone();
    match event.event {
        EventKind::AdmissionRefusal => Some((REFUSED, message)),
        // The guard names a process and a device; the hook names neither.
        EventKind::Escape if event.device.is_some() && event.bytes.is_some() => {
            Some((ESCAPED, message))
        }
        EventKind::Escape => Some((NO_SLICE, message)),
        EventKind::Guard if event.warned => Some((WARNED, message)),
        EventKind::Guard => Some((ACTED, message)),
        EventKind::Start if !event.unhonoured.is_empty() => {
            let parts = event.unhonoured.join("; ");
            Some((NOT_HONOURED, format!("has a slice, but {parts}")))
        }
        _ => None,
    }
}

/// The pods of an event. The guard writes an empty pod for a slice that pods share, and an event of
/// an earlier version has none; the record then knows the pods of the slice's containers. Two slices
/// can have the same display name, so it counts only where the event says that pods share the slice.
fn pods(event: &Event, records: &[SliceRecord]) -> Vec<Pod> {
    if let Some(pod) = event.pod.as_ref().filter(|pod| !pod.name.is_empty()) {
        return vec![pod.clone()];
    }
    let by_name = event.container.is_none() && event.pod.is_some() && !event.slice.is_empty();
    let members = records.iter().flat_map(|record| {
        let is_its = by_name && record.name == event.slice;
        let members = record.containers.iter();
        members.filter(move |member| {
            is_its
                || event.container.as_ref() == Some(&member.id)
                || (by_name && member.name == event.slice)
        })
    });
    let mut pods: Vec<Pod> = Vec::new();
    for pod in members.filter_map(|member| member.pod.clone()) {
        let is_known = |known: &Pod| (&known.uid, &known.name) == (&pod.uid, &pod.name);
        if !pods.iter().any(is_known) {
            pods.push(pod);
        }
    }
    pods
}

/// Whether the API server can have a pod of this name.
fn is_named(pod: &Pod) -> bool {
    names::subdomain("namespace", &pod.namespace).is_ok()
        && names::subdomain("pod", &pod.name).is_ok()
        && (pod.container.is_empty() || names::subdomain("container", &pod.container).is_ok())
}

/// The uid of a pod, if the API server has it. That of a static pod is another one there.
#[must_use]
pub fn uid(pod: &Pod) -> Option<&str> {
    pod.uid.parse::<Uid>().is_ok().then_some(pod.uid.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_host::machine::process::InitProcess;
    use gpuslice_host::slices::records::Member;

    fn pod(name: &str) -> Pod {
        Pod {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            uid: String::new(),
            container: "c".to_owned(),
        }
    }

    fn event(kind: EventKind, message: &str) -> Event {
        Event {
            container: Some("abc".to_owned()),
            pod: Some(pod("web")),
            ..Event::now(kind, "team/web/c", message.to_owned())
        }
    }

    fn read(event: &Event) -> Vec<(&'static str, String)> {
        let notices = of(event, &[]).into_iter();
        notices.map(|one| (one.reason, one.message)).collect()
    }

    #[test]
    fn each_kind_of_event_has_its_reason_and_a_sentence_about_the_container() {
        let refused = event(EventKind::AdmissionRefusal, "is refused: no room");
        assert_eq!(
            read(&refused),
            [(REFUSED, "container c is refused: no room".to_owned())]
        );
        let escape = event(EventKind::Escape, "starts without a slice: musl");
        let expected = "container c starts without a slice: musl".to_owned();
        assert_eq!(read(&escape), [(NO_SLICE, expected)]);
        let guard = Event {
            device: Some("GPU-1".to_owned()),
            bytes: Some(1),
            ..event(EventKind::Escape, "process x holds 3.25 GiB")
        };
        assert_eq!(
            read(&guard),
            [(ESCAPED, "process x holds 3.25 GiB".to_owned())]
        );
        let acts = event(EventKind::Guard, "sends SIGTERM to slice x");
        let expected = "the guard sends SIGTERM to slice x".to_owned();
        assert_eq!(read(&acts), [(ACTED, expected)]);
        let warns = Event {
            warned: true,
            ..event(EventKind::Guard, "would send SIGTERM to slice x")
        };
        let expected = "the guard would send SIGTERM to slice x".to_owned();
        assert_eq!(read(&warns), [(WARNED, expected)]);
        let start = event(EventKind::Start, "started; mps true is not honoured");
        assert!(read(&start).is_empty());
        let start = Event {
            unhonoured: vec!["mps true is not honoured".to_owned(), "b".to_owned()],
            ..start
        };
        let expected = "container c has a slice, but mps true is not honoured; b".to_owned();
        assert_eq!(read(&start), [(NOT_HONOURED, expected)]);
        for kind in [EventKind::End, EventKind::Resize, EventKind::Unknown] {
            assert!(read(&event(kind, "x")).is_empty());
        }
    }

    #[test]
    fn a_name_that_is_no_name_gets_no_notice() {
        for (namespace, name, container) in [
            ("../x", "web", "c"),
            ("team", "web/../x", "c"),
            ("team", "web", "c?x"),
            ("", "web", "c"),
        ] {
            let bad = Event {
                pod: Some(Pod {
                    namespace: namespace.to_owned(),
                    container: container.to_owned(),
                    ..pod(name)
                }),
                ..event(EventKind::AdmissionRefusal, "is refused")
            };
            assert!(read(&bad).is_empty(), "{bad:?}");
        }
        let run = Event::now(EventKind::AdmissionRefusal, "chat", "x".to_owned());
        assert!(read(&run).is_empty());
    }

    #[test]
    fn the_pods_of_a_shared_slice_each_get_a_notice() {
        let member = |id: &str, name: &str| Member {
            id: id.to_owned(),
            name: format!("team/{name}/c"),
            owner: InitProcess {
                pid: 1,
                start_time: 1,
                pid_namespace: 0,
                boot: 0,
            },
            bundle: "/b".into(),
            drops: Vec::new(),
            no_slice: None,
            not_limited: None,
            claims: None,
            pod: Some(pod(name)),
        };
        let record = SliceRecord {
            version: SliceRecord::VERSION,
            slice: "named-1".to_owned(),
            name: "team/one/c".to_owned(),
            namespace: None,
            shared: true,
            sandbox: None,
            named: Some("uid-share".to_owned()),
            devices: Vec::new(),
            promised: None,
            before_resize: None,
            containers: vec![member("a", "one"), member("b", "two"), member("c", "two")],
        };
        let guard = Event {
            container: None,
            pod: Some(Pod::default()),
            device: Some("GPU-1".to_owned()),
            bytes: Some(1),
            ..event(EventKind::Escape, "process x")
        };
        let guard = Event {
            slice: "team/one/c".to_owned(),
            ..guard
        };
        let notices = of(&guard, std::slice::from_ref(&record));
        let names: Vec<&str> = notices.iter().map(|one| one.pod.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        // A run can have any name.
        let run = Event {
            pod: None,
            ..guard.clone()
        };
        assert!(of(&run, std::slice::from_ref(&record)).is_empty());
        let old = Event {
            container: Some("b".to_owned()),
            pod: None,
            ..event(EventKind::Escape, "starts without a slice")
        };
        let notices = of(&old, &[record]);
        assert_eq!(notices.len(), 1);
        assert_eq!(notices[0].pod.name, "two");
    }
}
