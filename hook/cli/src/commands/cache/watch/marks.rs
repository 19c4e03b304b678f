//! The marks by which the kernel reports closed files: one for the filesystem of each watched folder.
//! Touches: fanotify; the watched folders; the mount table; /proc/self/fdinfo.
//! Law: while no mount at a watched folder changes, no marked folder is accessed again, because
//! its server may hang.

use super::mounts::{self, Changes};
use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a folder that cannot be watched is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// The least time between two checks: a host that starts containers mounts often.
const PACE: Duration = Duration::from_secs(1);

/// A watched folder.
struct Folder {
    path: PathBuf,
    /// Its mounts when its filesystem was marked; None if it is not marked.
    marked: Option<Mounts>,
    /// The reason that was reported last.
    reported: Option<String>,
}

/// The place of a folder in the mount table.
#[derive(PartialEq)]
struct Mounts {
    /// The folder, after links are resolved.
    real: PathBuf,
    above: Vec<Vec<u8>>,
}

impl Mounts {
    fn of(path: &Path, real: PathBuf, table: &[u8]) -> Mounts {
        let mut above = mounts::above(table, path);
        above.extend(mounts::above(table, &real));
        Mounts { real, above }
    }

    /// Checks whether this table shows them, too.
    fn are_in(&self, path: &Path, table: &[u8]) -> bool {
        Mounts::of(path, self.real.clone(), table) == *self
    }
}

/// The marks of all folders.
pub(super) struct Marks {
    folders: Vec<Folder>,
    group: Option<Group>,
    changes: Changes,
    checked: Instant,
    /// The last reason for which there is no group.
    reported: Option<String>,
    tell: fn(&str),
}

/// A fanotify group with marks.
struct Group {
    fanotify: Fanotify,
    /// The number of marks that it has. The kernel removes that of a filesystem that is unmounted.
    marks: usize,
}

impl Marks {
    /// Marks what can be marked. `tell` prints messages.
    pub(super) fn new(paths: &[PathBuf], tell: fn(&str)) -> Marks {
        let folder = |path: &PathBuf| Folder {
            path: path.clone(),
            marked: None,
            reported: None,
        };
        let mut marks = Marks {
            folders: paths.iter().map(folder).collect(),
            group: None,
            // Opened before the table is read, so that no change is missed.
            changes: Changes::new(),
            checked: Instant::now(),
            reported: None,
            tell,
        };
        marks.check();
        marks
    }

    /// Returns the group whose events are to be read; None if there is none.
    pub(super) fn group(&self) -> Option<&Fanotify> {
        self.group.as_ref().map(|group| &group.fanotify)
    }

    /// Returns the descriptor that has priority data once the mount table has changed; None if it is
    /// not yet time for a check.
    pub(super) fn changes(&self) -> Option<BorrowedFd<'_>> {
        let is_time = self.checked.elapsed() >= PACE;
        is_time.then(|| self.changes.descriptor()).flatten()
    }

    /// Returns the time of the next retry, or from which on changes count; None if neither is to come.
    pub(super) fn due(&self) -> Option<Instant> {
        let since = |wait| self.checked.checked_add(wait);
        let retry = self.is_incomplete().then(|| since(RETRY)).flatten();
        let pace = since(PACE).filter(|pace| *pace > Instant::now());
        retry.into_iter().chain(pace).min()
    }

    fn is_incomplete(&self) -> bool {
        let has_all = self.folders.iter().all(|folder| folder.marked.is_some());
        self.group.is_none() || !has_all || self.changes.descriptor().is_none()
    }

    /// Checks the marks if it is time or mounts have changed. Returns the former group if there is a
    /// new one: its last events count.
    pub(super) fn turn(&mut self, mounts_changed: bool) -> Option<Fanotify> {
        let is_due = self.is_incomplete() && self.checked.elapsed() >= RETRY;
        (mounts_changed || is_due).then(|| self.check()).flatten()
    }

    /// Gives up a group that cannot be read. A later check makes a new one.
    pub(super) fn fail(&mut self, error: Errno) {
        self.checked = Instant::now();
        self.group = None;
        for folder in &mut self.folders {
            folder.marked = None;
        }
        let reason = format!("cannot read events: {error}");
        self.cannot(reason);
    }

    fn check(&mut self) -> Option<Fanotify> {
        self.checked = Instant::now();
        let table = mounts::table();
        let has_all = |group: &Group| count(&group.fanotify) >= group.marks;
        let has_lost = self.group.as_ref().is_some_and(|group| !has_all(group));
        let mut has_changed = false;
        for folder in &mut self.folders {
            let changed = |mounts: &mut Mounts| has_lost || !mounts.are_in(&folder.path, &table);
            has_changed |= folder.marked.take_if(changed).is_some();
        }
        if self.group.is_some() && !has_changed {
            self.mark(&table, true);
            return None;
        }
        // A new group: a mark of the former filesystem could be removed by a path on it only.
        match group() {
            Ok(fanotify) => {
                let former = self.group.replace(Group { fanotify, marks: 0 });
                self.reported = None;
                self.mark(&table, false);
                former.map(|group| group.fanotify)
            }
            Err(error) => {
                self.cannot(format!(
                    "cannot watch filesystems (requires CAP_SYS_ADMIN): {error}"
                ));
                self.mark(&table, true);
                None
            }
        }
    }

    /// Marks the filesystems of all folders, or of those only that are not marked.
    fn mark(&mut self, table: &[u8], only_missing: bool) {
        let Some(group) = &mut self.group else {
            return;
        };
        for folder in &mut self.folders {
            if only_missing && folder.marked.is_some() {
                continue;
            }
            let shown = folder.path.display();
            match mark(&group.fanotify, &folder.path) {
                Ok(()) => {
                    let real = fs::canonicalize(&folder.path);
                    let real = real.unwrap_or_else(|_| folder.path.clone());
                    let now = Some(Mounts::of(&folder.path, real, table));
                    if folder.marked != now {
                        (self.tell)(&format!("watching the filesystem of {shown}"));
                    }
                    (folder.marked, folder.reported) = (now, None);
                }
                Err(error) => {
                    let reason = format!(
                        "cannot watch the filesystem of {shown}: {error}; trying again every {} s",
                        RETRY.as_secs()
                    );
                    if folder.reported.as_ref() != Some(&reason) {
                        (self.tell)(&reason);
                    }
                    (folder.marked, folder.reported) = (None, Some(reason));
                }
            }
        }
        group.marks = count(&group.fanotify);
    }

    fn cannot(&mut self, reason: String) {
        if self.reported.as_ref() != Some(&reason) {
            (self.tell)(&format!(
                "{reason}; trying again every {} s",
                RETRY.as_secs()
            ));
        }
        self.reported = Some(reason);
    }
}

/// Makes a group without marks.
fn group() -> nix::Result<Fanotify> {
    let group = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
    // The kernel opens every file that was closed, a pipe without a writer too.
    let events = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC | EventFFlags::O_NONBLOCK;
    Fanotify::init(group, events)
}

/// Subscribes a group to every close on the filesystem of a path.
fn mark(group: &Fanotify, path: &Path) -> nix::Result<()> {
    let whole = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
    // A close event follows the last descriptor and the last mapping of an open file.
    group.mark(
        whole,
        MaskFlags::FAN_CLOSE,
        nix::fcntl::AT_FDCWD,
        Some(path),
    )
}

/// Returns the number of marks of a group; 0 if /proc does not show it.
fn count(group: &Fanotify) -> usize {
    let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", group.as_raw_fd()));
    let facts = facts.unwrap_or_default();
    let lines = facts.lines();
    lines
        .filter(|line| line.starts_with("fanotify sdev:"))
        .count()
}
