//! Finds the files and measures how much of each is in the page cache.
//! Touches: folders and files, by reading their metadata.

use super::choose::{Candidate, Walk, has_suffix};
use super::filesystem::Filesystem;
use super::holders::Identity;
use super::progress::Progress;
use super::report::{FileReport, State};
use super::resident::{Resident, TOO_LONG, may_know, resident};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::vec;

/// A file that was found, and its pages in the page cache before.
pub(super) struct Surveyed {
    /// The facts about the file.
    pub(super) report: FileReport,
    /// The file's device and inode; None if it could not be opened.
    pub(super) identity: Option<(u64, u64)>,
    /// The kind of its filesystem.
    pub(super) on: Filesystem,
    /// The resident pages before.
    pub(super) before: Option<Resident>,
}

/// Finds all selected files. Each file is listed once, however many names it has.
pub(super) fn survey(paths: &[PathBuf], suffixes: Option<&[String]>) -> Vec<Surveyed> {
    let progress = &Progress::of_files("looking at");
    let wanted = |path: &Path| suffixes.is_none_or(|suffixes| has_suffix(path, suffixes));
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let shares: Vec<Vec<Surveyed>> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads.min(THREADS))
            .map(|_| {
                let (found, next) = mpsc::channel();
                (found, scope.spawn(|| survey_found(next, progress)))
            })
            .collect();
        let mut batch = Vec::new();
        let mut turns = started.iter().map(|(found, _)| found).cycle();
        let mut hand_over = |batch: &mut Vec<Candidate>| {
            if let Some(thread) = turns.next() {
                // The receiver reads until the channel is closed.
                let _ = thread.send(std::mem::take(batch));
            }
        };
        Walk::all(paths, &wanted, &mut |one| {
            batch.push(one);
            if batch.len() >= BATCH {
                hand_over(&mut batch);
            }
        });
        hand_over(&mut batch);
        let (channels, started): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        drop(channels);
        let shares = started.into_iter().filter_map(|thread| thread.join().ok());
        shares.collect()
    });
    let count = shares.iter().map(Vec::len).sum();
    let mut all = Vec::with_capacity(count);
    let mut seen = HashSet::with_capacity(count);
    merge(shares, |file| {
        if file.identity.is_none_or(|file| seen.insert(file)) {
            all.push(file);
        }
    });
    all
}

/// Merges the shares, each of which is sorted, in sorted order.
fn merge(shares: Vec<Vec<Surveyed>>, mut give: impl FnMut(Surveyed)) {
    let mut shares: Vec<_> = shares.into_iter().map(Vec::into_iter).collect();
    loop {
        let left = shares.iter_mut().filter(|share| head(share).is_some());
        let next = left.min_by(|one, other| head(one).cmp(&head(other)));
        match next.and_then(Iterator::next) {
            Some(file) => give(file),
            None => return,
        }
    }
}

/// Returns the first remaining file of a share.
fn head(share: &vec::IntoIter<Surveyed>) -> Option<&OsStr> {
    share.as_slice().first().map(Surveyed::path)
}

/// The number of threads. With more, they wait for each other in the kernel.
const THREADS: usize = 4;
/// The number of files per message: a message costs more than a file.
const BATCH: usize = 128;

fn survey_found(found: mpsc::Receiver<Vec<Candidate>>, progress: &Progress) -> Vec<Surveyed> {
    // A separate descriptor table for this thread, so that open and close do not wait for other
    // threads. (/proc/self shows another table.)
    let _shared_where_that_fails = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES);
    let mut filesystems = HashMap::new();
    let mut folder = Folder::default();
    let one = |found: Candidate| match found {
        Candidate::File(path) => match one(&path, &mut folder, &mut filesystems) {
            Ok(surveyed) => surveyed,
            Err(error) => Some(unreadable(path, &error)),
        },
        Candidate::Unreadable(path, error) => Some(unreadable(path, &error)),
    };
    let found = found
        .into_iter()
        .inspect(|batch| progress.advance(batch.len() as u64));
    let mut surveyed: Vec<Surveyed> = found.flatten().filter_map(one).collect();
    // Sorted here in parallel: at the end, all other threads would wait.
    surveyed.sort_unstable_by(|one, other| one.path().cmp(other.path()));
    surveyed
}

/// Surveys one file; None if it no longer exists.
fn one(
    path: &Path,
    folder: &mut Folder,
    filesystems: &mut HashMap<u64, Filesystem>,
) -> io::Result<Option<Surveyed>> {
    let opened = folder
        .open(path)
        .and_then(|file| Ok((file.metadata()?, file)));
    let (data, file) = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // The file may have been replaced since its folder was read.
    if !data.is_file() {
        return Ok(None);
    }
    let on = *filesystems
        .entry(data.dev())
        .or_insert_with(|| Filesystem::of(&file));
    look(path.to_owned(), &file, &data, on).map(Some)
}

/// Measures an open file.
///
/// # Errors
/// When the kernel returns an error.
pub(super) fn look(
    path: PathBuf,
    file: &File,
    data: &Metadata,
    on: Filesystem,
) -> io::Result<Surveyed> {
    let before = resident(file, data, on)?;
    let state = match (on, before) {
        (Filesystem::Memory(kind), _) => State::NotDroppable(kind),
        (_, None) => State::Unknown,
        (_, Some(before)) if before.bytes.get() > 0 => State::Cached,
        (_, Some(_)) => State::NotCached,
    };
    let mut report = FileReport::new(path, data.len(), state);
    if state == State::Unknown && may_know(file, data) {
        report.why = Some(TOO_LONG.to_owned());
    }
    Ok(Surveyed {
        report: FileReport {
            before: before.map(|before| before.bytes.get()),
            after: before.map(|before| before.bytes.get()),
            dirty: before.and_then(|before| Some(before.dirty?.get())),
            counted_by: before.map(|before| before.by.name()),
            ..report
        },
        identity: Some((data.dev(), data.ino())),
        on,
        before,
    })
}

fn unreadable(path: PathBuf, error: &io::Error) -> Surveyed {
    let mut report = FileReport::new(path, 0, State::Unreadable);
    report.why = Some(error.to_string());
    Surveyed {
        report,
        identity: None,
        on: Filesystem::Backed,
        before: None,
    }
}

/// Opens a file for queries. Never blocks, even if the path turns out to be a pipe.
///
/// # Errors
/// When the file cannot be opened.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)
}

/// The folder of the last file. The next file is usually in it too, so its path need not be
/// resolved again.
#[derive(Default)]
struct Folder {
    path: Vec<u8>,
    open: Option<File>,
}

impl Folder {
    /// Like [`open`].
    fn open(&mut self, path: &Path) -> io::Result<File> {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|byte| *byte == b'/');
        let Some((parent, [b'/', name @ ..])) = end.map(|end| bytes.split_at(end)) else {
            return open(path);
        };
        if parent.is_empty() || name.is_empty() {
            return open(path);
        }
        if self.open.is_none() || self.path != parent {
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(nix::libc::O_PATH | nix::libc::O_DIRECTORY)
                .open(OsStr::from_bytes(parent));
            self.open = opened.ok();
            parent.clone_into(&mut self.path);
        }
        let Some(folder) = &self.open else {
            return open(path);
        };
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = nix::fcntl::openat(folder, name, flags, Mode::empty())?;
        Ok(File::from(file))
    }
}

impl Surveyed {
    fn path(&self) -> &OsStr {
        self.report.path.as_os_str()
    }

    /// Opens the file again; None if it no longer exists, or another file has its name.
    ///
    /// # Errors
    /// When it exists but cannot be opened.
    pub(super) fn reopen(&self) -> io::Result<Option<(File, Metadata)>> {
        let opened = open(&self.report.path).and_then(|file| Ok((file.metadata()?, file)));
        match opened {
            Ok((data, file)) if self.identity == Some((data.dev(), data.ino())) => {
                Ok(Some((file, data)))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the identity that mappings show for it.
    pub(super) fn mapped_as(&self) -> Option<Identity> {
        let (device, inode) = self.identity?;
        Some(Identity {
            device,
            inode,
            name: own_name(&self.report.path),
        })
    }
}

/// Returns the last component of a path after links are resolved.
fn own_name(path: &Path) -> OsString {
    let file = open(path);
    let link = file
        .and_then(|file| std::fs::read_link(format!("/proc/thread-self/fd/{}", file.as_raw_fd())));
    let path = link.unwrap_or_else(|_| path.to_owned());
    path.file_name().unwrap_or_default().to_owned()
}
