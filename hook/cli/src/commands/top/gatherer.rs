//! Reads the slices at each interval, in a thread of its own, so that keys are answered at once.
//! Touches: everything that `status` touches; the CPU time of this thread and of its children.
//! Law: reading takes about one percent of a core at most, at an interval of a second. Most
//! refreshes read the ledgers only. A whole snapshot, which also reads /proc and queries NVML, is
//! taken when slices start or end, and otherwise as seldom as its cost demands.

use super::events::Event;
use super::rows::Rows;
use crate::commands::status::driver::Drivers;
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use crate::commands::status::snapshot::refresh::Ledgers;
use crate::runs::registry;
use gpuslice_host::base::paths::HostPaths;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The shortest time between whole snapshots: if slices started or ended, and otherwise.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(5);
/// A snapshot is not repeated before this many times its own CPU time: one percent of a core if
/// slices start and end all the time, and a quarter of that otherwise.
const SOON_SHARE: u32 = 100;
const LATER_SHARE: u32 = 400;

/// Starts the thread. It takes new intervals, and None for a pause.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn start(
    places: HostPaths,
    interval: Duration,
    to: Sender<Event>,
) -> io::Result<Sender<Option<Duration>>> {
    let (control, changes) = channel();
    thread::Builder::new()
        .name("slices".to_owned())
        .spawn(move || gather(places, interval, &to, &changes))?;
    Ok(control)
}

/// Ends when the receiver of the rows is gone.
fn gather(
    places: HostPaths,
    interval: Duration,
    to: &Sender<Event>,
    changes: &Receiver<Option<Duration>>,
) {
    let mut gatherer = Gatherer::new(places);
    let mut interval = Some(interval);
    let mut due = Instant::now();
    loop {
        let now = Instant::now();
        let wait = interval.map(|_| due.saturating_duration_since(now));
        let change = match wait {
            Some(wait) => changes.recv_timeout(wait),
            None => changes.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match change {
            Ok(change) => {
                interval = change;
                let soonest = Instant::now();
                due = interval.map_or(soonest, |interval| {
                    due.min(soonest.checked_add(interval).unwrap_or(soonest))
                });
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let rows = gatherer.rows();
        if to.send(Event::Refreshed(Box::new(rows))).is_err() {
            return;
        }
        let start = Instant::now();
        let next = interval.and_then(|interval| due.checked_add(interval));
        due = next.filter(|next| *next > start).unwrap_or_else(|| {
            let interval = interval.unwrap_or_default();
            start.checked_add(interval).unwrap_or(start)
        });
    }
}

/// The last snapshot, and what it takes to keep it up to date.
struct Gatherer {
    places: HostPaths,
    drivers: Drivers,
    ledgers: Ledgers,
    snapshot: Snapshot,
    /// The time of the last whole snapshot; None before the first.
    taken: Option<Instant>,
    /// The CPU time that it took.
    cost: Duration,
    /// The folders in which a file appears or disappears when a slice starts or ends.
    folders: Vec<(PathBuf, Option<SystemTime>)>,
    /// Whether a process or a ledger was found that the snapshot does not have.
    has_more: bool,
}

impl Gatherer {
    fn new(places: HostPaths) -> Gatherer {
        Gatherer {
            places,
            drivers: Drivers::default(),
            ledgers: Ledgers::default(),
            snapshot: Snapshot::default(),
            taken: None,
            cost: Duration::ZERO,
            folders: Vec::new(),
            has_more: false,
        }
    }

    fn rows(&mut self) -> Rows {
        match self.is_due() {
            true => self.take(),
            false => self.has_more |= !self.ledgers.refresh(&mut self.snapshot),
        }
        Rows::of(&self.snapshot)
    }

    /// Whether a whole snapshot is to be taken.
    fn is_due(&self) -> bool {
        let Some(taken) = self.taken else {
            return true;
        };
        let age = taken.elapsed();
        let is_older =
            |least: Duration, share: u32| age >= least.max(self.cost.saturating_mul(share));
        is_older(LATER, LATER_SHARE)
            || (is_older(SOON, SOON_SHARE) && (self.has_more || self.has_changed()))
    }

    fn has_changed(&self) -> bool {
        self.folders
            .iter()
            .any(|(folder, known)| changed(folder) != *known)
    }

    fn take(&mut self) {
        let before = cpu_time();
        let mut folders = registry::all_folders();
        folders.push(self.places.slices());
        self.folders = folders
            .into_iter()
            .map(|folder| {
                let known = changed(&folder);
                (folder, known)
            })
            .collect();
        self.snapshot = Snapshot::take(&self.places, &Processes::default(), &mut self.drivers);
        self.has_more = false;
        self.taken = Some(Instant::now());
        self.cost = cpu_time().saturating_sub(before);
    }
}

fn changed(folder: &PathBuf) -> Option<SystemTime> {
    std::fs::metadata(folder)
        .and_then(|facts| facts.modified())
        .ok()
}

/// Returns the CPU time of this thread and of the children that have ended.
fn cpu_time() -> Duration {
    let of = |who| getrusage(who).map_or(Duration::ZERO, |usage| time(&usage));
    of(UsageWho::RUSAGE_THREAD).saturating_add(of(UsageWho::RUSAGE_CHILDREN))
}

fn time(usage: &Usage) -> Duration {
    let of = |time: TimeVal| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
        Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros))
    };
    of(usage.user_time()).saturating_add(of(usage.system_time()))
}
