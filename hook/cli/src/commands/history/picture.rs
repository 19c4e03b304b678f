//! Makes the picture of the history: a panel for each slice and device.
//! Touches: its arguments.

use super::gather::RunRow;
use crate::base::local_time;
use crate::commands::plot::{Figure, Panel, Segment};
use crate::runs::recording::limit_changes::LimitChanges;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The only layer.
const USED: (&str, &str) = ("used", "#4c72b0");

/// The most panels.
const MOST: usize = 64;

/// Returns the picture of the last run of each slice, or of all its runs; None if nothing is to be
/// drawn.
pub(super) fn figure(rows: &[RunRow], all: bool) -> Option<Figure> {
    let mut panels: Vec<((String, String), Panel)> = Vec::new();
    let (mut from, mut to) = (u64::MAX, 0);
    // The newest come first, so that older runs of their slices are left out.
    let mut drawn: Vec<&str> = Vec::new();
    for row in rows.iter().rev() {
        let (Some(series), Some(started)) = (&row.points, row.started) else {
            continue;
        };
        if series.points().is_empty() || (!all && drawn.contains(&row.name.as_str())) {
            continue;
        }
        drawn.push(&row.name);
        let start = milliseconds(started);
        let end = row.ended.unwrap_or_else(SystemTime::now);
        let end = milliseconds(end).max(start);
        (from, to) = (from.min(start), to.max(end));
        for (index, device) in row.run.devices.iter().enumerate() {
            let mut segment = Segment {
                limit: Some(device.limit),
                ..Segment::default()
            };
            for change in row.limits.iter().flat_map(LimitChanges::all) {
                let limit = change.limits.get(index);
                let at = start.saturating_add(change.at);
                segment.limits.extend(limit.map(|limit| (at, *limit)));
            }
            for point in series.points() {
                if let Some(level) = point.devices.get(index) {
                    segment.add(
                        start.saturating_add(point.at),
                        vec![level.used],
                        level.refused,
                    );
                }
            }
            segment.end = segment.end.max(end);
            let key = (row.name.clone(), device.device.clone());
            let title = format!("{} on GPU {} ({})", row.name, device.index, device.name);
            let index = panels.iter().position(|(known, _)| *known == key);
            let has_room = panels.len() < MOST;
            match index.and_then(|index| panels.get_mut(index)) {
                Some((_, panel)) => panel.segments.push(segment),
                None if has_room => {
                    let panel = Panel {
                        title,
                        layers: vec![USED],
                        segments: vec![segment],
                    };
                    panels.push((key, panel));
                }
                None => {}
            }
        }
    }
    panels.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut names: Vec<&str> = panels.iter().map(|((name, _), _)| name.as_str()).collect();
    names.dedup();
    let title = match names.as_slice() {
        [] => return None,
        [only] => format!("GPU memory of {only}"),
        several => format!("GPU memory of {} slices", several.len()),
    };
    let host = nix::unistd::gethostname().unwrap_or_default();
    Some(Figure {
        title,
        subtitle: host.to_string_lossy().into_owned(),
        from,
        to,
        offset: local_time::offset(UNIX_EPOCH.checked_add(Duration::from_millis(from))?),
        panels: panels.into_iter().map(|(_, panel)| panel).collect(),
    })
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
