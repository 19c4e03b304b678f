//! Formats the history as a table.
//! Touches: its arguments.

use super::gather::{DeviceRow, RunRow};
use crate::base::{local_time, text};
use gpuslice_config::words::units::Bytes;

/// Returns the table as text: a line for each run, and one more for each further device.
pub(super) fn table(rows: &[RunRow]) -> String {
    let head = [
        "STARTED", "SLICE", "PID", "USER", "TIME", "PEAK", "LIMIT", "REFUSED", "STATE",
    ];
    let mut cells = vec![head.map(str::to_owned)];
    for row in rows {
        let unknown = [None];
        let devices: Vec<Option<&DeviceRow>> = row.devices.iter().map(Some).collect();
        let devices = if devices.is_empty() {
            &unknown[..]
        } else {
            &devices
        };
        for (index, device) in devices.iter().enumerate() {
            cells.push(line(row, *device, index == 0));
        }
    }
    text::aligned(&cells)
}

fn line(row: &RunRow, device: Option<&DeviceRow>, is_first: bool) -> [String; 9] {
    let amount =
        |bytes: Option<u64>| bytes.map_or("?".to_owned(), |bytes| Bytes::new(bytes).to_string());
    let peak = amount(device.and_then(|device| device.peak));
    let limit = amount(device.and_then(|device| device.limit));
    let refused = match device.and_then(|device| device.count) {
        Some(0) => "-".to_owned(),
        Some(count) => count.to_string(),
        None => "?".to_owned(),
    };
    if !is_first {
        let empty = String::new;
        return [
            empty(),
            empty(),
            empty(),
            empty(),
            empty(),
            peak,
            limit,
            refused,
            empty(),
        ];
    }
    let state = match (row.running, row.ended) {
        (true, _) => "running",
        (false, Some(_)) => "ended",
        (false, None) => "end unknown",
    };
    let simulated = if row.simulated { ", simulated" } else { "" };
    [
        row.started.map_or("?".to_owned(), local_time::shown),
        text::printable(&row.name),
        row.pid.map_or("?".to_owned(), |pid| pid.to_string()),
        text::printable(row.user.as_deref().unwrap_or("-")),
        row.duration.map_or("?".to_owned(), text::duration),
        peak,
        limit,
        refused,
        format!("{state}{simulated}"),
    ]
}
