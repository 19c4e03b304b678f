//! How notices become events.

use super::*;
use crate::report::notices::REFUSED;
use gpuslice_host::machine::pod::Pod;
use k8s_openapi::api::core::v1::Event;

const UID: &str = "4f8f2b6c-0a1b-4c3d-8e9f-001122334455";

fn notice(pod: &str, time: &str) -> Notice {
    Notice {
        pod: Pod {
            namespace: "team".to_owned(),
            name: pod.to_owned(),
            uid: UID.to_owned(),
            container: "c".to_owned(),
        },
        reason: REFUSED,
        message: format!("container c is refused at {time}"),
        time: format!("2026-11-25T10:{time}.250Z"),
    }
}

#[test]
fn an_event_is_one_that_the_api_server_takes() {
    let (mut board, now) = (Board::default(), Instant::now());
    board.add(notice("web", "00:00"), now);
    let request = board.next("node1", now).unwrap();
    let Due::Create(event) = request.due else {
        panic!("{request:?}");
    };
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": request.name, "namespace": "team"},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "web", "uid": UID,
            "fieldPath": "spec.containers{c}",
        },
        "reason": "SliceRefused",
        "message": "container c is refused at 00:00",
        "type": "Warning",
        "source": {"component": "gpuslice.io", "host": "node1"},
        "reportingComponent": "gpuslice.io",
        "reportingInstance": "node1",
        "firstTimestamp": "2026-11-25T10:00:00Z",
        "lastTimestamp": "2026-11-25T10:00:00Z",
        "count": 1,
    });
    assert_eq!(event, expected);
    let read: Event = serde_json::from_value(event.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), event);
    assert!(request.name.starts_with("web.") && request.name.len() == 20);
}

#[test]
fn a_start_that_is_tried_again_and_again_is_one_event_with_a_count() {
    let (mut board, start) = (Board::default(), Instant::now());
    let mut requests = Vec::new();
    // Every 20 seconds for 20 minutes.
    for turn in 0..60_u64 {
        let now = start + Duration::from_secs(20 * turn);
        let time = format!("{:02}:{:02}", turn / 3, turn % 3 * 20);
        board.add(notice("web", &time), now);
        while let Some(request) = board.next("node1", now) {
            board.note_posted(&request, now);
            requests.push(request);
        }
    }
    let names: Vec<&String> = requests.iter().map(|request| &request.name).collect();
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    assert_eq!(requests.len(), 4);
    let change = json!({
        "count": 46,
        "lastTimestamp": "2026-11-25T10:15:00Z",
        "message": "container c is refused at 15:00",
    });
    assert_eq!(requests[3].due, Due::Change(change));
    // Another pod, container or reason is another event, and so is one after an hour.
    let now = start + Duration::from_secs(1200);
    board.add(notice("other", "20:00"), now);
    let other = board.next("node1", now).unwrap();
    assert!(matches!(other.due, Due::Create(_)));
    let late = start + Duration::from_secs(9000);
    board.add(notice("web", "59:59"), late);
    board.note_posted(&other, late);
    let again = board.next("node1", late).unwrap();
    assert!(matches!(again.due, Due::Create(_)) && again.name != *names[0]);
}

#[test]
fn the_same_notice_has_the_same_name_after_a_restart() {
    let now = Instant::now();
    let name = |pod: &str, time: &str| {
        let mut board = Board::default();
        board.add(notice(pod, time), now);
        board.next("node1", now).unwrap().name
    };
    assert_eq!(name("web", "00:00"), name("web", "00:00"));
    assert_ne!(name("web", "00:00"), name("web", "00:01"));
    assert_ne!(name("web", "00:00"), name("wep", "00:00"));
    let long = name(&"a.".repeat(126), "00:00");
    assert!(
        crate::base::names::subdomain("event", &long).is_ok(),
        "{long}"
    );
}

#[test]
fn an_event_that_expired_is_created_anew_and_memory_is_bounded() {
    let (mut board, now) = (Board::default(), Instant::now());
    board.add(notice("web", "00:00"), now);
    let first = board.next("node1", now).unwrap();
    assert!(!board.is_settled());
    board.note_posted(&first, now);
    assert!(board.is_settled() && board.next("node1", now).is_none());
    let later = now + REPEAT;
    board.add(notice("web", "05:00"), later);
    let change = board.next("node1", later).unwrap();
    board.note_missing(&change, later);
    let again = board.next("node1", later).unwrap();
    assert!(matches!(again.due, Due::Create(_)));
    for number in 0..2000_u32 {
        let now = later + Duration::from_millis(number.into());
        board.add(notice(&format!("p{number}"), "06:00"), now);
    }
    assert_eq!(board.0.len(), MOST);
    board.drop_new();
    assert!(board.is_settled());
}

#[test]
fn an_event_that_is_refused_lets_the_others_pass_and_is_given_up() {
    let (mut board, start) = (Board::default(), Instant::now());
    board.add(notice("bad", "00:00"), start);
    let bad = board.next("node1", start).unwrap();
    assert!(board.note_refused(&bad, start));
    board.add(notice("web", "00:01"), start);
    let web = board.next("node1", start).unwrap();
    assert!(web.name.starts_with("web."));
    board.note_posted(&web, start);
    assert_eq!(board.next("node1", start), None);
    // Another refused one, and a new one: the new one is first, and then the one that waits longer.
    board.add(notice("worse", "00:01"), start);
    let worse = board.next("node1", start).unwrap();
    board.note_failed(&worse, start + Duration::from_secs(1));
    let later = start + RETRY + Duration::from_secs(1);
    board.add(notice("new", "00:32"), later);
    for expected in ["new.", "bad.", "worse."] {
        let request = board.next("node1", later).unwrap();
        assert!(request.name.starts_with(expected), "{request:?}");
        board.note_posted(&request, later);
    }
    assert!(board.is_settled());
    board.add(notice("ever", "01:00"), later);
    let mut attempts = 0;
    while let Some(request) = board.next("node1", later + RETRY * attempts) {
        let is_first = board.note_refused(&request, later + RETRY * attempts);
        assert_eq!(is_first, attempts == 0);
        attempts += 1;
    }
    assert!(attempts == ATTEMPTS && board.is_settled());
}
