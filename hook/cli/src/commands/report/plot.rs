//! Makes the picture of a watch: a panel for each slice and device, and one for host memory.
//! Touches: its arguments.

use super::gather::{DeviceReport, Report, SliceReport};
use super::parts::{HOST, PARTS, parts};
use crate::base::local_time;
use crate::commands::plot::{Figure, Panel, Segment};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The layers of device memory.
const LAYERS: [(&str, &str); 3] = [
    ("allocated", "#4c72b0"),
    ("contexts", "#8172b3"),
    ("without library", "#55a868"),
];

/// All slices at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// The time since the first moment.
    pub(super) at: Duration,
    devices: Vec<DeviceMoment>,
    /// The host memory of all slices, by part.
    host: Vec<u64>,
}

/// A slice's use of a device at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceMoment {
    /// The slice file and the device, which identify the panel.
    key: (PathBuf, String),
    title: String,
    limit: Option<u64>,
    layers: Vec<u64>,
    refused: u64,
}

impl Moment {
    /// Takes a report's amounts.
    pub(super) fn of(at: Duration, report: &Report) -> Moment {
        let slices = report.slices.iter();
        let devices = slices.flat_map(|slice| {
            let devices = slice.devices.iter();
            devices.filter_map(move |device| DeviceMoment::of(slice, device))
        });
        Moment {
            at,
            devices: devices.collect(),
            host: parts(report).into_iter().skip(HOST).collect(),
        }
    }
}

impl DeviceMoment {
    /// Takes the amounts of a device. A device of which nothing is known, or that nobody uses, has
    /// no panel.
    fn of(slice: &SliceReport, device: &DeviceReport) -> Option<DeviceMoment> {
        let uuid = device.device.clone()?;
        let used = device.used?;
        let context = device
            .by_kind
            .as_ref()
            .and_then(|kinds| kinds.get("context")?.as_u64());
        let context = context.unwrap_or(0).min(used);
        let escaped = device.without_library.iter().filter_map(|one| one.used);
        let pid = slice
            .pid
            .map_or(String::new(), |pid| format!(" (pid {pid})"));
        Some(DeviceMoment {
            title: format!("{}{pid} on {uuid}", slice.name),
            key: (slice.file.clone(), uuid),
            limit: device.limit,
            layers: vec![
                used.saturating_sub(context),
                context,
                escaped.fold(0, u64::saturating_add),
            ],
            refused: device.refused,
        })
    }
}

/// Returns the picture of a watch that began at `start`; None if no slice was seen.
pub(super) fn figure(moments: &[Moment], start: SystemTime) -> Option<Figure> {
    let since = start.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = |at: Duration| u64::try_from(since.saturating_add(at).as_millis()).unwrap_or(u64::MAX);
    let mut panels: Vec<(&(PathBuf, String), Panel)> = Vec::new();
    let mut host = Panel {
        title: "host memory of these slices".to_owned(),
        layers: PARTS.into_iter().skip(HOST).collect(),
        segments: vec![Segment::default()],
    };
    let mut before: Option<&Moment> = None;
    for moment in moments {
        let at = ms(moment.at);
        // The last value of a slice that has ended since holds until now.
        for (key, panel) in &mut panels {
            let has = |moment: &Moment| moment.devices.iter().any(|one| &one.key == *key);
            if before.is_some_and(has)
                && !has(moment)
                && let Some(segment) = panel.segments.last_mut()
            {
                segment.end = at;
            }
        }
        for device in &moment.devices {
            let was_there =
                |before: &Moment| before.devices.iter().any(|one| one.key == device.key);
            let goes_on = before.is_some_and(was_there);
            let index = panels.iter().position(|(key, _)| *key == &device.key);
            let index = index.unwrap_or_else(|| {
                let panel = Panel {
                    title: device.title.clone(),
                    layers: LAYERS.to_vec(),
                    segments: Vec::new(),
                };
                panels.push((&device.key, panel));
                panels.len().saturating_sub(1)
            });
            let Some((_, panel)) = panels.get_mut(index) else {
                continue;
            };
            if !goes_on {
                panel.segments.push(Segment::default());
            }
            if let Some(segment) = panel.segments.last_mut() {
                segment.limit = device.limit;
                segment.add(at, device.layers.clone(), device.refused);
            }
        }
        if let Some(segment) = host.segments.last_mut() {
            segment.add(at, moment.host.clone(), 0);
        }
        before = Some(moment);
    }
    let last = moments.last().map(|moment| ms(moment.at))?;
    if panels.is_empty() {
        return None;
    }
    let mut panels: Vec<Panel> = panels.into_iter().map(|(_, panel)| panel).collect();
    for panel in &mut panels {
        let unused = |index: usize| {
            let values = panel.segments.iter().flat_map(|segment| &segment.values);
            let mut amounts = values.filter_map(|(_, layers)| layers.get(index));
            amounts.all(|amount| *amount == 0)
        };
        // Memory without the library is rare: without it, it has no line in the legend.
        if unused(LAYERS.len().saturating_sub(1)) {
            panel.layers.pop();
        }
    }
    panels.push(host);
    let machine = nix::unistd::gethostname().unwrap_or_default();
    Some(Figure {
        title: "Memory of slices".to_owned(),
        subtitle: machine.to_string_lossy().into_owned(),
        from: ms(Duration::ZERO),
        to: last,
        offset: local_time::offset(start),
        panels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(used: Option<u64>, refused: u64) -> Report {
        let device = DeviceReport {
            device: Some("GPU-1".to_owned()),
            limit: Some(8 << 30),
            used,
            refused,
            ..DeviceReport::default()
        };
        Report {
            slices: vec![SliceReport {
                name: "llama".to_owned(),
                devices: vec![device],
                ..SliceReport::default()
            }],
            machine: None,
        }
    }

    #[test]
    fn each_slice_has_a_panel_with_its_limit_and_a_gap_where_it_was_away() {
        let seen = [
            report(Some(1), 0),
            report(Some(3), 2),
            Report::default(),
            report(Some(2), 2),
        ];
        let moments: Vec<Moment> = (0u64..)
            .zip(&seen)
            .map(|(second, report)| Moment::of(Duration::from_secs(second), report))
            .collect();
        let figure = figure(&moments, UNIX_EPOCH).unwrap();
        assert_eq!((figure.from, figure.to), (0, 3000));
        let [panel, host] = figure.panels.as_slice() else {
            panic!("{figure:?}");
        };
        assert_eq!(panel.title, "llama on GPU-1");
        let [first, second] = panel.segments.as_slice() else {
            panic!("{panel:?}");
        };
        assert_eq!((first.end, first.limit), (2000, Some(8 << 30)));
        assert_eq!(first.values, [(0, vec![1, 0, 0]), (1000, vec![3, 0, 0])]);
        assert_eq!(first.refusals, [(1000, 2)]);
        assert_eq!(second.values, [(3000, vec![2, 0, 0])]);
        assert_eq!(panel.layers.len(), 2);
        assert_eq!(host.layers.len(), PARTS.len() - HOST);
    }

    #[test]
    fn where_no_slice_was_seen_there_is_nothing_to_draw() {
        let moments = [Moment::of(Duration::ZERO, &Report::default())];
        assert!(figure(&moments, UNIX_EPOCH).is_none());
        assert!(figure(&[], UNIX_EPOCH).is_none());
    }
}
