//! Events of pods, from the lines that the hook and the guard write on the host.

use crate::api_server::Kept;
use crate::driver::Node;
use gpuslice_host::events::store::Store;
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::machine::pod::Pod;
use serde_json::{Value, json};
use std::time::Duration;

const POD: &str = "5f8f2b6c-0a1b-4c3d-8e9f-001122334455";

/// A line about the container `c` of a pod.
fn line(kind: EventKind, pod: &str, message: &str) -> Event {
    Event {
        container: Some("abc".to_owned()),
        pod: Some(Pod {
            namespace: "team".to_owned(),
            name: pod.to_owned(),
            uid: POD.to_owned(),
            container: "c".to_owned(),
        }),
        ..Event::now(kind, &format!("team/{pod}/c"), message.to_owned())
    }
}

fn write(node: &Node, event: &Event) {
    Store::of_host(&node.host()).append(&event.line()).unwrap();
}

/// The events, by pod and reason.
fn posted(kept: &Kept) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let event = |event: &Value| {
        let pod = text(&event["involvedObject"]["name"]);
        (pod, text(&event["reason"]), text(&event["message"]))
    };
    let mut all: Vec<_> = kept.events.values().map(event).collect();
    all.sort();
    all
}

fn until(node: &Node, count: usize) -> Vec<(String, String, String)> {
    let kept = node.api.until("events", |kept| kept.events.len() >= count);
    posted(&kept)
}

/// Until the driver has read this far, and once more.
fn a_look_passes() {
    std::thread::sleep(Duration::from_millis(4500));
}

#[test]
fn a_pod_gets_an_event_for_each_refusal_and_each_missing_slice() {
    let mut node = Node::new();
    write(
        &node,
        &line(EventKind::AdmissionRefusal, "old", "is refused: no room"),
    );
    node.start();
    node.kubelet().register();
    let refused = line(
        EventKind::AdmissionRefusal,
        "one",
        "is refused: no room for team/one/c",
    );
    // One write, so that one look sees both.
    let twice = refused.line().repeat(2);
    Store::of_host(&node.host()).append(&twice).unwrap();
    let escape = line(EventKind::Escape, "two", "starts without a slice: musl");
    write(&node, &escape);
    let start = line(
        EventKind::Start,
        "three",
        "started; mps true is not honoured",
    );
    write(
        &node,
        &Event {
            unhonoured: vec!["mps true is not honoured".to_owned()],
            ..start.clone()
        },
    );
    write(&node, &start);
    write(&node, &line(EventKind::End, "four", "ended"));
    let guard = Event {
        device: Some("GPU-1".to_owned()),
        bytes: Some(1),
        ..line(EventKind::Escape, "two", "process x (pid 7) holds 3.25 GiB")
    };
    write(&node, &guard);
    let expected = [
        (
            "one",
            "SliceRefused",
            "container c is refused: no room for team/one/c",
        ),
        (
            "three",
            "NotHonoured",
            "container c has a slice, but mps true is not honoured",
        ),
        ("two", "NoSlice", "container c starts without a slice: musl"),
        ("two", "SliceEscaped", "process x (pid 7) holds 3.25 GiB"),
    ];
    let expected = expected
        .map(|(pod, reason, message)| (pod.to_owned(), reason.to_owned(), message.to_owned()));
    until(&node, expected.len());
    a_look_passes();
    assert_eq!(posted(&node.api.kept()), expected);
    let kept = node.api.kept();
    let one = kept
        .events
        .values()
        .find(|one| one["reason"] == "SliceRefused")
        .unwrap();
    assert_eq!(
        (&one["count"], &one["type"]),
        (&json!(2), &json!("Warning"))
    );
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "one", "uid": POD,
        "fieldPath": "spec.containers{c}",
    });
    assert_eq!(one["involvedObject"], object);
    assert_eq!(
        one["source"],
        json!({"component": "gpuslice.io", "host": "node1"})
    );
}

#[test]
fn a_restarted_driver_continues_where_it_was() {
    let mut node = Node::new();
    node.start();
    node.kubelet().register();
    write(
        &node,
        &line(EventKind::AdmissionRefusal, "one", "is refused"),
    );
    until(&node, 1);
    a_look_passes();
    node.kill();
    write(
        &node,
        &line(EventKind::AdmissionRefusal, "two", "is refused"),
    );
    node.start();
    assert_eq!(until(&node, 2).len(), 2);
    a_look_passes();
    let kept = node.api.kept();
    let asked = kept.asked.iter().filter(|one| one.contains("events"));
    assert_eq!(asked.count(), 2, "{:?}", kept.asked);
}

#[test]
fn a_missing_permission_for_events_is_one_line() {
    let mut node = Node::new();
    node.api.kept().forbids_reports = true;
    node.start();
    node.kubelet().register();
    for pod in ["one", "two", "three"] {
        write(&node, &line(EventKind::AdmissionRefusal, pod, "is refused"));
    }
    let is_asked = |kept: &Kept| kept.asked.iter().any(|one| one.contains("events"));
    drop(node.api.until("asked", is_asked));
    a_look_passes();
    let text = "events of pods are not written: the API server answers 403 Forbidden: events is \
                forbidden";
    assert_eq!(node.log().matches(text).count(), 1, "{}", node.log());
    let kept = node.api.kept();
    assert_eq!(
        kept.asked
            .iter()
            .filter(|one| one.contains("events"))
            .count(),
        1
    );
}

#[test]
fn a_namespace_that_denies_events_keeps_them_from_no_other() {
    let mut node = Node::new();
    node.api.kept().denies = Some("denied".to_owned());
    node.start();
    node.kubelet().register();
    let of = |namespace: &str, pod: &str| {
        let line = line(EventKind::AdmissionRefusal, pod, "is refused");
        let pod = line.pod.clone().map(|pod| Pod {
            namespace: namespace.to_owned(),
            ..pod
        });
        Event { pod, ..line }
    };
    // One write, so that one look sees both.
    let both = of("denied", "one").line() + &of("team", "two").line();
    Store::of_host(&node.host()).append(&both).unwrap();
    assert_eq!(until(&node, 1)[0].0, "two");
    write(&node, &of("team", "three"));
    assert_eq!(until(&node, 2).len(), 2);
    let text = "no event yet: the API server answers 403 Forbidden";
    assert_eq!(node.log().matches(text).count(), 1, "{}", node.log());
}
