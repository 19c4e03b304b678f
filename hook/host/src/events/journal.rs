//! Writes events to the host's log: to journald with a field for each value, else as a line to
//! syslogd.
//! Touches: the sockets that journald and syslogd listen at.
//! Law: no error here affects a slice, and nothing here blocks.

use super::syslog::Log;
use super::{Event, EventKind};
use std::fmt::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The priority down to which an event is also written where there is only syslogd.
const WARNING: u8 = 4;

/// Sends an event. `program` is the name by which `journalctl -t` finds it.
pub fn send(journal: &Path, log: &Path, program: &'static str, event: &Event) {
    if sent(journal, program, event).is_none() && event.event.priority() <= WARNING {
        Log::open(log, program).tell(&line(event));
    }
}

/// Sends a datagram of journald's own protocol. A full socket loses it.
fn sent(journal: &Path, program: &str, event: &Event) -> Option<()> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(journal).ok()?;
    let _ = socket.send(datagram(program, event).as_bytes());
    Some(())
}

/// The event as a sentence: the slice is its subject.
#[must_use]
pub fn line(event: &Event) -> String {
    format!("{} {}", event.slice, event.message)
}

fn datagram(program: &str, event: &Event) -> String {
    let kind = event.event;
    let fields = [
        ("MESSAGE", line(event)),
        ("MESSAGE_ID", kind.message_id().to_owned()),
        ("PRIORITY", kind.priority().to_string()),
        ("SYSLOG_IDENTIFIER", program.to_owned()),
        ("GPUSLICE_EVENT", kind.name().to_owned()),
    ];
    let mut text = String::new();
    for (name, value) in fields {
        field(&mut text, name, &value);
    }
    for (name, value) in event.values() {
        field(&mut text, &variable(name), &value);
    }
    text
}

/// The name of a value in the journal, and in the environment of a command: `GPUSLICE_EVENT_SLICE`.
#[must_use]
pub fn variable(name: &str) -> String {
    format!("GPUSLICE_EVENT_{}", name.to_ascii_uppercase())
}

/// Adds a field. A value is one line, even if foreign text contains line breaks: a line break would
/// begin another field.
fn field(text: &mut String, name: &str, value: &str) {
    let one_line = |letter: char| if letter.is_control() { ' ' } else { letter };
    let value: String = value.chars().map(one_line).collect();
    let _ = writeln!(text, "{name}={value}");
}

/// Whether any event has this identifier: for readers of the journal, and for tests.
#[must_use]
pub fn kind_of(message_id: &str) -> Option<EventKind> {
    let kinds = [
        EventKind::Start,
        EventKind::End,
        EventKind::Refusal,
        EventKind::AdmissionRefusal,
        EventKind::Resize,
        EventKind::Escape,
        EventKind::Guard,
    ];
    kinds
        .into_iter()
        .find(|kind| kind.message_id() == message_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Event {
        Event {
            pid: Some(7),
            bytes: Some(64),
            ..Event::now(
                EventKind::Refusal,
                "llama\nPRIORITY=0",
                "is short\nof memory".to_owned(),
            )
        }
    }

    #[test]
    fn a_value_cannot_add_a_field() {
        let sent = datagram("gpuslice", &refusal());
        let lines: Vec<&str> = sent.lines().collect();
        assert_eq!(lines[0], "MESSAGE=llama PRIORITY=0 is short of memory");
        let id = lines[1].strip_prefix("MESSAGE_ID=").unwrap();
        assert_eq!(kind_of(id), Some(EventKind::Refusal));
        assert_eq!(
            lines[2..5],
            [
                "PRIORITY=4",
                "SYSLOG_IDENTIFIER=gpuslice",
                "GPUSLICE_EVENT=refusal"
            ]
        );
        assert!(
            lines.contains(&"GPUSLICE_EVENT_PID=7") && lines.contains(&"GPUSLICE_EVENT_BYTES=64")
        );
        assert!(lines.iter().all(|line| line.contains('=')), "{sent}");
        assert_eq!(
            lines
                .iter()
                .filter(|line| line.starts_with("PRIORITY="))
                .count(),
            1
        );
    }

    #[test]
    fn without_journald_a_warning_is_a_line_for_syslogd() {
        let place = tempfile::tempdir().unwrap();
        let (journal, log) = (place.path().join("journal"), place.path().join("log"));
        send(&journal, &log, "gpuslice", &refusal());
        let listener = UnixDatagram::bind(&log).unwrap();
        listener.set_nonblocking(true).unwrap();
        let start = Event::now(EventKind::Start, "llama", "started".to_owned());
        send(&journal, &log, "gpuslice", &start);
        send(&journal, &log, "gpuslice", &refusal());
        let mut bytes = [0; 2048];
        let length = listener.recv(&mut bytes).unwrap();
        let own = std::process::id();
        assert_eq!(
            std::str::from_utf8(&bytes[..length]).unwrap(),
            format!("<27>gpuslice[{own}]: llama PRIORITY=0 is short of memory")
        );
        assert!(listener.recv(&mut bytes).is_err());
        // journald alone is written to where it listens.
        let daemon = UnixDatagram::bind(&journal).unwrap();
        send(&journal, &log, "gpuslice", &start);
        assert!(daemon.recv(&mut bytes).is_ok());
    }
}
