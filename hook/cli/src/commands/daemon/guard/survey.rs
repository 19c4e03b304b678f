//! The surveying thread: compares the driver's figures with the ledgers, and tells the watching thread
//! whom it may act on.
//! Touches: everything that a snapshot touches; processes, through pidfds; the event file.
//! Law: the cheap figure, one number for each GPU, is asked often. A list of processes holds a global
//! lock of the driver, so it is asked at most once a second if there is a reason, and otherwise every
//! 5 to 60 seconds.

use super::bypass::{self, Cases, Step};
use super::candidates;
use super::cheap::Cheap;
use super::denied::Denied;
use super::memory::candidate::Candidate;
use super::memory::rungs::Level;
use super::memory::watch::{Host, Note, What};
use super::settings::{Memory, Settings};
use super::state::{self, GuardState};
use super::steps;
use crate::commands::status::driver::Drivers;
use crate::commands::status::model::SliceStatus;
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use crate::commands::status::snapshot::refresh::Ledgers;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::machine::guard::SCHEMA;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The interval of the cheap figure.
const OFTEN: Duration = Duration::from_millis(500);
/// The shortest time between two snapshots.
const SHORTEST: Duration = Duration::from_secs(1);
/// The shortest and the longest time between snapshots for which there is no reason.
const IDLE: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);
/// Between these, snapshots without a reason take this part of a core: one in two thousand.
const SHARE: u32 = 2000;
/// The state is written again at least this often, in seconds.
const PUBLISH_AGAIN: u64 = 5;
/// The bytes in a second by which the memory must fall to be a reason for a snapshot near the reserve.
const FALLING: i64 = 64 << 20;
/// Caches are dropped at most this often.
const DROP_AGAIN: Duration = Duration::from_secs(10);

/// The surveying thread's state.
pub(crate) struct Survey {
    pub(crate) places: HostPaths,
    pub(crate) settings: Settings,
    tell: fn(&str),
    /// The channels to the watching thread; None if there is none.
    watch: Option<Channels>,
    /// Whether the watching thread sends signals.
    acts: bool,
    drivers: Drivers,
    ledgers: Ledgers,
    snapshot: Snapshot,
    taken: Option<Taken>,
    cases: Cases,
    cheap: Cheap,
    /// Whether the drivers were asked before.
    has_asked: bool,
    dropped: Option<Instant>,
    /// Whether the watched memory is this host's: only then are its caches dropped.
    is_own_host: bool,
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
    /// The level of the last sample, and its slope.
    pub(crate) level: Arc<AtomicU64>,
    pub(crate) slope: Arc<AtomicI64>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: Instant,
    /// The time that it took; none for the first one, which asks CUDA.
    cost: Option<Duration>,
}

impl Survey {
    /// A survey that has seen nothing yet.
    pub(crate) fn new(
        places: HostPaths,
        settings: Settings,
        host: Option<Host>,
        tell: fn(&str),
    ) -> Survey {
        let denied = Denied::new(&places, tell);
        Survey {
            places,
            settings,
            tell,
            watch: None,
            acts: false,
            drivers: Drivers::default(),
            ledgers: Ledgers::default(),
            snapshot: Snapshot::default(),
            taken: None,
            cases: Cases::default(),
            cheap: Cheap::of(host),
            has_asked: false,
            dropped: None,
            is_own_host: false,
            state: GuardState {
                schema: SCHEMA,
                ..GuardState::default()
            },
            published: GuardState::default(),
            denied,
        }
    }

    /// The treatment of the host's memory unless it is configured: it is watched if a GPU shares it,
    /// or if the driver does not say.
    pub(crate) fn memory_by_gpus(&self) -> Memory {
        let cards = &self.snapshot.cards;
        match cards.is_empty() || cards.iter().any(|card| card.may_be_unified) {
            true => Memory::Warn,
            false => Memory::Off,
        }
    }

    /// Works with a watching thread from now on.
    pub(crate) fn with(mut self, watch: Channels, acts: bool, is_own_host: bool) -> Survey {
        (self.watch, self.acts) = (Some(watch), acts);
        self.is_own_host = is_own_host;
        // It needs candidates at once.
        self.taken = None;
        self
    }

    /// Works until the watching thread ends.
    pub(crate) fn run(mut self) {
        loop {
            if self.is_due() {
                self.survey();
            }
            self.publish();
            if !self.hear() {
                return;
            }
        }
    }

    /// The level of the host's memory.
    fn level(&self) -> u64 {
        let level = self
            .watch
            .as_ref()
            .map(|watch| watch.level.load(Ordering::Relaxed));
        level.unwrap_or(0)
    }

    /// The time until the next turn. After a snapshot, a turn comes as soon as the next one is allowed:
    /// memory that escapes right after a snapshot is noticed within a second, too.
    fn pause(&self) -> Duration {
        let age = self.taken.map(|taken| taken.at.elapsed());
        let until_allowed = age.and_then(|age| SHORTEST.checked_sub(age));
        until_allowed.map_or(OFTEN, |left| left.min(OFTEN))
    }

    /// Waits for the next turn, and records what the watching thread has told meanwhile. Returns
    /// whether that thread still works.
    fn hear(&mut self) -> bool {
        let pause = self.pause();
        let Some(watch) = &self.watch else {
            std::thread::sleep(pause);
            return true;
        };
        let end = Instant::now().checked_add(pause);
        let mut wait = pause;
        let mut heard = Vec::new();
        loop {
            match watch.notes.recv_timeout(wait) {
                Ok(note) => heard.push(note),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            wait = left.unwrap_or(pause);
        }
        for note in heard {
            self.record(&note);
        }
        true
    }

    fn record(&mut self, note: &Note) {
        let mut event = Event::now(EventKind::Guard, "", note.line.text().to_owned());
        match note.what {
            What::Level(_) | What::Nobody => {}
            What::Acted { killed, pid, bytes } => {
                if self.acts {
                    self.count(killed);
                }
                event.warned = !self.acts;
                event.pid = i32::try_from(pid).ok();
                event.bytes = Some(bytes);
                let has = |slice: &&SliceStatus| slice.has(pid);
                let slice = self.snapshot.slices.iter().find(has);
                event.slice = slice.map(|slice| slice.name.clone()).unwrap_or_default();
                event.pod = slice.and_then(|slice| slice.pod.clone());
            }
        }
        steps::write(&event);
    }

    /// Publishes the state if it has changed, and every few seconds, so that its age tells whether
    /// the guard works.
    fn publish(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        self.state.level = self.level();
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

    /// Drops caches of the kernel and of drivers that have registered a shrinker: the driver's pools of
    /// freed pages are in no figure of available memory. It may take seconds, so a thread does it.
    fn drop_caches(&mut self) {
        let is_short = self.acts && self.is_own_host && self.level() >= Level::Short as u64;
        if !is_short || self.dropped.is_some_and(|at| at.elapsed() < DROP_AGAIN) {
            return;
        }
        self.dropped = Some(Instant::now());
        // 2 is slab caches: page cache counts as available already.
        let drop = || drop(fs::write("/proc/sys/vm/drop_caches", "2"));
        let _ = std::thread::Builder::new().spawn(drop);
    }

    /// Drops caches if the host is short of memory. Returns whether a snapshot is due.
    fn is_due(&mut self) -> bool {
        self.drop_caches();
        let Some(taken) = self.taken else { return true };
        let age = taken.at.elapsed();
        if age < SHORTEST {
            return false;
        }
        let falls = |watch: &Channels| watch.slope.load(Ordering::Relaxed) > FALLING;
        let is_short = self.level() >= Level::Short as u64
            || self.level() >= Level::Warn as u64 && self.watch.as_ref().is_some_and(falls);
        let highest = self.settings.bypass.unwrap_or(Step::Warn);
        if is_short || self.cases.is_waiting(highest) {
            return true;
        }
        // A container gets its GPUs back after several snapshots.
        if self.denied.is_any() && age >= IDLE {
            return true;
        }
        let slack = self.settings.slack.get();
        let (snapshot, ledgers) = (&mut self.snapshot, &mut self.ledgers);
        if self.settings.bypass.is_some() && self.cheap.has_grown(snapshot, ledgers, slack) {
            return true;
        }
        let pause = taken.cost.map_or(IDLE, |cost| cost.saturating_mul(SHARE));
        age >= pause.clamp(IDLE, LONGEST)
    }

    /// Takes a snapshot, and does what follows from it.
    pub(crate) fn survey(&mut self) {
        let (start, tell) = (Instant::now(), self.tell);
        let processes = Processes::default();
        self.snapshot = Snapshot::take(&self.places, &processes, &mut self.drivers);
        self.state.snapshots = self.state.snapshots.saturating_add(1);
        self.cheap.remember(&self.snapshot);
        if let Some(highest) = self.settings.bypass {
            let slack = self.settings.slack.get();
            let found = bypass::suspects(&self.snapshot.slices, slack);
            let pause = self.settings.pause;
            self.denied.keep(&found, tell);
            let due = self.cases.sample(found.clone(), start, highest, pause);
            self.state.beyond = self.cases.beyond(&found);
            for (step, suspect) in due {
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
            cost: self.has_asked.then(|| start.elapsed()),
        });
        self.has_asked = true;
    }
}
