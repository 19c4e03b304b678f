//! The events of containers: their start, their end, and that they were refused or have no slice.
//! Touches: mount namespaces of its own, sockets and files below the test's root. Needs root.

use crate::support::{CARD, Container, Host, is_root};
use gpuslice_config::ledger::{Ledger, Open};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::events::journal::kind_of;
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::machine::pod::Pod;
use std::ffi::CString;
use std::fs;
use std::os::unix::net::UnixDatagram;

pub fn events(host: &Host) -> Vec<Event> {
    let text = fs::read_to_string(host.path("var/log/gpuslice/events.jsonl")).unwrap_or_default();
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(read).collect()
}

fn kinds(host: &Host) -> Vec<EventKind> {
    events(host).iter().map(|event| event.event).collect()
}

fn stops(container: &mut Container<'_>) {
    container.dies();
    let said = container.hook(&["poststop"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
}

/// What a process of the container would note in its ledger.
pub fn is_refused(host: &Host, slice: &str, short_by: Bytes) {
    let path = host.run("ledgers").join(slice).join("ledger");
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let ledger = Ledger::open(&path, Open::Existing).unwrap();
    ledger.refused(ledger.device(&CARD.parse().unwrap()).unwrap(), short_by);
}

#[test]
fn a_container_has_a_start_and_an_end_with_its_refusals() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.container("c1");
    container.is_given_its_slice();
    // A second call of the hook is no second start.
    assert!(container.hook(&["createRuntime"]).status.success());
    is_refused(&host, "c1", Bytes::mib(38));
    is_refused(&host, "c1", Bytes::mib(7));
    let pid = i32::try_from(container.pid()).unwrap();
    stops(&mut container);
    // Nor is a second poststop a second end.
    assert!(container.hook(&["poststop"]).status.success());
    let events = events(&host);
    let [start, end] = events.as_slice() else {
        panic!("{events:#?}");
    };
    assert_eq!((start.event, end.event), (EventKind::Start, EventKind::End));
    for event in [start, end] {
        assert_eq!(event.slice, "c1");
        assert_eq!(event.container.as_deref(), Some("c1"));
        assert_eq!((event.pid, event.limit), (Some(pid), Some(8 << 30)));
        assert_eq!(event.device.as_deref(), Some(CARD));
    }
    assert_eq!((end.count, end.bytes), (Some(2), Some(38 << 20)));
    assert_eq!(end.message, "ended; 2 allocations were refused");
    assert!(end.duration.is_some() && end.started.is_some(), "{end:?}");
    assert!(start.time <= end.time);
}

#[test]
fn a_container_that_the_runtime_forgot_ends_when_it_is_collected() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.container("c1");
    container.is_given_its_slice();
    container.dies();
    host.collect();
    assert_eq!(kinds(&host), [EventKind::Start, EventKind::End]);
    host.collect();
    assert_eq!(kinds(&host).len(), 2);
}

#[test]
fn the_events_of_a_pods_container_name_the_pod() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let asking = |id: &str, pod: &str| {
        let annotations = [
            ("gpuslice.io/memory", "20GiB"),
            ("io.kubernetes.cri.container-name", "c"),
            ("io.kubernetes.cri.sandbox-name", pod),
            ("io.kubernetes.cri.sandbox-namespace", "team"),
            ("io.kubernetes.cri.sandbox-uid", "a-b"),
        ];
        host.asking(id, &annotations)
    };
    let (big, other) = (asking("big", "one"), asking("other", "two"));
    big.is_given_its_slice();
    other.is_refused();
    let place = |name: &str| {
        Some(Pod {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            uid: "a-b".to_owned(),
            container: "c".to_owned(),
        })
    };
    let found: Vec<_> = events(&host)
        .into_iter()
        .map(|event| (event.event, event.pod))
        .collect();
    let expected = [
        (EventKind::Start, place("one")),
        (EventKind::AdmissionRefusal, place("two")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_refusal_and_an_escape_are_in_the_file_and_in_the_journal() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    fs::create_dir_all(host.path("run/systemd/journal")).unwrap();
    let journal = UnixDatagram::bind(host.path("run/systemd/journal/socket")).unwrap();
    journal.set_nonblocking(true).unwrap();
    let next = || {
        let mut bytes = [0; 8192];
        let length = journal.recv(&mut bytes).ok()?;
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        let field = |line: &str| {
            let (name, value) = line.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        Some(
            text.lines()
                .map(field)
                .collect::<std::collections::BTreeMap<_, _>>(),
        )
    };
    let big = host.asking("big", &[("gpuslice.io/memory", "20GiB")]);
    big.is_given_its_slice();
    let start = next().unwrap();
    assert_eq!(kind_of(&start["MESSAGE_ID"]), Some(EventKind::Start));
    assert_eq!(start["SYSLOG_IDENTIFIER"], "gpuslice-hook");
    assert_eq!(start["GPUSLICE_EVENT_LIMIT"], (20u64 << 30).to_string());

    let other = host.asking("other", &[("gpuslice.io/memory", "8GiB")]);
    let said = other.is_refused();
    let refused = next().unwrap();
    assert_eq!(
        kind_of(&refused["MESSAGE_ID"]),
        Some(EventKind::AdmissionRefusal)
    );
    assert_eq!(refused["PRIORITY"], "4");
    assert_eq!(refused["GPUSLICE_EVENT_CONTAINER"], "other");
    let reason = said.trim_end().strip_prefix("gpuslice: ").unwrap();
    assert_eq!(refused["MESSAGE"], format!("other is refused: {reason}"));

    let old = host.container("old");
    fs::remove_dir_all(old.rootfs().join("lib64")).unwrap();
    let _ = fs::remove_file(old.rootfs().join("lib/ld-linux-aarch64.so.1"));
    host.policy("overcommit = true");
    assert!(old.hook(&["createRuntime"]).status.success());
    let escape = next().unwrap();
    assert_eq!(kind_of(&escape["MESSAGE_ID"]), Some(EventKind::Escape));
    assert!(escape["MESSAGE"].starts_with("old starts without a slice: its image"));
    assert!(next().is_none());
    let expected = [
        EventKind::Start,
        EventKind::AdmissionRefusal,
        EventKind::Escape,
    ];
    assert_eq!(kinds(&host), expected);
    // At createContainer the files may be the container's; a dry run starts and refuses nothing.
    for arguments in [&["createContainer"][..], &["--dry-run", "createRuntime"]] {
        other.hook(arguments);
        assert!(next().is_none(), "{arguments:?}");
    }
    assert_eq!(kinds(&host), expected);
}

#[test]
fn a_container_starts_and_stops_where_no_event_can_be_written() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    // A file where the folder should be: root could write to a read-only folder.
    fs::create_dir_all(host.path("var/log")).unwrap();
    fs::write(host.path("var/log/gpuslice"), "").unwrap();
    let mut container = host.container("c1");
    container.is_given_its_slice();
    stops(&mut container);
    assert_eq!(host.left(), Vec::<String>::new());
}
