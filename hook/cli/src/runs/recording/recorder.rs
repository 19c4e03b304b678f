//! Follows a running slice from its watcher: samples the ledger, and writes refusals and the end.
//! Touches: the ledger, by reading it through the watcher's descriptor; what the room touches.
//! Law: at most one look each second. Never a mapping, so a truncated ledger harms no watcher; never
//! a lock that another process waits for.

use super::history_file::{self, LiveFile, RunHistory};
use super::limit_changes::limits_of;
use super::refusal_command::RefusalCommand;
use super::series::{Level, Point};
use super::{RunStart, store_of, write};
use crate::runs::run_dir;
use crate::slice::file as slice_file;
use crate::slice::ledger as slice_ledger;
use gpuslice_config::ledger::{LedgerError, Refusals, Snapshot, fingerprint};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::clock;
use gpuslice_host::events::store::Store;
use gpuslice_host::events::{DeviceUse, Event, EventKind};
use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The interval between two looks at the ledger.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// After so many looks the ledger is read even if nothing in it has changed: a process may have
/// been killed.
const LOOKS: u32 = 10;

/// The shortest and the longest time between two lines about refusals on one device.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3600);

/// The watcher's descriptor of the ledger.
pub(crate) const LEDGER: &CStr = c"/proc/self/fd/0";

/// What is known of one device.
#[derive(Clone, Debug, Default)]
struct Known {
    peak: u64,
    refusals: Refusals,
    /// The number of refusals of which a line was written.
    told: u64,
    last_line: Option<Instant>,
    pause: Duration,
}

/// A run that is being recorded.
#[derive(Debug)]
pub(crate) struct Recorder {
    store: Store,
    history: RunHistory,
    start: Instant,
    known: Vec<Known>,
    fingerprint: Option<u64>,
    looks: u32,
    live: Option<LiveFile>,
    command: Option<RefusalCommand>,
    /// Room for a copy of the ledger.
    place: Vec<u8>,
    /// The reason why the ledger is no longer read.
    failure: Option<LedgerError>,
}

impl Recorder {
    /// Begins to record the run of a private folder, if it is to be recorded.
    pub(crate) fn begin(private: &Path) -> Option<Recorder> {
        let path = private.join(run_dir::HISTORY);
        let history = history_file::read(&path)?;
        let length = fs::metadata(LEDGER.to_str().ok()?).map_or(0, |facts| facts.len());
        Some(Recorder {
            store: store_of(private)?,
            start: Instant::now(),
            known: vec![Known::default(); history.run.devices.len()],
            history,
            fingerprint: None,
            looks: 0,
            live: LiveFile::open(path).ok(),
            command: RefusalCommand::take(private),
            place: vec![0; usize::try_from(length.min(MOST)).unwrap_or(0)],
            failure: None,
        })
    }

    /// Looks at the ledger once. The watcher does so at every interval.
    pub(crate) fn look(&mut self) {
        if self.failure.is_some() {
            return;
        }
        match fingerprint(LEDGER) {
            Ok(found) if self.fingerprint == Some(found) && self.looks < LOOKS => {
                self.looks = self.looks.saturating_add(1);
            }
            Ok(found) => {
                (self.fingerprint, self.looks) = (Some(found), 0);
                if let Err(error) = self.sample(Whose::Living) {
                    self.failure = Some(error);
                }
            }
            Err(error) => self.failure = Some(error),
        }
        self.tell_refusals();
    }

    /// Reads the ledger, and adds a point to the history.
    fn sample(&mut self, whose: Whose) -> Result<(), LedgerError> {
        let snapshot = Snapshot::read_link(LEDGER, &mut self.place)?;
        let devices = self.history.run.devices.iter();
        let uuids: Vec<_> = devices.map(|one| one.device.parse().ok()).collect();
        let at = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = limits_of(&self.history.run);
        for (uuid, limit) in snapshot.limits() {
            let index = uuids.iter().position(|known| *known == Some(uuid));
            if let Some(device) = index.and_then(|index| self.history.run.devices.get_mut(index)) {
                device.limit = limit.get();
            }
        }
        let after = limits_of(&self.history.run);
        let mut levels = vec![Level::default(); uuids.len()];
        for record in snapshot.slots() {
            let index = uuids
                .iter()
                .position(|uuid| uuid.is_some() && *uuid == record.device);
            let Some(index) = index else { continue };
            let (level, known) = (levels.get_mut(index), self.known.get_mut(index));
            match (record.alive, level, known) {
                (true, Some(level), _) => level.used = level.used.saturating_add(record.used),
                // What a process held when it ended is no more than the peak.
                (false, _, Some(known)) if whose == Whose::Everybodys => {
                    known.peak = known.peak.max(record.used);
                }
                _ => {}
            }
        }
        for (uuid, refusals) in snapshot.refusals() {
            if let Some(index) = uuids.iter().position(|known| *known == Some(uuid))
                && let (Some(level), Some(known)) =
                    (levels.get_mut(index), self.known.get_mut(index))
            {
                known.refusals = refusals;
                // Without enforcement the ledger counts what would have been refused.
                level.refused = if self.history.run.enforce {
                    refusals.count
                } else {
                    0
                };
            }
        }
        for (known, level) in self.known.iter_mut().zip(&levels) {
            known.peak = known.peak.max(level.used);
        }
        let changes = self.history.limits.add(at, before, after);
        if let Some(live) = &mut self.live {
            let each = changes.iter();
            each.for_each(|change| live.add_limits(&self.history, change));
        }
        let point = Point {
            at,
            devices: levels,
        };
        if self.history.series.push(point.clone())
            && let Some(live) = &mut self.live
        {
            live.add(&self.history, &point);
        }
        Ok(())
    }

    /// Writes a line for each device on which allocations were refused since its last line. A
    /// program that is refused all the time gets fewer and fewer lines; each has the count so far.
    fn tell_refusals(&mut self) {
        // The ledger counts requests over the limit also where none is refused.
        if !self.history.run.enforce {
            return;
        }
        let now = Instant::now();
        let used: Vec<u64> = match self.history.series.points().last() {
            Some(point) => point.devices.iter().map(|level| level.used).collect(),
            None => Vec::new(),
        };
        let all = self.known.iter().map(|known| known.refusals.count);
        let all = all.fold(0, u64::saturating_add);
        for (index, device) in self.history.run.devices.iter().enumerate() {
            let Some(known) = self.known.get_mut(index) else {
                continue;
            };
            if known.refusals.count <= known.told {
                continue;
            }
            let since = known
                .last_line
                .map(|last| now.saturating_duration_since(last));
            let waits = since.is_some_and(|since| since < known.pause);
            let event = refusal(&self.history.run, device, known, used.get(index).copied());
            if let Some(command) = &mut self.command {
                command.refused(all, &event);
            }
            if waits {
                continue;
            }
            // A pause without refusals makes the next line prompt again.
            let is_quiet = since.is_none_or(|since| since > known.pause.saturating_mul(4));
            known.pause = match is_quiet {
                true => SHORTEST,
                false => known.pause.saturating_mul(2).min(LONGEST),
            };
            (known.told, known.last_line) = (known.refusals.count, Some(now));
            write(&self.store, &event);
        }
    }

    /// Records the end.
    pub(crate) fn end(mut self, private: &Path) {
        if self.failure.is_none()
            && let Err(error) = self.sample(Whose::Everybodys)
        {
            self.failure = Some(error);
        }
        for known in &mut self.known {
            known.last_line = None;
        }
        self.tell_refusals();
        if !claim(private) {
            return;
        }
        let duration = self.start.elapsed();
        let event = end(&self.history.run, &self.known, duration, self.failure);
        self.history.end = Some(event.clone());
        let _ = history_file::store(&self.store, &self.history);
        write(&self.store, &event);
    }
}

/// The length of the longest ledger.
const MOST: u64 = gpuslice_config::ledger::MAX_SIZE as u64;

/// The slots of which a sample takes the amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Those of living processes.
    Living,
    /// Also those of processes that have ended, for the peak.
    Everybodys,
}

/// Claims the right to write the end of a run: once, whoever comes first. If the program removed
/// the folder, only the watcher is left to write it.
fn claim(private: &Path) -> bool {
    let (from, to) = (
        private.join(run_dir::HISTORY),
        private.join("history.ended"),
    );
    fs::rename(from, to).is_ok() || !private.exists()
}

/// Records the end of a run whose watcher has not, with what is left in its private folder, and why.
pub(crate) fn end_lost(private: &Path, why: &str) {
    let Some(store) = store_of(private) else {
        return;
    };
    let Some(mut history) = history_file::read(&private.join(run_dir::HISTORY)) else {
        return;
    };
    if !claim(private) {
        return;
    }
    let file = private.join(run_dir::SLICE);
    let slice = slice_file::read(&file).ok();
    let ledger = slice.and_then(|slice| slice_ledger::path(&file, &slice));
    let refusals = ledger
        .map(|ledger| slice_ledger::refusals(&ledger))
        .unwrap_or_default();
    let points = history.series.points();
    let devices = history.run.devices.iter().enumerate();
    let known = devices.map(|(index, device)| {
        let levels = points.iter().filter_map(|point| point.devices.get(index));
        let uuid = device.device.parse().ok();
        let found = refusals.iter().find(|(known, _)| Some(*known) == uuid);
        Known {
            peak: levels.map(|level| level.used).max().unwrap_or(0),
            refusals: found.map_or_else(Refusals::default, |(_, refusals)| *refusals),
            ..Known::default()
        }
    });
    let known: Vec<Known> = known.collect();
    let started = clock::parse(&history.run.started).unwrap_or_else(SystemTime::now);
    let duration = SystemTime::now()
        .duration_since(started)
        .unwrap_or_default();
    let mut event = end(&history.run, &known, duration, None);
    event.message.push_str("; ");
    event.message.push_str(why);
    history.end = Some(event.clone());
    let _ = history_file::store(&store, &history);
    write(&store, &event);
}

fn refusal(
    run: &RunStart,
    device: &super::LimitedDevice,
    known: &Known,
    used: Option<u64>,
) -> Event {
    let Refusals { count, regret } = known.refusals;
    let (limit, on) = (Bytes::new(device.limit), device.index);
    let used_text = used.map_or_else(|| "?".to_owned(), |used| Bytes::new(used).to_string());
    let message = match count {
        1 => format!(
            "was refused an allocation on GPU {on}, {regret} short: {used_text} of {limit} in use"
        ),
        _ => format!(
            "was refused {count} allocations on GPU {on} so far, at worst {regret} short: {used_text} \
             of {limit} in use"
        ),
    };
    Event {
        device: Some(device.device.clone()),
        bytes: Some(regret.get()),
        limit: Some(device.limit),
        used,
        count: Some(count),
        started: Some(run.started.clone()),
        ..run.event(EventKind::Refusal, message)
    }
}

fn end(run: &RunStart, known: &[Known], duration: Duration, failure: Option<LedgerError>) -> Event {
    let refused = known.iter().map(|known| known.refusals.count);
    let refused = refused.fold(0, u64::saturating_add);
    let worst = known.iter().map(|known| known.refusals.regret).max();
    let worst = worst.unwrap_or(Bytes::ZERO);
    let seconds = Duration::from_secs(duration.as_secs());
    let mut message = format!("ended after {}", crate::base::text::duration(seconds));
    if let ([only], [device]) = (known, run.devices.as_slice()) {
        let (peak, limit) = (Bytes::new(only.peak), Bytes::new(device.limit));
        message.push_str(&format!(", peak {peak} of {limit} (sampled each second)"));
    }
    match refused {
        0 => {}
        _ if !run.enforce => message.push_str(&format!(
            "; {refused} {} over the limit, at worst by {worst}, and nothing was refused",
            if refused == 1 {
                "allocation was"
            } else {
                "allocations were"
            }
        )),
        1 => message.push_str(&format!("; an allocation was refused, {worst} short")),
        _ => message.push_str(&format!(
            "; {refused} allocations were refused, at worst {worst} short"
        )),
    }
    if let Some(failure) = failure {
        message.push_str(&format!(
            "; the peak and the refusals may be higher: {failure}"
        ));
    }
    let devices = run
        .devices
        .iter()
        .zip(known)
        .map(|(device, known)| DeviceUse {
            device: device.device.clone(),
            limit: Some(device.limit),
            peak: Some(known.peak),
            count: Some(if run.enforce { known.refusals.count } else { 0 }),
            bytes: (run.enforce && known.refusals.count > 0).then_some(known.refusals.regret.get()),
        });
    let event = Event {
        started: Some(run.started.clone()),
        duration: Some(duration),
        ..run.event(EventKind::End, message)
    };
    event.with_devices(devices.collect())
}
