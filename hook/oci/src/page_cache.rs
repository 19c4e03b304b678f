//! Drops the resident pages of a folder of models: they were read, and are not needed twice.
//! Touches: the kernel's page cache, by `fadvise` on files that are only read. The folder may be a
//! tenant's: links are not followed, other file systems not entered, only regular files opened.

use crate::inject::root::{reopen, stands};
use nix::dir::{Dir, Type};
use nix::fcntl::{OFlag, PosixFadviseAdvice, open, posix_fadvise};
use nix::sys::stat::{Mode, fstat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// A runtime waits for us. What is not dropped by then stays.
const PATIENCE: Duration = Duration::from_secs(10);

/// How deep folders lie in one another: a hub's cache has five.
const DEPTH: u32 = 16;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Files whose pages were let go.
    pub files: u64,
    /// Files and folders that could not be read.
    pub unread: u64,
    /// Whether time ran out.
    pub unfinished: bool,
}

struct Walk {
    device: u64,
    until: Instant,
    done: Dropped,
}

/// Drops what is resident of every file in a folder.
///
/// # Errors
/// When the folder cannot be opened.
pub fn drop_folder(path: &Path) -> io::Result<Dropped> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    let mut walk = Walk {
        device: fstat(&folder)?.st_dev,
        until: Instant::now()
            .checked_add(PATIENCE)
            .unwrap_or_else(Instant::now),
        done: Dropped::default(),
    };
    walk.folder(folder, DEPTH);
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
            if Instant::now() > self.until {
                self.done.unfinished = true;
                return;
            }
            let Ok(entry) = entry else { break };
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." || entry.file_type() == Some(Type::Symlink) {
                continue;
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
                let path = crate::sys::descriptor_path(&found);
                self.folder(open(path.as_str(), flags, Mode::empty()).ok()?, below);
            }
            _ => {}
        }
        Some(())
    }
}
