//! Drops model files from the page cache when their last user has ended: a part of `gpusliced`. It
//! serves programs that no preload reaches (static ones, Go's), and programs that were killed.
//! Touches: fanotify on the filesystems that its policy names, the page cache; the folders
//! themselves, by reading them, if the kernel has lost events.
//! Law: it never blocks another process. A drop that comes too early costs a second read, no more.

mod closes;
mod marks;
mod mounts;

use super::choose::{Candidate, Walk, has_suffix};
use super::evict::evict;
use super::filesystem::Filesystem;
use super::lease::{ignore_broken_leases, is_in_use};
use super::resident::{Resident, resident};
use super::survey::open;
use crate::base::text;
use closes::{Closes, Reader};
use gpuslice_config::words::units::Bytes;
use marks::Marks;
use nix::libc;
use nix::poll::{PollFd, PollFlags};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The files to drop, as the daemon's configuration names them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// The folders, each of which stands for its whole filesystem.
    pub(crate) paths: Vec<PathBuf>,
    /// Smaller files stay.
    pub(crate) smallest: Bytes,
    /// The suffixes of model files.
    pub(crate) suffixes: Vec<String>,
    /// The time for which no process may have used a file.
    pub(crate) settle: Duration,
}

/// A model file that a process has closed.
struct Released {
    kept: Kept,
    due: Instant,
    /// The number of attempts since.
    tries: u32,
}

/// A file between two attempts.
enum Kept {
    /// The file is open.
    Open(File),
    /// The file is held by `O_PATH` only. While it is open here, its other users cannot be
    /// determined. A path would not do, because a container's path leads elsewhere on the host.
    Place(File),
}

/// The most attempts. Pages that are on their way from the device stay at first. And another
/// process's close may not be reported, as with other watchers such as a virus scanner.
const TRIES: u32 = 5;

impl Released {
    /// Schedules the next attempt; None if there is none.
    fn again(tries: u32, file: File, dropped: Dropped, settle: Duration) -> Option<Released> {
        let (kept, wait) = match dropped {
            Dropped::Done => return None,
            Dropped::InPart => (Kept::Open(file), settle),
            Dropped::InUse => (Kept::place_of(&file)?, pause(settle, tries)),
        };
        let tries = tries.saturating_add(1);
        let due = Instant::now().checked_add(wait)?;
        (tries <= TRIES).then_some(Released { kept, due, tries })
    }
}

impl Kept {
    fn place_of(file: &File) -> Option<Kept> {
        let place = File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(descriptor(file));
        place.ok().map(Kept::Place)
    }

    /// Returns the file, reopened if it was held by `O_PATH` only.
    fn file(self) -> Option<File> {
        match self {
            Kept::Open(file) => Some(file),
            Kept::Place(place) => open(&descriptor(&place)).ok(),
        }
    }
}

/// Returns a path to the file of a descriptor of this process.
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Returns the wait, which doubles each time. The process id is part of it, so that two daemons
/// that watch one file do not check it at equal moments for ever.
fn pause(settle: Duration, tries: u32) -> Duration {
    let own = Duration::from_millis(u64::from(std::process::id() % 97));
    let first = settle.max(Duration::from_millis(100));
    first
        .saturating_add(own)
        .saturating_mul(1 << tries.min(TRIES))
}

/// The most files waiting at once. Further files are missed and stay in the page cache.
const PENDING: usize = 256;

/// The numbers of bytes and files that were dropped since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// The bytes that were dropped.
    pub(crate) dropped: u64,
    /// The attempts that dropped at least a page.
    pub(crate) drops: u64,
    /// The bytes that were still cached after the last attempt at their file.
    pub(crate) kept: u64,
}

/// The daemon's watch on the filesystems.
pub(crate) struct Watcher {
    policy: Policy,
    marks: Marks,
    released: HashMap<(u64, u64), Released>,
    totals: Totals,
    closes: Reader,
    tell: fn(&str),
}

impl Watcher {
    /// Starts to watch. What cannot be watched is tried again. `tell` prints messages.
    pub(crate) fn start(policy: Policy, tell: fn(&str)) -> Watcher {
        ignore_broken_leases();
        Watcher {
            marks: Marks::new(&policy.paths, tell),
            policy,
            released: HashMap::new(),
            totals: Totals::default(),
            closes: Reader::new(tell),
            tell,
        }
    }

    /// Returns the descriptors to wait for. Priority data means that mounts have changed.
    pub(crate) fn wanted(&self) -> Vec<PollFd<'_>> {
        let is_reading = self.closes.pause().is_none();
        let closes = self.marks.group().filter(|_| is_reading);
        let closes = closes.map(|group| PollFd::new(group.as_fd(), PollFlags::POLLIN));
        let changes = self.marks.changes();
        let changes = changes.map(|table| PollFd::new(table, PollFlags::POLLPRI));
        closes.into_iter().chain(changes).collect()
    }

    /// Returns the time until a file has settled, a pause ends or the marks are due; None if nothing is.
    pub(crate) fn due(&self) -> Option<Duration> {
        let now = Instant::now();
        let due = self.released.values().map(|file| file.due);
        let due = due.chain(self.closes.pause()).chain(self.marks.due());
        let due = due.map(|due| due.saturating_duration_since(now)).min();
        // One millisecond late rather than early: an early wake-up would check again at once.
        due.map(|due| due.saturating_add(Duration::from_millis(1)))
    }

    /// Returns the totals since the start.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Takes the files that were closed, and drops those that have settled.
    pub(crate) fn turn(&mut self, mounts_changed: bool) {
        if let Some(former) = self.marks.turn(mounts_changed) {
            for _ in 0..LAST_READS {
                match self.closes.read(&former) {
                    Ok(Some(closes)) => self.take(closes),
                    Ok(None) | Err(_) => break,
                }
            }
        }
        match self.marks.group().map(|group| self.closes.read(group)) {
            Some(Ok(Some(closes))) => self.take(closes),
            Some(Err(error)) => self.marks.fail(error),
            Some(Ok(None)) | None => {}
        }
        let start = Instant::now();
        while start.elapsed() < TURN
            && let Some((identity, Released { kept, tries, .. })) = self.first_due(start)
        {
            let Some(file) = kept.file() else {
                continue;
            };
            let attempt = drop_if_unused(&file, self.tell);
            let sum = self.totals.dropped.saturating_add(attempt.gone.get());
            self.totals.dropped = sum;
            let is_drop = u64::from(attempt.gone > Bytes::ZERO);
            self.totals.drops = self.totals.drops.saturating_add(is_drop);
            match Released::again(tries, file, attempt.outcome, self.policy.settle) {
                Some(again) => {
                    self.released.insert(identity, again);
                }
                None => self.totals.kept = self.totals.kept.saturating_add(attempt.left.get()),
            }
        }
    }

    /// Takes the file out that has been due for the longest time.
    fn first_due(&mut self, now: Instant) -> Option<((u64, u64), Released)> {
        let due = self.released.iter().filter(|(_, file)| file.due <= now);
        let first = due.min_by_key(|(_, file)| file.due);
        let identity = first.map(|(identity, _)| *identity)?;
        self.released.remove_entry(&identity)
    }

    /// Takes the files of these events.
    fn take(&mut self, closes: Closes) {
        let Closes { mut files, missed } = closes;
        if missed {
            (self.tell)("the kernel's event queue overflowed: checking all files");
            files.extend(all(&self.policy));
        }
        for file in files {
            let Ok(data) = file.metadata() else {
                continue;
            };
            let wanted = data.is_file()
                && data.len() >= self.policy.smallest.get()
                && has_suffix(&path_of(&file), &self.policy.suffixes);
            let identity = (data.dev(), data.ino());
            let has_room = self.released.len() < PENDING || self.released.contains_key(&identity);
            let due = Instant::now().checked_add(self.policy.settle);
            if let (Some(due), true) = (due, wanted && has_room) {
                // The newer descriptor replaces the older one: only one is held at a time.
                let fresh = Released {
                    kept: Kept::Open(file),
                    due,
                    tries: 0,
                };
                self.released.insert(identity, fresh);
            }
        }
    }
}

/// The time after which a turn drops no further file. The daemon answers no scrape meanwhile.
const TURN: Duration = Duration::from_secs(1);

/// The most reads of a former group: they empty its queue. It gets events until it is closed.
const LAST_READS: usize = 128;

/// The longest search after an overflow. The daemon answers no scrape meanwhile.
const SEARCH: Duration = Duration::from_secs(10);

/// Returns the model files of the policy's folders, any of which may have been closed.
fn all(policy: &Policy) -> Vec<File> {
    let wanted = |path: &Path| has_suffix(path, &policy.suffixes);
    let mut files = Vec::new();
    Walk::bounded(&policy.paths, SEARCH, &wanted, &mut |found| {
        if let Candidate::File(path) = found
            && files.len() < PENDING
        {
            files.extend(open(&path).ok());
        }
    });
    files
}

fn path_of(file: &File) -> PathBuf {
    fs::read_link(descriptor(file)).unwrap_or_default()
}

/// The outcome of an attempt to drop a file.
#[derive(PartialEq)]
enum Dropped {
    /// The pages are gone, or cannot be dropped.
    Done,
    /// Some pages have stayed.
    InPart,
    /// All pages have stayed: a process has the file open or mapped.
    InUse,
}

/// An attempt to drop a file.
struct Attempt {
    outcome: Dropped,
    /// The bytes that it dropped.
    gone: Bytes,
    /// The bytes that are still cached.
    left: Bytes,
}

/// Drops a file that no other process has open or mapped.
fn drop_if_unused(file: &File, tell: fn(&str)) -> Attempt {
    let attempt = |outcome, gone, left| Attempt {
        outcome,
        gone,
        left,
    };
    let Ok(data) = file.metadata() else {
        return attempt(Dropped::Done, Bytes::ZERO, Bytes::ZERO);
    };
    let bytes = |seen: Option<Resident>| seen.map_or(Bytes::ZERO, |seen| seen.bytes);
    let on = Filesystem::of(file);
    // A measurement may map the file, which would count as a use.
    let is_in_use = is_in_use(file);
    let before = resident(file, &data, on).ok().flatten();
    if is_in_use {
        return attempt(Dropped::InUse, Bytes::ZERO, bytes(before));
    }
    if matches!(on, Filesystem::Memory(_)) || before.is_some_and(|seen| seen.bytes == Bytes::ZERO) {
        return attempt(Dropped::Done, Bytes::ZERO, Bytes::ZERO);
    }
    let shown = path_of(file);
    let shown = text::printable(&shown.display().to_string());
    match evict(file, &data, on, before, &mut |_| {}) {
        Ok(None) => {
            tell(&format!("dropped {shown}, whose cached amount is unknown"));
            attempt(Dropped::Done, Bytes::ZERO, Bytes::ZERO)
        }
        Ok(after) => {
            let (gone, left) = (bytes(before).minus(bytes(after)), bytes(after));
            tell(&format!("dropped {gone} of {shown}, {left} left"));
            match left {
                Bytes::ZERO => attempt(Dropped::Done, gone, left),
                _ => attempt(Dropped::InPart, gone, left),
            }
        }
        Err(error) => {
            tell(&format!("cannot drop {shown}: {error}"));
            attempt(Dropped::Done, Bytes::ZERO, bytes(before))
        }
    }
}
