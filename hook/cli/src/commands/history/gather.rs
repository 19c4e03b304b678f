//! Puts the runs and containers together that events and history files tell of.
//! Touches: the event files, the history of runs, the registry, /proc.

use crate::commands::events::{is_of, read as events};
use crate::commands::status::process::Processes;
use crate::commands::status::users::{User, with_rights_of};
use crate::runs::recording::history_file::{self, RunHistory};
use crate::runs::recording::limit_changes::LimitChanges;
use crate::runs::recording::series::Series;
use crate::runs::recording::{self, RunStart};
use crate::runs::registry::{self, Entry};
use crate::runs::run_dir;
use gpuslice_host::base::clock;
use gpuslice_host::events::{DeviceUse, Event, EventKind};
use nix::unistd::geteuid;
use serde::{Serialize, Serializer};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A run or a container.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) name: String,
    pub(super) pid: Option<i32>,
    pub(super) user: Option<String>,
    pub(super) container: Option<String>,
    pub(super) simulated: bool,
    pub(super) running: bool,
    #[serde(serialize_with = "time")]
    pub(super) started: Option<SystemTime>,
    #[serde(serialize_with = "time")]
    pub(super) ended: Option<SystemTime>,
    #[serde(serialize_with = "seconds")]
    pub(super) duration: Option<Duration>,
    pub(super) devices: Vec<DeviceRow>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "points")]
    pub(super) points: Option<Series>,
    /// The limits, from each time on.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "limits")]
    pub(super) limits: Option<LimitChanges>,
    /// The devices in the order of the points.
    #[serde(skip)]
    pub(super) run: RunStart,
}

/// The kernel's times of boot and of a process's start are whole seconds.
const ROUNDED: Duration = Duration::from_secs(3);

/// The use of one device.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceRow {
    pub(super) device: String,
    pub(super) limit: Option<u64>,
    pub(super) peak: Option<u64>,
    pub(super) count: Option<u64>,
}

fn time<S: Serializer>(time: &Option<SystemTime>, out: S) -> Result<S::Ok, S::Error> {
    time.map(clock::rfc3339_ms).serialize(out)
}

fn seconds<S: Serializer>(time: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(out)
}

fn points<S: Serializer>(series: &Option<Series>, out: S) -> Result<S::Ok, S::Error> {
    let points = series.iter().flat_map(Series::points).map(|point| {
        let levels = point
            .devices
            .iter()
            .flat_map(|level| [level.used, level.refused]);
        std::iter::once(point.at)
            .chain(levels)
            .collect::<Vec<u64>>()
    });
    out.collect_seq(points)
}

fn limits<S: Serializer>(limits: &Option<LimitChanges>, out: S) -> Result<S::Ok, S::Error> {
    let changes = limits.iter().flat_map(LimitChanges::all).map(|change| {
        let limits = change.limits.iter().copied();
        std::iter::once(change.at)
            .chain(limits)
            .collect::<Vec<u64>>()
    });
    out.collect_seq(changes)
}

impl RunRow {
    fn of_end(event: &Event) -> RunRow {
        let ended = clock::parse(&event.time);
        let started = event.started.as_deref().and_then(clock::parse);
        let reckoned = || ended?.checked_sub(event.duration?);
        RunRow {
            name: event.slice.clone(),
            pid: event.pid,
            user: event.user.clone(),
            container: event.container.clone(),
            simulated: event.simulated,
            running: false,
            started: started.or_else(reckoned),
            ended,
            duration: event.duration,
            devices: event.devices.iter().map(DeviceRow::of).collect(),
            points: None,
            limits: None,
            run: RunStart::default(),
        }
    }

    /// A run that lasts.
    fn of_live(history: RunHistory) -> RunRow {
        let RunHistory {
            run,
            series,
            limits,
            ..
        } = history;
        let started = clock::parse(&run.started);
        let devices = run.devices.iter().enumerate().map(|(index, device)| {
            let levels = series.points().iter();
            let mut levels = levels.filter_map(|point| point.devices.get(index));
            DeviceRow {
                device: device.device.clone(),
                limit: Some(device.limit),
                peak: levels.clone().map(|level| level.used).max(),
                count: levels.next_back().map(|level| level.refused),
            }
        });
        RunRow {
            name: run.name.clone(),
            pid: Some(run.pid),
            user: Some(run.user.clone()),
            container: None,
            simulated: run.simulated,
            running: true,
            started,
            ended: None,
            duration: started.and_then(|started| started.elapsed().ok()),
            devices: devices.collect(),
            points: Some(series),
            limits: Some(limits),
            run,
        }
    }

    /// A container that started, and of which no end is known.
    fn of_start(event: &Event) -> RunRow {
        let started = clock::parse(&event.time);
        let pid = event.pid.and_then(|pid| u32::try_from(pid).ok());
        let age = pid.and_then(|pid| Processes::default().age(pid));
        let since = started.and_then(|started| started.elapsed().ok());
        // The hook of a live process told of its start. A younger process only has the same number: the
        // container's end was not told, for example because the machine was switched off.
        let running =
            age.is_some_and(|age| since.is_none_or(|since| since <= age.saturating_add(ROUNDED)));
        RunRow {
            running,
            started,
            ended: None,
            duration: started
                .filter(|_| running)
                .and_then(|started| started.elapsed().ok()),
            ..RunRow::of_end(event)
        }
    }
}

impl DeviceRow {
    fn of(device: &DeviceUse) -> DeviceRow {
        DeviceRow {
            device: device.device.clone(),
            limit: device.limit,
            peak: device.peak,
            count: device.count,
        }
    }
}

/// The runs and containers, and the event files that could not be read.
pub(super) struct Gathered {
    pub(super) rows: Vec<RunRow>,
    pub(super) faults: Vec<String>,
}

/// Returns the runs and containers, the oldest first; on request with their use of memory.
pub(super) fn gather(name: Option<&str>, since: Option<SystemTime>, points: bool) -> Gathered {
    // This also records the end of runs whose watchers were killed.
    let live = live();
    let (events, faults) = events::all();
    let mut rows: Vec<RunRow> = Vec::new();
    let mut containers: Vec<&Event> = Vec::new();
    for event in &events {
        let is_same = |other: &&Event| other.container == event.container && other.pid == event.pid;
        match event.event {
            EventKind::Start if event.container.is_some() => containers.push(event),
            EventKind::End => {
                containers.retain(|start| !is_same(start));
                rows.push(RunRow::of_end(event));
            }
            _ => {}
        }
    }
    rows.extend(containers.into_iter().map(RunRow::of_start));
    rows.extend(live.into_iter().map(RunRow::of_live));
    rows.retain(|row| {
        let event = Event {
            slice: row.name.clone(),
            container: row.container.clone(),
            ..Event::default()
        };
        let is_named = name.is_none_or(|name| is_of(&event, name));
        is_named && since.is_none_or(|since| row.ended.is_none_or(|ended| ended >= since))
    });
    rows.sort_by_key(|row| row.started);
    if points {
        let folders: Vec<PathBuf> = events::sources()
            .iter()
            .map(|source| history_file::folder(&source.folder))
            .collect();
        rows.iter_mut().for_each(|row| add_points(row, &folders));
    }
    Gathered { rows, faults }
}

/// Adds the use of memory of a run that has ended, if it is still kept.
fn add_points(row: &mut RunRow, folders: &[PathBuf]) {
    let (None, Some(pid), Some(started)) = (&row.points, row.pid, row.started) else {
        return;
    };
    let run = RunStart {
        name: row.name.clone(),
        pid,
        started: clock::rfc3339_ms(started),
        ..RunStart::default()
    };
    let name = history_file::name_of(&run);
    let mut found = folders
        .iter()
        .filter_map(|folder| history_file::read(&folder.join(&name)));
    if let Some(history) = found.next() {
        (row.points, row.limits, row.run) =
            (Some(history.series), Some(history.limits), history.run);
    }
}

/// The history of the runs that last: this user's, and for root everybody's.
fn live() -> Vec<RunHistory> {
    let read = |entry: Entry| {
        let private = run_dir::private_folder(&entry.file)?;
        history_file::read(&private.join(run_dir::HISTORY))
    };
    let mut live: Vec<RunHistory> = registry::running().into_iter().filter_map(read).collect();
    if !geteuid().is_root() || registry::stands_alone() {
        return live;
    }
    for (user, folder) in registry::folders_of_others() {
        let owner = recording::user_name(user.into());
        let found = with_rights_of(User(user), || {
            let links = fs::read_dir(&folder).into_iter().flatten();
            let entries = links.filter_map(|link| Entry::read(link.ok()?.path()));
            let running = entries.filter(Entry::is_running);
            running.filter_map(read).collect::<Vec<_>>()
        });
        live.extend(found.into_iter().map(|mut history| {
            history.run.user.clone_from(&owner);
            history
        }));
    }
    live
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_is_older_than_its_process_is_of_a_container_that_has_ended() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let started = |time: SystemTime, pid: Option<i32>| {
            let event = Event {
                pid,
                time: clock::rfc3339_ms(time),
                ..Event::now(EventKind::Start, "team/web", String::new())
            };
            let row = RunRow::of_start(&event);
            assert_eq!(row.running, row.duration.is_some());
            row.running
        };
        let now = SystemTime::now();
        assert!(started(now, Some(pid)));
        // Another process had the number then, before a boot or in this one.
        for seconds in [400 * 24 * 3600, 3600] {
            let age = Processes::default().age(std::process::id()).unwrap();
            let before = age.saturating_add(Duration::from_secs(seconds));
            let then = now.checked_sub(before).unwrap();
            assert!(!started(then, Some(pid)));
        }
        assert!(!started(now, None));
    }
}
