//! The output of a change, and its event.
//! Touches: the event file, the host's log.

use super::change::Change;
use super::error::ResizeError;
use crate::base::text::printable;
use crate::commands::status::model::SliceStatus;
use crate::commands::status::users::User;
use crate::runs::recording;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::events::{DeviceUse, Event, EventKind};
use serde::Serialize;
use std::fmt::Write;

/// The JSON output.
#[derive(Serialize)]
pub(super) struct Report {
    name: String,
    pid: Option<i32>,
    resized: bool,
    devices: Vec<DeviceReport>,
    error: Option<String>,
    #[serde(skip)]
    is_container: bool,
}

/// One device.
#[derive(Serialize)]
struct DeviceReport {
    device: String,
    index: u32,
    former_limit: u64,
    limit: u64,
    /// The limit of the slice file, which a slice that is started again has.
    restart_limit: u64,
    used: Option<u64>,
    #[serde(skip)]
    shown: String,
}

impl Report {
    pub(super) fn of(slice: &SliceStatus, change: &Change, error: Option<&ResizeError>) -> Report {
        let devices = change.parts.iter().map(|part| {
            let (limit, used) = change.now(part);
            DeviceReport {
                device: part.target.card.uuid.to_string(),
                index: part.target.index,
                former_limit: part.former().get(),
                limit: limit.get(),
                restart_limit: part.target.written.get(),
                used: used.map(Bytes::get),
                shown: part.target.card.shown.clone(),
            }
        });
        Report {
            name: slice.name.clone(),
            pid: slice
                .pid
                .or(slice.containers.first().map(|first| first.pid)),
            resized: error.is_none(),
            devices: devices.collect(),
            error: error.map(ToString::to_string),
            is_container: !slice.containers.is_empty(),
        }
    }

    /// Returns a line for each limit that changed, or was already as requested.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for device in &self.devices {
            let (former, limit) = (device.former_limit, device.limit);
            let name = printable(&self.name);
            let [former, limit] = [former, limit].map(Bytes::new);
            if former != limit {
                let (from, to) = (former.beside(limit), limit.beside(former));
                let _ = writeln!(text, "{name}: {from} -> {to} on {}", device.shown);
            } else if self.resized {
                let _ = writeln!(text, "{name}: {limit} on {}, as before", device.shown);
            }
        }
        if !text.is_empty()
            && let Some(note) = self.restart()
        {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// Returns the limits of a container that is started again, if they differ.
    fn restart(&self) -> Option<String> {
        let differs = |device: &&DeviceReport| device.limit != device.restart_limit;
        let each = self.devices.iter().filter(differs).map(|device| {
            let limit = Bytes::new(device.restart_limit);
            format!("{limit} on GPU {}", device.index)
        });
        let each: Vec<String> = each.collect();
        (self.is_container && !each.is_empty()).then(|| {
            format!(
                "after a restart, a container has the limit of its annotation or claim: {}",
                each.join(", ")
            )
        })
    }

    /// Writes an event if a limit has changed.
    pub(super) fn record(&self, slice: &SliceStatus) {
        let changed = self
            .devices
            .iter()
            .filter(|device| device.former_limit != device.limit);
        let changed: Vec<&DeviceReport> = changed.collect();
        let (Some(store), false) = (recording::store(), changed.is_empty()) else {
            return;
        };
        let each = changed.iter().map(|device| {
            let [former, limit] = [device.former_limit, device.limit].map(Bytes::new);
            let (from, to) = (former.beside(limit), limit.beside(former));
            format!("from {from} to {to} on GPU {}", device.index)
        });
        let each: Vec<String> = each.collect();
        let devices = changed.iter().map(|device| DeviceUse {
            device: device.device.clone(),
            limit: Some(device.limit),
            ..DeviceUse::default()
        });
        let message = format!("resized {}", each.join(", "));
        let event = Event {
            pid: self.pid,
            user: slice.user.map(User::name),
            container: slice.containers.first().map(|first| first.id.clone()),
            simulated: slice.machine.state().is_some(),
            ..Event::now(EventKind::Resize, &self.name, message)
        };
        recording::write(&store, &event.with_devices(devices.collect()));
    }
}
