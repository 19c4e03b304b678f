//! Events of slices: one line for each start, end and refusal, in a file and in the host's log.
//! Touches: the event file, the sockets of journald and syslogd.
//! Law: an event that cannot be written never affects a slice.

pub mod journal;
pub mod store;
pub mod syslog;

use crate::base::clock;
use crate::machine::pod::Pod;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// The version of the event format.
pub const SCHEMA: u64 = 1;

/// The most bytes of a message.
const LONGEST: usize = 2048;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A slice started: a run's command, or a container.
    Start,
    /// A slice ended.
    End,
    /// Allocations of a slice were refused.
    Refusal,
    /// A run or a container was not started, because its slice does not fit or cannot be made.
    AdmissionRefusal,
    /// The size of a slice was changed.
    Resize,
    /// A program or a container runs without the slice that it should have.
    Escape,
    /// The host was short of memory: the guard reports it, sent a signal, or would have sent one.
    Guard,
    /// An event of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl EventKind {
    /// Its name in the event file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Start => "start",
            EventKind::End => "end",
            EventKind::Refusal => "refusal",
            EventKind::AdmissionRefusal => "admission-refusal",
            EventKind::Resize => "resize",
            EventKind::Escape => "escape",
            EventKind::Guard => "guard",
            EventKind::Unknown => "unknown",
        }
    }

    /// Its identifier in the journal.
    #[must_use]
    pub const fn message_id(self) -> &'static str {
        match self {
            EventKind::Start => "86786b9db8cb476ea04805a2f40ee669",
            EventKind::End => "b5d7e5a4583a4b0eaa367dcd0fb1fd91",
            EventKind::Refusal => "adb0366fac864e7b976221631b6f560c",
            EventKind::AdmissionRefusal => "89d2ecd1db5f43ae9e44b0d55a36c55b",
            EventKind::Resize => "9709f8546d434317aaa9b0aba3ba7d04",
            EventKind::Escape => "ccf7b6b02642481f8274709858951bd1",
            EventKind::Guard => "27af56dd5f644e3e8cdeca5cc924d1d6",
            EventKind::Unknown => "00000000000000000000000000000000",
        }
    }

    /// Its priority in the journal: 4 is a warning, 6 is information.
    #[must_use]
    pub const fn priority(self) -> u8 {
        match self {
            EventKind::Start | EventKind::End | EventKind::Resize | EventKind::Unknown => 6,
            EventKind::Refusal | EventKind::AdmissionRefusal | EventKind::Escape => 4,
            EventKind::Guard => 4,
        }
    }
}

/// A slice's use of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// The device's uuid.
    pub device: String,
    /// The slice's limit, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The highest use that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
    /// The number of refused allocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The largest shortfall of a refused allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The version of the format.
    pub schema: u64,
    /// The time, in UTC with milliseconds.
    pub time: String,
    /// What happened.
    pub event: EventKind,
    /// The slice's name.
    #[serde(default)]
    pub slice: String,
    /// The process of the run's command, or the container's first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The user of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The container's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The container's place in Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// Whether the GPUs are simulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// The device of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The shortfall of the largest refused request, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The slice's limit on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The memory in use on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// The highest use that was measured on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
    /// The number of refused allocations since the slice started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The time at which the slice started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// The seconds from start to end.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "seconds")]
    pub duration: Option<Duration>,
    /// The slice's devices, at its start and its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceUse>,
    /// The requests of a container that its slice cannot honour, at its start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhonoured: Vec<String>,
    /// Whether the guard only warns, and has not done what the message says that it would do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warned: bool,
    /// The event as a sentence.
    #[serde(default)]
    pub message: String,
}

impl Event {
    /// An event of this moment.
    #[must_use]
    pub fn now(event: EventKind, slice: &str, message: String) -> Event {
        let end = message.floor_char_boundary(LONGEST);
        let mut message = message;
        message.truncate(end);
        Event {
            schema: SCHEMA,
            time: clock::rfc3339_ms(SystemTime::now()),
            event,
            slice: slice.to_owned(),
            message,
            ..Event::default()
        }
    }

    /// Adds the use of the devices. The use of an only device is also that of the event.
    #[must_use]
    pub fn with_devices(mut self, devices: Vec<DeviceUse>) -> Event {
        if let [only] = devices.as_slice() {
            self.device = Some(only.device.clone());
            (self.limit, self.peak, self.bytes) = (only.limit, only.peak, only.bytes);
        }
        let counts = devices.iter().filter_map(|one| one.count);
        self.count = counts.reduce(u64::saturating_add);
        self.devices = devices;
        self
    }

    /// The line of the event file.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// Its single values, by their names in the event file. The message is not among them.
    #[must_use]
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let values = [
            ("time", Some(self.time.clone())),
            ("slice", Some(self.slice.clone())),
            ("pid", self.pid.map(|pid| pid.to_string())),
            ("user", self.user.clone()),
            ("container", self.container.clone()),
            ("simulated", self.simulated.then(|| "true".to_owned())),
            ("device", self.device.clone()),
            ("bytes", number(self.bytes)),
            ("limit", number(self.limit)),
            ("used", number(self.used)),
            ("peak", number(self.peak)),
            ("count", number(self.count)),
            ("started", self.started.clone()),
            ("duration", self.duration.map(decimal)),
        ];
        let present = values.into_iter();
        present
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// Seconds with three decimals.
fn decimal(duration: Duration) -> String {
    format!("{}.{:03}", duration.as_secs(), duration.subsec_millis())
}

mod seconds {
    //! Serializes a duration as seconds.
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let ms = value.map(|value| u64::try_from(value.as_millis()).unwrap_or(u64::MAX));
        #[expect(
            clippy::cast_precision_loss,
            reason = "no slice runs for so many years"
        )]
        out.serialize_f64(ms.unwrap_or(0) as f64 / 1000.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(from)?;
        Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_the_schema_and_is_read_back() {
        let device = DeviceUse {
            device: "GPU-1".to_owned(),
            limit: Some(8 << 30),
            count: Some(2),
            ..DeviceUse::default()
        };
        let event = Event {
            pid: Some(7),
            duration: Some(Duration::from_millis(1250)),
            ..Event::now(EventKind::AdmissionRefusal, "a\"b\n", "no\nroom".to_owned())
        };
        let event = event.with_devices(vec![device]);
        let line = event.line();
        assert!(line.starts_with("{\"schema\":1,\"time\":\"20"), "{line}");
        assert!(
            line.contains("\"event\":\"admission-refusal\"") && line.contains("\"duration\":1.25")
        );
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        assert_eq!((event.limit, event.count), (Some(8 << 30), Some(2)));
    }

    #[test]
    fn an_event_of_a_later_version_is_read() {
        let line = r#"{"schema":1,"time":"2026-11-23T08:00:00.000Z","event":"moved","new":[1]}"#;
        let event: Event = serde_json::from_str(line).unwrap();
        assert_eq!(event.event, EventKind::Unknown);
    }
}
