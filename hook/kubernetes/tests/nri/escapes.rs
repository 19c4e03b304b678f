//! Tests which containers that started without the plugin become events.
//! Touches: socket pairs, temporary folders.

use crate::engine::{Host, pod};
use gpuslice_dra::nri::api::{Container, PodSandbox, SynchronizeRequest};
use gpuslice_host::slices::records::{Member, SliceRecord};
#[test]
fn a_container_that_started_without_the_plugin_is_an_event() {
    let host = Host::new("");
    let (mut engine, _served) = host.configured();
    let container = |id: &str, pod: &str, state| Container {
        id: id.to_owned(),
        name: "main".to_owned(),
        pod_sandbox_id: pod.to_owned(),
        state,
        ..Container::default()
    };
    let asking = pod(&[("gpuslice.io/memory", "8GiB")]);
    let other = PodSandbox {
        id: "other".to_owned(),
        ..pod(&[])
    };
    // The containers come before their pods.
    let containers = vec![
        container("escaped", "sandbox", 3),
        container("stopped", "sandbox", 4),
        container("unasked", "other", 3),
    ];
    let first = SynchronizeRequest {
        pods: Vec::new(),
        containers,
        more: true,
    };
    let answer = engine.call("Synchronize", &first);
    assert_eq!(answer.payload, [0x10, 1], "more is understood");
    assert_eq!(host.events(), "");
    let last = SynchronizeRequest {
        pods: vec![asking, other],
        containers: Vec::new(),
        more: false,
    };
    engine.call("Synchronize", &last);
    let events = host.events();
    assert_eq!(events.lines().count(), 1, "{events}");
    assert!(events.contains(r#""event":"escape""#) && events.contains(r#""container":"escaped""#));
    assert!(events.contains("team/web/main") && events.contains("runs without a slice"));
}

#[test]
fn a_container_with_a_record_is_no_event() {
    let host = Host::new("");
    let record = serde_json::json!({
        "version": SliceRecord::VERSION, "slice": "c1", "name": "team/web/main",
        "devices": [], "containers": [{"id": "c1", "name": "team/web/main",
            "pid": 1, "starttime": 1, "bundle": "/b", "drops": []}],
    });
    let parsed: Result<SliceRecord, _> = serde_json::from_value(record.clone());
    let member: &Member = &parsed.unwrap().containers[0];
    assert_eq!(member.id, "c1");
    std::fs::write(host.paths().slice("c1"), record.to_string()).unwrap();
    let (mut engine, _served) = host.configured();
    let containers = vec![Container {
        id: "c1".to_owned(),
        name: "main".to_owned(),
        pod_sandbox_id: "sandbox".to_owned(),
        state: 3,
        ..Container::default()
    }];
    let pods = vec![pod(&[("gpuslice.io/memory", "8GiB")])];
    engine.call(
        "Synchronize",
        &SynchronizeRequest {
            pods,
            containers,
            more: false,
        },
    );
    assert_eq!(host.events(), "");
}

#[test]
fn a_request_that_the_hook_would_have_refused_is_an_event() {
    let host = Host::new("");
    let pod = |id: &str, key: &str, value: &str| PodSandbox {
        id: id.to_owned(),
        ..pod(&[(key, value)])
    };
    let pods = vec![
        pod("unknown", "gpuslice.io/memroy", "8GiB"),
        pod("size", "gpuslice.io/memory", "8 Gigs"),
        pod("other", "gpuslice.io/containers", "side"),
    ];
    host.synchronize(pods);
    let events = host.events();
    assert_eq!(events.lines().count(), 2, "{events}");
    assert!(events.contains(r#""container":"of-unknown""#));
    assert!(events.contains(r#""container":"of-size""#));
}

#[test]
fn a_damaged_record_hides_only_the_containers_that_it_may_name() {
    let host = Host::new("");
    let pods = || {
        let pod = |id: &str| PodSandbox {
            id: id.to_owned(),
            ..pod(&[("gpuslice.io/memory", "8GiB")])
        };
        vec![pod("one"), pod("two")]
    };
    std::fs::write(host.paths().slice("of-one"), "{").unwrap();
    host.synchronize(pods());
    let events = host.events();
    assert_eq!(events.lines().count(), 1, "{events}");
    assert!(events.contains(r#""container":"of-two""#));
    // A slice with a name may be of any container.
    let host = Host::new("");
    std::fs::write(host.paths().slice("named-0123456789abcdef"), "{").unwrap();
    host.synchronize(pods());
    assert_eq!(host.events(), "");
}
