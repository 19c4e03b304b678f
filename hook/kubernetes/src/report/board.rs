//! Merges notices into events of pods: one for each pod, container and reason, with a count.
//! Touches: its arguments.
//! Law: the name of an event follows from the first notice alone, so a process that reads the same
//! notice again makes no second event.

use crate::base::settings::DRIVER;
use crate::report::notices::{self, Notice};
use gpuslice_config::ledger::key_of;
use gpuslice_host::base::clock;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The shortest time between two requests for one event. The kubelet repeats a start that fails at
/// most every five minutes.
const REPEAT: Duration = Duration::from_secs(300);

/// The time after which an event is a new one. API servers keep events for an hour.
const KEPT: Duration = Duration::from_secs(3000);

/// The shortest time between two attempts at an event that was refused.
const RETRY: Duration = Duration::from_secs(30);

/// The attempts after which a new event is given up.
const ATTEMPTS: u32 = 20;

/// The most events that are remembered.
const MOST: usize = 256;

/// The most letters of a pod's name in the name of an event.
const NAME: usize = 230;

/// The events of a node's pods.
#[derive(Debug, Default)]
pub struct Board(BTreeMap<Key, Entry>);

/// The pod's namespace, name and uid, its container, and the reason.
type Key = [String; 5];

#[derive(Debug)]
struct Entry {
    notice: Notice,
    /// The name of the event.
    name: String,
    /// The time of the first notice and of the last, as Kubernetes writes times.
    first: String,
    last: String,
    count: u32,
    /// The count that the API server knows.
    posted: u32,
    /// The time of the last request, and of the last notice.
    asked: Option<Instant>,
    seen: Instant,
    /// The time of the last request that failed, and the requests in a row that were refused for
    /// this event alone.
    failed: Option<Instant>,
    refusals: u32,
}

/// A request that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// The event is created.
    Create(Value),
    /// These values of the event are changed.
    Change(Value),
}

/// A request for an event, by which its outcome is noted.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    key: Key,
    /// The namespace.
    pub namespace: String,
    /// The name of the event.
    pub name: String,
    /// The request.
    pub due: Due,
}

fn key(notice: &Notice) -> Key {
    let pod = &notice.pod;
    let parts = [&pod.namespace, &pod.name, &pod.uid, &pod.container];
    let [namespace, name, uid, container] = parts.map(String::clone);
    [namespace, name, uid, container, notice.reason.to_owned()]
}

impl Board {
    /// Adds a notice.
    pub fn add(&mut self, notice: Notice, now: Instant) {
        let key = key(&notice);
        let time = seconds(&notice.time);
        match self.0.get_mut(&key) {
            Some(known) if now.saturating_duration_since(known.seen) < KEPT => {
                known.count = known.count.saturating_add(1);
                (known.last, known.seen) = (time, now);
                known.notice.message = notice.message;
            }
            _ => {
                if self.0.len() >= MOST {
                    self.forget_oldest();
                }
                let entry = Entry::new(notice, &key, time, now);
                self.0.insert(key, entry);
            }
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.0.iter().min_by_key(|(_, entry)| entry.seen);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.0.remove(&key);
        }
    }

    /// The next request that is due, if any. New events come first, and among them those that have
    /// not failed.
    #[must_use]
    pub fn next(&self, node: &str, now: Instant) -> Option<Request> {
        let is_due = |entry: &&Entry| {
            let is_rested = entry
                .asked
                .is_none_or(|asked| now.saturating_duration_since(asked) >= REPEAT);
            let is_again = entry
                .failed
                .is_none_or(|failed| now.saturating_duration_since(failed) >= RETRY);
            entry.count > entry.posted && (entry.posted == 0 || is_rested) && is_again
        };
        let due = self.0.iter().filter(|(_, entry)| is_due(entry));
        let (key, entry) =
            due.min_by_key(|(_, entry)| (entry.posted != 0, entry.failed, entry.seen))?;
        Some(Request {
            key: key.clone(),
            namespace: entry.notice.pod.namespace.clone(),
            name: entry.name.clone(),
            due: match entry.posted {
                0 => Due::Create(entry.event(node)),
                _ => Due::Change(json!({
                    "count": entry.count,
                    "lastTimestamp": entry.last,
                    "message": entry.notice.message,
                })),
            },
        })
    }

    /// Notes that the API server has the event as it is.
    pub fn note_posted(&mut self, request: &Request, now: Instant) {
        if let Some(entry) = self.0.get_mut(&request.key) {
            (entry.posted, entry.asked) = (entry.count, Some(now));
            (entry.failed, entry.refusals) = (None, 0);
        }
    }

    /// Notes that the API server could not be asked. Others are tried first the next time.
    pub fn note_failed(&mut self, request: &Request, now: Instant) {
        if let Some(entry) = self.0.get_mut(&request.key) {
            entry.failed = Some(now);
        }
    }

    /// Notes that the API server refused this event, maybe not for ever. Returns whether it is the
    /// first refusal. A new event is forgotten after `ATTEMPTS`.
    pub fn note_refused(&mut self, request: &Request, now: Instant) -> bool {
        self.note_failed(request, now);
        let Some(entry) = self.0.get_mut(&request.key) else {
            return false;
        };
        entry.refusals = entry.refusals.saturating_add(1);
        let refusals = entry.refusals;
        if entry.posted == 0 && refusals >= ATTEMPTS {
            self.forget(request);
        }
        refusals == 1
    }

    /// Notes that the API server does not have the event any more. The last notice is a new one.
    pub fn note_missing(&mut self, request: &Request, now: Instant) {
        if let Some(entry) = self.0.remove(&request.key) {
            let time = entry.last.clone();
            let entry = Entry::new(entry.notice, &request.key, time, now);
            self.0.insert(request.key.clone(), entry);
        }
    }

    /// Forgets an event that the API server does not take.
    pub fn forget(&mut self, request: &Request) {
        self.0.remove(&request.key);
    }

    /// Whether every event was created.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.0.values().all(|entry| entry.posted > 0)
    }

    /// Forgets the events that were not created.
    pub fn drop_new(&mut self) {
        self.0.retain(|_, entry| entry.posted > 0);
    }
}

impl Entry {
    fn new(notice: Notice, key: &Key, time: String, now: Instant) -> Entry {
        let text = format!("{}\0{}", key.join("\0"), notice.time);
        let start: String = notice.pod.name.chars().take(NAME).collect();
        let start = start.trim_end_matches(['-', '.']);
        Entry {
            name: format!("{start}.{:016x}", key_of(text.as_bytes())),
            notice,
            first: time.clone(),
            last: time,
            count: 1,
            posted: 0,
            asked: None,
            seen: now,
            failed: None,
            refusals: 0,
        }
    }

    fn event(&self, node: &str) -> Value {
        let pod = &self.notice.pod;
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
        });
        let path = format!("spec.containers{{{}}}", pod.container);
        let path = (!pod.container.is_empty()).then_some(path.as_str());
        for (key, value) in [("uid", notices::uid(pod)), ("fieldPath", path)] {
            if let (Some(value), Some(object)) = (value, object.as_object_mut()) {
                object.insert(key.to_owned(), json!(value));
            }
        }
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": pod.namespace},
            "involvedObject": object,
            "reason": self.notice.reason,
            "message": self.notice.message,
            "type": "Warning",
            "source": {"component": DRIVER, "host": node},
            "reportingComponent": DRIVER,
            "reportingInstance": node,
            "firstTimestamp": self.first,
            "lastTimestamp": self.last,
            "count": self.count,
        })
    }
}

/// A time without its fraction, as Kubernetes writes times.
fn seconds(time: &str) -> String {
    let parsed = clock::parse(time).and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    clock::rfc3339(parsed.map_or(0, |since| since.as_secs()))
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
