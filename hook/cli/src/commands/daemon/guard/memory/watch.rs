//! The watching thread: samples the host's memory, and acts before the machine stops responding.
//! Touches: the host's meminfo and pressure files, processes through their candidates, standard error.
//! Law: after its start this thread allocates nothing, opens nothing and waits for nobody. The
//! surveying thread makes candidates for it and takes away old ones, over channels of fixed size.

use super::candidate::Candidate;
use super::ladder::{Action, Ladder};
use super::line::Line;
use super::rungs::{Level, Rungs, Verdict};
use gpuslice_config::host::meminfo::{self, HostMemory};
use gpuslice_config::host::pressure;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::page_size;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

/// A report of the watching thread.
#[derive(Clone, Copy)]
pub(crate) struct Note {
    /// The event.
    pub(crate) what: What,
    /// The message, without the name of the daemon.
    pub(crate) line: Line,
}

/// An event that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The host became shorter of memory, or less short.
    Level(Level),
    /// A process got a signal, or would have got one.
    Acted {
        /// Whether it was killed; otherwise it was asked to end.
        killed: bool,
        /// The first process.
        pid: u32,
        /// The memory that the candidate held.
        bytes: u64,
    },
    /// No candidate may get a signal.
    Nobody,
}

/// The files of the host.
#[derive(Debug)]
pub(crate) struct Host {
    meminfo: File,
    pressure: Option<File>,
}

impl Host {
    /// Opens the files.
    ///
    /// # Errors
    /// When the meminfo file cannot be opened.
    pub(crate) fn open(meminfo: &Path) -> io::Result<Host> {
        Ok(Host {
            meminfo: File::open(meminfo)?,
            pressure: File::open("/proc/pressure/memory").ok(),
        })
    }

    /// The memory now; None if the file is garbled.
    pub(crate) fn memory(&self) -> Option<HostMemory> {
        let mut text = [0u8; meminfo::HEAD];
        let read = self.meminfo.read_at(&mut text, 0).ok()?;
        meminfo::parse(text.get(..read)?)
    }

    /// The memory pressure now; None if the kernel does not report it.
    fn waiting(&self) -> Option<u32> {
        let mut text = [0u8; pressure::HEAD];
        let read = self.pressure.as_ref()?.read_at(&mut text, 0).ok()?;
        pressure::some_avg10(text.get(..read)?)
    }
}

/// The watching thread's sources and channels.
pub(crate) struct Watch {
    pub(crate) host: Host,
    pub(crate) rungs: Rungs,
    /// Whether signals are sent. If not, the lines say who would have got one.
    pub(crate) acts: bool,
    /// New candidates.
    pub(crate) fresh: Receiver<Vec<Candidate>>,
    /// Candidates that the surveying thread drops.
    pub(crate) spent: SyncSender<Vec<Candidate>>,
    pub(crate) notes: SyncSender<Note>,
    /// The level of the last sample, and its slope, for the surveying thread.
    pub(crate) level: Arc<AtomicU64>,
    pub(crate) slope: Arc<AtomicI64>,
}

/// A fall of the level must last this long before another rise is reported.
const LASTING: Duration = Duration::from_secs(5);
/// The most candidates that are named in one shortage while no signals are sent.
const NAMED: usize = 16;

/// Candidates are measured this often while the host is short of memory.
const MEASURE: Duration = Duration::from_millis(100);
/// Measurements before such a pause say nothing about growth.
const OLD: Duration = Duration::from_millis(1500);

impl Watch {
    /// Watches for as long as the surveying thread lives.
    pub(crate) fn run(mut self) {
        let start = Instant::now();
        let mut state = State::new();
        loop {
            let verdict = self.turn(&mut state, start.elapsed());
            std::thread::sleep(verdict.next);
        }
    }

    /// Takes one sample, and acts on it.
    pub(crate) fn turn(&mut self, state: &mut State, at: Duration) -> Verdict {
        self.exchange(state);
        let Some(memory) = self.host.memory() else {
            return Verdict {
                next: super::rungs::SLOW,
                ..Verdict::default()
            };
        };
        let available = memory.available.get();
        let verdict = self.rungs.sample(at, available, self.host.waiting());
        if verdict.level > Level::Calm {
            let age = state.measured.map(|last| at.saturating_sub(last));
            if age.is_none_or(|age| age >= MEASURE) {
                let is_old = age.is_none_or(|age| age >= OLD);
                state.measured = Some(at);
                let page = state.page;
                for candidate in &mut state.candidates {
                    if is_old {
                        candidate.begin_again();
                    }
                    candidate.measure(page);
                }
            }
        }
        self.tell_level(state, verdict, at, available);
        let candidates = &state.candidates;
        let all = || candidates.iter().map(|one| (one.id(), one.facts()));
        let action = state.ladder.decide(at, verdict, all);
        if state.level == Level::Calm {
            state.named = [0; NAMED];
        }
        self.act(
            &state.candidates,
            &mut state.named,
            action,
            verdict,
            available,
        );
        verdict
    }

    /// Takes over new candidates, and gives the old ones away.
    fn exchange(&mut self, state: &mut State) {
        let Ok(mut fresh) = self.fresh.try_recv() else {
            return;
        };
        for candidate in &mut fresh {
            let id = candidate.id();
            let earlier = state.candidates.iter().find(|earlier| earlier.id() == id);
            match earlier {
                Some(earlier) => candidate.continue_from(earlier),
                None => candidate.measure(state.page),
            }
        }
        let old = std::mem::replace(&mut state.candidates, fresh);
        // The channel has room: the surveying thread empties it before it sends new candidates. If it
        // has ended, this process ends too.
        let _ = self.spent.try_send(old);
    }

    /// Tells a rise of the level at once, and a fall only after it has lasted: around a threshold the
    /// level changes with every sample.
    fn tell_level(&self, state: &mut State, verdict: Verdict, at: Duration, available: u64) {
        self.level.store(verdict.level as u64, Ordering::Relaxed);
        self.slope.store(verdict.slope, Ordering::Relaxed);
        if verdict.level >= state.level {
            state.lower_since = None;
        } else {
            let since = *state.lower_since.get_or_insert(at);
            if at.saturating_sub(since) < LASTING {
                return;
            }
        }
        if verdict.level == state.level {
            return;
        }
        let was = std::mem::replace(&mut state.level, verdict.level);
        if verdict.level < was && verdict.level != Level::Calm {
            return;
        }
        let mut line = Line::new();
        let amount = Bytes::new(available);
        let _ = match verdict.level {
            Level::Calm => write!(line, "the host has enough memory again: {amount} available"),
            Level::Warn if verdict.is_pressure => {
                write!(
                    line,
                    "processes wait for memory, although {amount} of the host's memory is available"
                )
            }
            level => write!(
                line,
                "the host is short of memory (level {}): {amount} available",
                level.name()
            ),
        };
        if let (Ok(slope), true) = (u64::try_from(verdict.slope), verdict.slope > 0) {
            let _ = write!(line, ", falling by {} in a second", Bytes::new(slope));
        }
        self.note(What::Level(verdict.level), line);
    }

    fn act(
        &self,
        candidates: &[Candidate],
        named: &mut [u64; NAMED],
        action: Action,
        verdict: Verdict,
        available: u64,
    ) {
        let (place, killed) = match action {
            Action::None => return,
            Action::Nobody => {
                let mut line = Line::new();
                let _ = write!(
                    line,
                    "the host is short of memory ({} available), and no slice or program may get a signal: \
                     no slice is beyond its promise, and [guard.host] programs lists no running program",
                    Bytes::new(available)
                );
                return self.note(What::Nobody, line);
            }
            Action::Terminate(place) => (place, false),
            Action::Kill(place) => (place, true),
        };
        let Some(candidate) = candidates.get(place) else {
            return;
        };
        if !self.acts {
            let id = candidate.id();
            let place = named.iter_mut().find(|known| [0, id].contains(known));
            match place {
                Some(known) if *known == 0 => *known = id,
                _ => return,
            }
        }
        let sent = match (self.acts, killed) {
            (false, _) => 0,
            (true, false) => candidate.terminate(),
            (true, true) => candidate.kill(),
        };
        let facts = candidate.facts();
        let mut line = Line::new();
        let verb = match (self.acts, killed) {
            (false, false) => "would send SIGTERM to",
            (false, true) => "would send SIGKILL to",
            (true, false) => "sends SIGTERM to",
            (true, true) => "sends SIGKILL to",
        };
        let kind = if facts.is_slice { "slice" } else { "program" };
        let _ = write!(
            line,
            "{verb} {kind} {} (pid {}), which holds {}",
            candidate.name(),
            candidate.pid(),
            Bytes::new(facts.bytes),
        );
        if facts.is_slice {
            let _ = write!(line, " and was promised {}", Bytes::new(facts.promised));
        }
        let _ = write!(line, ": the host has {} available", Bytes::new(available));
        if let (Ok(slope), true) = (u64::try_from(verdict.slope), verdict.slope > 0) {
            let _ = write!(line, ", falling by {} in a second", Bytes::new(slope));
        }
        if self.acts {
            let noun = if sent == 1 { "process" } else { "processes" };
            let _ = write!(line, "; {sent} {noun} got the signal");
        }
        let what = What::Acted {
            killed,
            pid: candidate.pid(),
            bytes: facts.bytes,
        };
        self.note(what, line);
    }

    fn note(&self, what: What, message: Line) {
        let mut line = Line::new();
        let _ = writeln!(line, "gpusliced: {}", message.text());
        line.tell();
        // A full channel loses the note, not the line.
        let _ = self.notes.try_send(Note {
            what,
            line: message,
        });
    }
}

/// The watching thread's memory of earlier samples.
pub(crate) struct State {
    candidates: Vec<Candidate>,
    ladder: Ladder,
    /// The level that was told last.
    level: Level,
    /// The time since which the level has been lower than that.
    lower_since: Option<Duration>,
    measured: Option<Duration>,
    /// The processes that were named since the host last had enough memory, while no signals are sent.
    named: [u64; NAMED],
    page: u64,
}

impl State {
    /// Knows no candidates yet.
    pub(crate) fn new() -> State {
        State {
            candidates: Vec::new(),
            ladder: Ladder::default(),
            level: Level::Calm,
            lower_since: None,
            measured: None,
            named: [0; NAMED],
            page: page_size(),
        }
    }
}
