//! The meminfo page of a slice: a file like `/proc/meminfo` that is mounted over it, for programs that
//! no preload reaches. One process rewrites it while others read it.
//! Touches: the page; the lock of `gpusliced`, which writes the pages of containers.
//! Law: a page is written in place by one `pwrite` of constant length, and never truncated, so it
//! needs no new memory and a reader never finds an empty file. Contents that are the same are not
//! written again: only the page's time changes then.

use crate::base::paths::HostPaths;
use crate::base::{read, sys};
use crate::slices::run_folder;
use gpuslice_config::answer::meminfo_text::{LENGTH, write_page};
use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::host::meminfo;
use gpuslice_config::words::units::Bytes;
use nix::fcntl::OFlag;
use nix::sys::stat::{futimens, major, minor};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::sys::time::TimeSpec;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The time between two looks at a slice.
pub const PERIOD: Duration = Duration::from_millis(100);

/// A page that is older than this has no writer any more.
pub const OLD: Duration = Duration::from_secs(5);

/// How often the time of an unchanged page is set.
const TOUCH: Duration = Duration::from_secs(1);

/// Makes the page of a slice on a machine with this much memory. A page that exists stays: another
/// container of the pod uses it.
///
/// # Errors
/// When it cannot be made, or is not a file.
pub fn make(path: &Path, view: &MemoryView, machine: Bytes) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let mut file = match sys::make(path, flags, MODE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    };
    // Every user reads it, whatever the umask is.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(write_page(view, machine, &mut [0; LENGTH]))
}

/// Its owner writes it without any capability. It is mounted read-only.
const MODE: u32 = 0o644;

/// The page of a slice, open to be written.
#[derive(Debug)]
pub struct Page {
    file: File,
    shown: Vec<u8>,
    touched: Instant,
}

impl Page {
    /// Opens a page.
    ///
    /// # Errors
    /// When it does not exist, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<Page> {
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = sys::open(path, flags)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut shown = vec![0; LENGTH];
        let length = file.read_at(&mut shown, 0)?;
        shown.truncate(length);
        Ok(Page {
            file,
            shown,
            touched: Instant::now(),
        })
    }

    /// Shows a view on a machine with this much memory.
    ///
    /// # Errors
    /// The kernel's. The page then has its former contents, or the new ones.
    pub fn show(&mut self, view: &MemoryView, machine: Bytes) -> io::Result<()> {
        let mut buffer = [0; LENGTH];
        let text = write_page(view, machine, &mut buffer);
        if text != self.shown {
            self.file.write_all_at(text, 0)?;
            self.shown.clear();
            self.shown.extend_from_slice(text);
            self.touched = Instant::now();
        } else if self.touched.elapsed() >= TOUCH {
            futimens(&self.file, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)?;
            self.touched = Instant::now();
        }
        Ok(())
    }

    /// The free memory that the page shows; `None` if it shows none.
    #[must_use]
    pub fn free(&self) -> Option<Bytes> {
        meminfo::parse(&self.shown).map(|shown| shown.available)
    }
}

/// How long ago a page was written.
///
/// # Errors
/// When it does not exist.
pub fn age(path: &Path) -> io::Result<Duration> {
    let written = fs::symlink_metadata(path)?.modified()?;
    let age = SystemTime::now().duration_since(written);
    Ok(age.unwrap_or_default())
}

/// How long ago the page behind an open `/proc/meminfo` was written; `None` if it is no page. A page is
/// on a tmpfs, and has the words that [`write_page`] writes. The files of the kernel, of lxcfs, of
/// simulated machines and those that a container's owner mounts do not.
#[must_use]
pub fn age_if_mounted(file: &File) -> Option<Duration> {
    let kind = fstatfs(file).ok()?.filesystem_type();
    let facts = file.metadata().ok()?;
    let mut text = [0; LENGTH];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = text.get(..length)?;
    let shown = meminfo::parse(text)?;
    let mut own = [0; LENGTH];
    let view = MemoryView {
        total: shown.total,
        free: shown.free,
        used: shown.total.minus(shown.free),
    };
    let own = write_page(&view, shown.total, &mut own);
    // The width of the columns is that of the machine's memory.
    let is_page = kind == TMPFS_MAGIC && words(text).eq(words(own));
    let age = SystemTime::now().duration_since(facts.modified().ok()?);
    is_page.then(|| age.unwrap_or_default())
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// Claims the pages of this host's containers. `None`: another process writes them. The claim lasts
/// until the file is closed.
///
/// # Errors
/// When the folders or the lock cannot be made.
pub fn claim(paths: &HostPaths) -> io::Result<Option<File>> {
    run_folder::make(paths).map_err(io::Error::other)?;
    run_folder::make_pages(paths).map_err(io::Error::other)?;
    let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = sys::make(&paths.pages_lock(), flags, 0o600)?;
    // A hook holds the lock only for the moment of its question.
    for _ in 0..50 {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether a process writes the pages of this host's containers.
#[must_use]
pub fn is_served(paths: &HostPaths) -> bool {
    let file = read::open(&paths.pages_lock());
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The process that writes the pages of this host's containers; `None` if there is none, or its pid is
/// unknown: it is in another pid namespace, or the file system of the lock has two device numbers.
#[must_use]
pub fn writer(paths: &HostPaths) -> Option<u32> {
    let lock = fs::metadata(paths.pages_lock()).ok()?;
    let (device, inode) = (lock.dev(), lock.ino());
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder(line, &file))
}

/// The process that a line of `/proc/locks` names, if it holds an exclusive lock on this file.
fn holder(line: &str, file: &str) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let kind = [words.next()?, words.next()?, words.next()?];
    let (pid, locked) = (words.next()?, words.next()?);
    // A line about a waiting process has an arrow before the kind.
    let is_held = kind == ["FLOCK", "ADVISORY", "WRITE"] && locked == file;
    pid.parse().ok().filter(|pid| is_held && *pid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(free: u64) -> MemoryView {
        MemoryView {
            total: Bytes::gib(40),
            free: Bytes::mib(free),
            used: Bytes::gib(40).minus(Bytes::mib(free)),
        }
    }

    const MACHINE: Bytes = Bytes::gib(120);

    #[test]
    fn a_page_is_rewritten_in_place_and_not_without_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        assert!(Page::open(&path).is_err() && age(&path).is_err());
        make(&path, &view(40 << 10), MACHINE).unwrap();
        let first = fs::read(&path).unwrap();
        let mut page = Page::open(&path).unwrap();
        page.show(&view(7), MACHINE).unwrap();
        assert_eq!(page.free(), Some(Bytes::mib(7)));
        let second = fs::read(&path).unwrap();
        assert_ne!(first, second);
        assert_eq!(first.len(), second.len());
        // A text of another writer stays, because unchanged contents are not written.
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .write_all(b"X")
            .unwrap();
        page.show(&view(7), MACHINE).unwrap();
        assert_eq!(fs::read(&path).unwrap()[0], b'X');
        page.show(&view(8), MACHINE).unwrap();
        assert_eq!(fs::read(&path).unwrap()[0], b'M');
        // A container that joins its pod does not reset the page.
        make(&path, &view(40 << 10), MACHINE).unwrap();
        assert_eq!(Page::open(&path).unwrap().free(), Some(Bytes::mib(8)));
        assert!(age(&path).unwrap() < OLD);
    }

    #[test]
    fn an_unchanged_page_is_touched_each_second() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        make(&path, &view(1), MACHINE).unwrap();
        let mut page = Page::open(&path).unwrap();
        let old = SystemTime::now() - Duration::from_secs(60);
        page.file.set_modified(old).unwrap();
        page.show(&view(1), MACHINE).unwrap();
        assert!(age(&path).unwrap() > OLD);
        page.touched = Instant::now() - TOUCH;
        page.show(&view(1), MACHINE).unwrap();
        assert!(age(&path).unwrap() < OLD);
    }

    #[test]
    fn a_link_or_a_folder_is_no_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        std::os::unix::fs::symlink("/proc/meminfo", &path).unwrap();
        assert!(Page::open(&path).is_err());
        assert!(Page::open(folder.path()).is_err());
    }

    #[test]
    fn the_pages_are_served_as_long_as_the_claim_lasts() {
        // /proc/locks names the device of the file system. On btrfs and overlay, stat returns another.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let paths = HostPaths::below(folder.path());
        assert!(!is_served(&paths));
        let claim = claim(&paths).unwrap();
        assert!(claim.is_some() && is_served(&paths));
        assert_eq!(writer(&paths), Some(std::process::id()));
        assert!(super::claim(&paths).unwrap().is_none());
        drop(claim);
        assert!(!is_served(&paths));
        assert_eq!(writer(&paths), None);
    }
}
