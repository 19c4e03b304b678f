//! The surveying thread: compares the driver's figures with the ledgers, and tells the watching thread
//! whom it may act on.
//! Touches: everything that a snapshot touches; processes, through pidfds; the event file.
//! Law: the cheap figure, one number for each GPU, is asked often. Lists of processes hold a global
//! lock of the driver, so they are asked at most once a second, and only if there is a reason.

use super::bypass::{self, Cases, Step};
use super::candidates;
use super::memory::candidate::Candidate;
use super::memory::rungs::Level;
use super::memory::watch::{Note, What};
use super::settings::{Memory, Settings};
use super::state::{self, GuardState};
use super::steps::{self, Denied};
use crate::commands::status::driver::Drivers;
use crate::commands::status::model::SliceStatus;
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use crate::commands::status::snapshot::refresh::Ledgers;
use crate::driver::memory_watch::{MemoryWatch, Used};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::events::{Event, EventKind};
use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The interval of the cheap figure.
const OFTEN: Duration = Duration::from_millis(500);
/// The shortest time between two snapshots.
const SHORTEST: Duration = Duration::from_secs(1);
/// The shortest time between snapshots for which there is no reason.
const IDLE: Duration = Duration::from_secs(5);
/// Without a reason, snapshots take this part of a core at most: one in two thousand.
const SHARE: u32 = 2000;
/// The longest wait for the cheap figure, and the time after which the driver counts as silent.
const WAIT: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(3);
/// A driver that was silent is asked again after this time.
const PAUSE: Duration = Duration::from_secs(30);
/// The state is written again after so many seconds, even if it is the same.
const PUBLISH_AGAIN: u64 = 5;
/// Caches are dropped at most so often.
const DROP_AGAIN: Duration = Duration::from_secs(10);

/// The surveying thread's state.
pub(crate) struct Survey {
    pub(crate) places: HostPaths,
    pub(crate) settings: Settings,
    /// The watching thread's notes; None if there is no watching thread.
    pub(crate) watch: Option<Channels>,
    drivers: Drivers,
    ledgers: Ledgers,
    snapshot: Snapshot,
    taken: Option<Taken>,
    cases: Cases,
    cheap: Cheap,
    level: Level,
    dropped: Option<Instant>,
    state: GuardState,
    /// The state that was written last.
    published: GuardState,
    /// The containers that can open no GPU any more.
    denied: Denied,
}

/// The channels to the watching thread.
pub(crate) struct Channels {
    pub(crate) notes: Receiver<Note>,
    pub(crate) fresh: SyncSender<Vec<Candidate>>,
    pub(crate) spent: Receiver<Vec<Candidate>>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: Instant,
    cost: Duration,
}

/// The cheap figure, and what it was compared with.
#[derive(Debug, Default)]
struct Cheap {
    child: Option<MemoryWatch>,
    silent: Option<Instant>,
    /// The lowest figure since the last comparison with the ledgers.
    seen: Used,
    /// The part of the figure that no ledger explained at the last snapshot.
    unexplained: BTreeMap<String, u64>,
}

impl Survey {
    /// A survey that has seen nothing yet.
    pub(crate) fn new(places: HostPaths, settings: Settings, watch: Option<Channels>) -> Survey {
        Survey {
            places,
            settings,
            watch,
            drivers: Drivers::default(),
            ledgers: Ledgers::default(),
            snapshot: Snapshot::default(),
            taken: None,
            cases: Cases::default(),
            cheap: Cheap::default(),
            level: Level::Calm,
            dropped: None,
            state: GuardState {
                schema: 1,
                ..GuardState::default()
            },
            published: GuardState::default(),
            denied: Denied::default(),
        }
    }

    /// Works until the watching thread ends.
    pub(crate) fn run(mut self, tell: fn(&str)) {
        loop {
            if !self.hear() {
                return;
            }
            if self.is_due() {
                self.survey(tell);
            }
            self.publish();
        }
    }

    /// Waits for the next turn, and records what the watching thread has told meanwhile. Returns
    /// whether that thread still works.
    fn hear(&mut self) -> bool {
        let Some(watch) = &self.watch else {
            std::thread::sleep(OFTEN);
            return true;
        };
        let end = Instant::now().checked_add(OFTEN);
        let mut wait = OFTEN;
        let mut heard = Vec::new();
        loop {
            match watch.notes.recv_timeout(wait) {
                Ok(note) => heard.push(note),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            wait = left.unwrap_or(OFTEN);
        }
        for note in heard {
            self.record(&note);
        }
        true
    }

    fn record(&mut self, note: &Note) {
        let mut event = Event::now(EventKind::Guard, "", note.line.text().to_owned());
        match note.what {
            What::Level(level) => {
                self.level = level;
                if level >= Level::Short && self.settings.memory == Memory::Act {
                    self.drop_caches();
                }
            }
            What::Acted { killed, pid, bytes } => {
                if self.settings.memory == Memory::Act {
                    self.count(killed);
                }
                event.pid = i32::try_from(pid).ok();
                event.bytes = Some(bytes);
                let has = |slice: &&SliceStatus| slice.has(pid);
                let slice = self.snapshot.slices.iter().find(has);
                event.slice = slice.map(|slice| slice.name.clone()).unwrap_or_default();
            }
            What::Nobody => {}
        }
        steps::write(&event);
    }

    /// Publishes the state if it has changed, and every few seconds, so that its age tells whether
    /// the guard works.
    fn publish(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        self.state.level = self.level as u64;
        let is_recent = now.saturating_sub(self.published.seen) < PUBLISH_AGAIN;
        self.state.seen = self.published.seen;
        if is_recent && self.state == self.published {
            return;
        }
        self.state.seen = now;
        state::write(&self.places, &self.state);
        self.published = self.state.clone();
    }

    fn count(&mut self, killed: bool) {
        let counter = match killed {
            true => &mut self.state.killed,
            false => &mut self.state.terminated,
        };
        *counter = counter.saturating_add(1);
    }

    /// Drops caches of the kernel and of drivers that have registered a shrinker. The driver's pools
    /// of freed pages are in no figure of available memory.
    fn drop_caches(&mut self) {
        if self.dropped.is_some_and(|at| at.elapsed() < DROP_AGAIN) {
            return;
        }
        self.dropped = Some(Instant::now());
        // 2 is slab caches: page cache counts as available already.
        let _ = fs::write("/proc/sys/vm/drop_caches", "2");
    }

    /// Whether there is a reason for a snapshot.
    fn is_due(&mut self) -> bool {
        let Some(taken) = self.taken else { return true };
        let age = taken.at.elapsed();
        if age < SHORTEST {
            return false;
        }
        let highest = self.settings.bypass.unwrap_or(Step::Warn);
        if self.level > Level::Calm || self.cases.is_waiting(highest) {
            return true;
        }
        if self.settings.bypass.is_some() && self.has_grown() {
            return true;
        }
        age >= IDLE.max(taken.cost.saturating_mul(SHARE))
    }

    /// Whether a GPU has more memory in use than the ledgers and the last snapshot explain.
    fn has_grown(&mut self) -> bool {
        let Some(used) = self.used() else {
            return false;
        };
        let slack = self.settings.slack.get();
        let grew = |uuid: &String, used: u64| {
            let seen = self.cheap.seen.get(uuid).copied();
            seen.is_none_or(|seen| used > seen.saturating_add(slack / 2))
        };
        let has_grown = used.iter().any(|(uuid, used)| grew(uuid, *used));
        for (uuid, now) in &used {
            let seen = self.cheap.seen.entry(uuid.clone()).or_insert(*now);
            *seen = (*seen).min(*now);
        }
        if !has_grown {
            return false;
        }
        self.ledgers.refresh(&mut self.snapshot);
        self.cheap.seen.clone_from(&used);
        self.snapshot.cards.iter().any(|card| {
            let used = used.get(&card.device).copied().unwrap_or(0);
            let unexplained = used.saturating_sub(card.in_slices);
            let before = self.cheap.unexplained.get(&card.device).copied();
            unexplained > before.unwrap_or(0).saturating_add(slack)
        })
    }

    /// Asks for the cheap figure.
    fn used(&mut self) -> Option<Used> {
        if self.cheap.silent.is_some_and(|at| at.elapsed() < PAUSE) {
            return None;
        }
        if self.cheap.child.is_none() {
            self.cheap.child = MemoryWatch::start().ok();
        }
        match self.cheap.child.as_mut()?.ask(WAIT, PATIENCE) {
            Ok(used) => used,
            Err(_) => {
                // Snapshots without a reason go on.
                self.cheap.child = None;
                self.cheap.silent = Some(Instant::now());
                None
            }
        }
    }

    fn survey(&mut self, tell: fn(&str)) {
        let start = Instant::now();
        let processes = Processes::default();
        self.snapshot = Snapshot::take(&self.places, &processes, &mut self.drivers);
        self.remember();
        if let Some(highest) = self.settings.bypass {
            let slack = self.settings.slack.get();
            let found = bypass::suspects(&self.snapshot.slices, slack);
            let pause = self.settings.pause;
            self.denied.keep(&found, tell);
            for (step, suspect) in self.cases.sample(found, start, highest, pause) {
                steps::take(step, &suspect, &processes, &mut self.denied, tell);
                match step {
                    Step::Warn => self.state.named = self.state.named.saturating_add(1),
                    Step::Deny => {}
                    Step::Terminate | Step::Kill => self.count(step == Step::Kill),
                }
            }
        }
        if let Some(watch) = &self.watch {
            while watch.spent.try_recv().is_ok() {}
            let fresh = candidates::candidates(&self.snapshot, &processes, &self.settings.programs);
            // A channel that is still full has candidates that are hardly older.
            let _ = watch.fresh.try_send(fresh);
        }
        self.taken = Some(Taken {
            at: start,
            cost: start.elapsed(),
        });
    }

    /// Remembers what no ledger explains.
    fn remember(&mut self) {
        for card in &self.snapshot.cards {
            let unexplained = card.used.unwrap_or(0).saturating_sub(card.in_slices);
            let known = self.cheap.unexplained.entry(card.device.clone());
            *known.or_default() = unexplained;
        }
    }
}
