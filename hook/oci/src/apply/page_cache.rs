//! Drops the resident pages of a folder of models: they have been read, and are not needed again.
//! Touches: the kernel's page cache, by `fadvise` on files opened for reading only, in a child. The
//! folder may be a tenant's: links are not followed, other file systems not entered, only regular
//! files opened.

use super::bounded;
use crate::inject::root::{reopen, stands};
use nix::dir::{Dir, Type};
use nix::fcntl::{OFlag, PosixFadviseAdvice, open, posix_fadvise};
use nix::sys::stat::{Mode, fstat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time limit for all folders together, because a runtime waits for the hook. Files that are
/// not dropped by then stay cached.
const PATIENCE: Duration = Duration::from_secs(10);

/// The extra time for a system call that is still running after [`PATIENCE`].
const GRACE: Duration = Duration::from_secs(1);

/// The most files and folders that are checked, of all folders together: half a second's work. A
/// folder of models has some hundreds.
const ENTRIES: u64 = 10_000;

/// The deepest nesting of folders: a hub's cache has five levels.
const DEPTH: u32 = 16;

/// The result of dropping a folder's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Files whose pages were dropped.
    pub files: u64,
    /// Files and folders that could not be read.
    pub unread: u64,
    /// Whether the time limit or the limit on entries was reached.
    pub unfinished: bool,
}

struct Walk {
    device: u64,
    until: Instant,
    left: u64,
    done: Dropped,
}

/// Drops the resident pages of every file in these folders. Returns the messages to report.
#[must_use]
pub fn drop_folders(paths: &[PathBuf]) -> Vec<String> {
    if paths.is_empty() {
        return Vec::new();
    }
    // A server that is gone, or a disk that is slow to write what is dirty, holds up one call for long.
    let dropped =
        bounded::text_within(PATIENCE.saturating_add(GRACE), || dropped(paths).join("\n"));
    match dropped {
        Ok(Some(lines)) => lines.lines().map(str::to_owned).collect(),
        Ok(None) => vec![format!(
            "stopped dropping the pages of {} after {} s: a file system or a disk does not answer",
            listed(paths),
            PATIENCE.saturating_add(GRACE).as_secs()
        )],
        Err(error) => vec![format!(
            "cannot drop the pages of {}: no child process: {error}",
            listed(paths)
        )],
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let each: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    each.join(", ")
}

fn dropped(paths: &[PathBuf]) -> Vec<String> {
    let until = Instant::now().checked_add(PATIENCE);
    let until = until.unwrap_or_else(Instant::now);
    let (mut lines, mut left) = (Vec::new(), ENTRIES);
    for path in paths {
        let shown = path.display();
        match drop_folder_within(path, until, &mut left) {
            Err(error) => lines.push(format!("cannot drop the pages of {shown}: {error}")),
            Ok(done) if done.unfinished => lines.push(format!(
                "dropped the pages of {} files in {shown} and stopped after {ENTRIES} files or {} s; the other \
                 files stay cached",
                done.files,
                PATIENCE.as_secs()
            )),
            Ok(_) => {}
        }
    }
    lines
}

/// Drops the resident pages of the files in one folder.
///
/// # Errors
/// When the folder cannot be opened.
pub fn drop_folder(path: &Path) -> io::Result<Dropped> {
    let until = Instant::now().checked_add(PATIENCE);
    drop_folder_within(path, until.unwrap_or_else(Instant::now), &mut { ENTRIES })
}

fn drop_folder_within(path: &Path, until: Instant, left: &mut u64) -> io::Result<Dropped> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    let mut walk = Walk {
        device: fstat(&folder)?.st_dev,
        until,
        left: *left,
        done: Dropped::default(),
    };
    walk.folder(folder, DEPTH);
    *left = walk.left;
    Ok(walk.done)
}

impl Walk {
    fn folder(&mut self, folder: OwnedFd, depth: u32) {
        let names = folder
            .try_clone()
            .map_err(drop)
            .and_then(|copy| Dir::from_fd(copy).map_err(drop));
        let Ok(mut names) = names else {
            self.done.unread = self.done.unread.saturating_add(1);
            return;
        };
        for entry in names.iter() {
            let Ok(entry) = entry else { break };
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." || entry.file_type() == Some(Type::Symlink) {
                continue;
            }
            match self.left.checked_sub(1) {
                Some(left) if Instant::now() <= self.until => self.left = left,
                _ => {
                    self.done.unfinished = true;
                    return;
                }
            }
            if self.entry(&folder, name, depth).is_none() {
                self.done.unread = self.done.unread.saturating_add(1);
            }
        }
    }

    fn entry(&mut self, folder: &OwnedFd, name: &str, depth: u32) -> Option<()> {
        let found = stands(folder.as_fd(), name).ok()?;
        let facts = fstat(&found).ok()?;
        if facts.st_dev != self.device {
            return Some(());
        }
        match facts.st_mode & libc::S_IFMT {
            libc::S_IFREG => {
                let file = reopen(found.as_fd()).ok()?;
                posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).ok()?;
                self.done.files = self.done.files.saturating_add(1);
            }
            libc::S_IFDIR => {
                let below = depth.checked_sub(1)?;
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                let path = gpuslice_host::base::sys::descriptor_path(&found);
                self.folder(open(path.as_str(), flags, Mode::empty()).ok()?, below);
            }
            _ => {}
        }
        Some(())
    }
}
