//! The surveying thread: compares the driver's figures with the ledgers, and tells the watching thread
//! whom it may act on.
//! Touches: everything that a snapshot touches; processes, through pidfds; the event file.
//! Law: the cheap figure, one number for each GPU, is asked often. Lists of processes hold a global
//! lock of the driver, so they are asked at most once a second, and only if there is a reason.

use super::bypass::{self, Cases, Step, Suspect};
use super::memory::candidate::{Begin, Candidate};
use super::memory::rungs::Level;
use super::memory::watch::{Note, What};
use super::settings::{Memory, Settings};
use crate::commands::status::driver::Drivers;
use crate::commands::status::model::{DeviceStatus, SliceStatus};
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use crate::commands::status::snapshot::refresh::Ledgers;
use crate::driver::memory_watch::{MemoryWatch, Used};
use crate::runs::guard_state::{self, GuardState};
use crate::runs::process::Process;
use crate::runs::{recording, run_dir};
use gpuslice_config::slice::host_reserve::HOST_ALLOWANCE;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::events::{Event, EventKind};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
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
        write(&event);
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
        guard_state::write(&self.places, &self.state);
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
            for (step, suspect) in self.cases.sample(found, start, highest, pause) {
                take_step(step, &suspect, &processes, tell);
                match step {
                    Step::Warn => self.state.named = self.state.named.saturating_add(1),
                    Step::Terminate | Step::Kill => self.count(step == Step::Kill),
                }
            }
        }
        if let Some(watch) = &self.watch {
            while watch.spent.try_recv().is_ok() {}
            let fresh = candidates(&self.snapshot, &processes, &self.settings.programs);
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

fn take_step(step: Step, suspect: &Suspect, processes: &Processes, tell: fn(&str)) {
    let Suspect {
        slice,
        pid,
        name,
        device,
        ..
    } = suspect;
    let bytes = Bytes::new(suspect.bytes);
    let why = match suspect.has_library {
        false => "it has not loaded libgpuslice.so",
        true => "the library has not counted it",
    };
    let sent = match step {
        Step::Warn => String::new(),
        Step::Terminate => signal(suspect, processes, Signal::SIGTERM),
        Step::Kill => signal(suspect, processes, Signal::SIGKILL),
    };
    let message = format!(
        "process {name} (pid {pid}) of slice {slice} holds {bytes} on {device} beyond its slice: \
         {why}{sent}"
    );
    tell(&message);
    write(&Event {
        pid: i32::try_from(*pid).ok(),
        device: Some(device.clone()),
        bytes: Some(suspect.bytes),
        limit: suspect.limit,
        ..Event::now(EventKind::Escape, slice, message)
    });
}

/// Sends a signal to a suspect. Returns what happened, as the end of a sentence.
fn signal(suspect: &Suspect, processes: &Processes, signal: Signal) -> String {
    let sent =
        open(suspect.pid, suspect.user, processes).and_then(|process| process.signal(signal));
    match sent {
        Ok(()) => format!("; it got {}", signal.as_str()),
        Err(error) => format!(
            "; it could not be sent {}: {}",
            signal.as_str(),
            error.desc()
        ),
    }
}

/// Opens a process of a slice.
///
/// # Errors
/// EPERM if the process is another user's: the user of a run could name any process in its files.
/// ESRCH if it has ended since it was listed.
fn open(pid: u32, user: Option<u32>, processes: &Processes) -> Result<Process, Errno> {
    if user.is_some_and(|user| processes.user(pid) != Some(user)) {
        return Err(Errno::EPERM);
    }
    let number = i32::try_from(pid).map_err(|_| Errno::ESRCH)?;
    let process = Process::open(Pid::from_raw(number)).map_err(|_| Errno::ESRCH)?;
    match processes.is_still(pid) {
        true => Ok(process),
        false => Err(Errno::ESRCH),
    }
}

fn write(event: &Event) {
    if let Some(store) = recording::store() {
        recording::write(&store, event);
    }
}

/// Lists whom the watching thread may act on: slices on unified memory, and the operator's programs.
fn candidates(snapshot: &Snapshot, processes: &Processes, programs: &[String]) -> Vec<Candidate> {
    let is_still = |pid| processes.is_still(pid);
    let mut found = Vec::new();
    let mut in_slices = BTreeSet::new();
    for slice in &snapshot.slices {
        let pids = members(slice, processes);
        in_slices.extend(pids.iter().copied());
        let is_unified = |device: &&DeviceStatus| device.unified == Some(true);
        let devices = slice.devices.iter().filter(is_unified);
        let promised = slice.promise.as_ref().map(|promise| promise.budget);
        let limit = devices.clone().filter_map(|device| device.limit).max();
        let Some(promised) = promised.or(limit) else {
            continue;
        };
        let held = devices.map(|device| {
            let escaped = device.without_library.iter().filter_map(|one| one.used);
            let counted = device.used.unwrap_or(0);
            let counted = escaped.fold(counted, u64::saturating_add);
            counted.max(device.driver_used.unwrap_or(0))
        });
        let begin = Begin {
            name: crate::commands::status::model::shown_name(&slice.name, &slice.file),
            is_slice: true,
            promised,
            device: held.fold(0, u64::saturating_add),
            allowance: HOST_ALLOWANCE.get(),
            pids,
        };
        let promise = slice.promise.as_ref().map(|promise| promise.file.as_path());
        found.extend(Candidate::open(begin, promise, is_still));
    }
    if programs.is_empty() {
        return found;
    }
    let own = std::process::id();
    for pid in processes.all().keys().copied() {
        let name = processes.name(pid).filter(|name| programs.contains(name));
        let Some(name) = name.filter(|_| pid > 1 && pid != own && !in_slices.contains(&pid)) else {
            continue;
        };
        let begin = Begin {
            name,
            pids: vec![pid],
            ..Begin::default()
        };
        found.extend(Candidate::open(begin, None, is_still));
    }
    found
}

/// The processes of a slice: those that hold device memory, the command or the containers' first
/// processes, and their descendants. The shell that `gpuslice env` printed variables for is not one.
fn members(slice: &SliceStatus, processes: &Processes) -> Vec<u32> {
    let is_printed = slice.file.with_file_name(run_dir::PRINTED).exists();
    let command = slice.pid.filter(|_| !is_printed);
    let first = slice.containers.iter().map(|container| container.pid);
    let first = command.into_iter().chain(first);
    let mut pids: Vec<u32> = first.filter_map(|pid| u32::try_from(pid).ok()).collect();
    for device in &slice.devices {
        let named = device.processes.iter().filter(|one| one.name.is_some());
        pids.extend(named.map(|one| one.pid));
        pids.extend(device.without_library.iter().map(|one| one.pid));
    }
    let known: BTreeSet<u32> = pids.iter().copied().collect();
    let all = processes.all().keys().copied();
    pids.extend(all.filter(|pid| processes.descends_from(*pid, &known)));
    let mut taken = BTreeSet::new();
    let own = std::process::id();
    // The user of a run could name any process in its files.
    let is_users = |pid: u32| {
        let user = slice.user.map(|user| user.0);
        user.is_none_or(|user| processes.user(pid) == Some(user))
    };
    pids.retain(|pid| *pid > 1 && *pid != own && taken.insert(*pid) && is_users(*pid));
    pids
}
