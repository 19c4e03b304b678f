//! The marks by which the kernel reports closed files: one for the filesystem of each watched folder.
//! Touches: fanotify; the watched folders.
//! Law: a folder whose filesystem is marked is not touched again, because its server may hang.

use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a folder that cannot be watched is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// A watched folder.
struct Folder {
    path: PathBuf,
    is_marked: bool,
    /// The last reason that was told.
    told: Option<String>,
}

/// The marks of all folders.
pub(super) struct Marks {
    folders: Vec<Folder>,
    group: Option<Fanotify>,
    checked: Instant,
    /// The last reason for which there is no group.
    told: Option<String>,
    tell: fn(&str),
}

impl Marks {
    /// Marks what can be marked. `tell` prints messages.
    pub(super) fn new(paths: &[PathBuf], tell: fn(&str)) -> Marks {
        let folder = |path: &PathBuf| Folder {
            path: path.clone(),
            is_marked: false,
            told: None,
        };
        let mut marks = Marks {
            folders: paths.iter().map(folder).collect(),
            group: None,
            checked: Instant::now(),
            told: None,
            tell,
        };
        marks.check();
        marks
    }

    /// Returns the group whose events are to be read; None if there is none.
    pub(super) fn group(&self) -> Option<&Fanotify> {
        self.group.as_ref()
    }

    /// Returns the time of the next retry; None if there is nothing to retry.
    pub(super) fn due(&self) -> Option<Instant> {
        let retry = self
            .is_incomplete()
            .then(|| self.checked.checked_add(RETRY));
        retry.flatten()
    }

    fn is_incomplete(&self) -> bool {
        let has_all = self.folders.iter().all(|folder| folder.is_marked);
        self.group.is_none() || !has_all
    }

    /// Retries what could not be watched, if it is time.
    pub(super) fn turn(&mut self) {
        if self.is_incomplete() && self.checked.elapsed() >= RETRY {
            self.check();
        }
    }

    /// Gives up a group that cannot be read. A later check makes a new one.
    pub(super) fn fail(&mut self, error: Errno) {
        self.checked = Instant::now();
        self.group = None;
        for folder in &mut self.folders {
            folder.is_marked = false;
        }
        let reason = format!("cannot read events: {error}");
        self.cannot(reason);
    }

    fn check(&mut self) {
        self.checked = Instant::now();
        if self.group.is_none() {
            match group() {
                Ok(group) => {
                    self.group = Some(group);
                    self.told = None;
                }
                Err(error) => self.cannot(format!(
                    "cannot watch filesystems (requires CAP_SYS_ADMIN): {error}"
                )),
            }
        }
        self.mark();
    }

    /// Marks the filesystems of the folders that are not marked.
    fn mark(&mut self) {
        let Some(group) = &self.group else {
            return;
        };
        for folder in self.folders.iter_mut().filter(|folder| !folder.is_marked) {
            let shown = folder.path.display();
            match mark(group, &folder.path) {
                Ok(()) => {
                    (self.tell)(&format!("watching the filesystem of {shown}"));
                    (folder.is_marked, folder.told) = (true, None);
                }
                Err(error) => {
                    let reason = format!(
                        "cannot watch the filesystem of {shown}: {error}; trying again every {} s",
                        RETRY.as_secs()
                    );
                    if folder.told.as_ref() != Some(&reason) {
                        (self.tell)(&reason);
                    }
                    folder.told = Some(reason);
                }
            }
        }
    }

    fn cannot(&mut self, reason: String) {
        if self.told.as_ref() != Some(&reason) {
            (self.tell)(&format!(
                "{reason}; trying again every {} s",
                RETRY.as_secs()
            ));
        }
        self.told = Some(reason);
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
