//! Finds which files a process has mapped.
//! Touches: /proc/PID/maps, and one page of a ledger that is not on tmpfs (mapped, never read).
//! Law: /proc/PID/maps is read line by line, because a process may have tens of thousands of
//! mappings. A line that shows no file is skipped.

use super::read::each_line;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::{major, minor};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::collections::BTreeSet;
use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A file's identity in /proc/PID/maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::commands::status) struct FileId {
    /// The device, as major and minor number.
    device: (u64, u64),
    inode: u64,
}

impl FileId {
    /// Returns the identity of a file that may be mapped.
    pub(in crate::commands::status) fn of(path: &Path) -> Option<FileId> {
        // The path may lead to a pipe by now.
        let flags = OFlag::O_NONBLOCK.bits();
        let file = File::options().read(true).custom_flags(flags).open(path);
        let file = file.ok()?;
        let facts = file.metadata().ok()?;
        let is_on_tmpfs =
            || fstatfs(&file).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC);
        // On a layered file system, /proc/PID/maps shows another device and inode than stat.
        let layered = facts.is_file() && !is_on_tmpfs();
        let as_mapped = layered.then(|| FileId::as_mapped(&file)).flatten();
        let device = facts.dev();
        Some(as_mapped.unwrap_or(FileId {
            device: (major(device), minor(device)),
            inode: facts.ino(),
        }))
    }

    /// Maps a page of the file, and reads the identity that the kernel shows for it.
    fn as_mapped(file: &File) -> Option<FileId> {
        let length = NonZeroUsize::new(4096)?;
        let (rights, flags) = (ProtFlags::PROT_NONE, MapFlags::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses; nothing reads it.
        let place = unsafe { mmap(None, length, rights, flags, file, 0) }.ok()?;
        let start = format!("{:x}-", place.as_ptr().addr());
        let mut found = None;
        each_line("/proc/self/maps", |line| {
            match line.starts_with(start.as_bytes()) {
                true => {
                    found = FileId::in_line(line);
                    ControlFlow::Break(())
                }
                false => ControlFlow::Continue(()),
            }
        });
        // SAFETY: unmaps the mapping that was just made; no pointer into it exists.
        let _ = unsafe { munmap(place, length.get()) };
        found
    }

    /// Returns the identity in a line of /proc/PID/maps: `START-END RIGHTS OFFSET DEVICE INODE`,
    /// and perhaps a path. A mapping of no file has inode 0.
    pub(super) fn in_line(line: &[u8]) -> Option<FileId> {
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        let (device, inode) = (fields.next()?, fields.next()?);
        let colon = device.iter().position(|byte| *byte == b':')?;
        let (major, minor) = device.split_at_checked(colon)?;
        let number =
            |digits: &[u8], radix| u64::from_str_radix(str::from_utf8(digits).ok()?, radix).ok();
        let device = (number(major, 16)?, number(minor.get(1..)?, 16)?);
        let inode = number(inode, 10).filter(|inode| *inode != 0)?;
        Some(FileId { device, inode })
    }
}

/// The relevant mappings of a process.
#[derive(Debug, Default)]
pub(in crate::commands::status) struct Mapped {
    files: BTreeSet<FileId>,
    /// Whether the preload library is mapped.
    pub(in crate::commands::status) library: bool,
    /// Whether the CUDA driver is mapped.
    pub(in crate::commands::status) driver: bool,
}

impl Mapped {
    /// Reads the mappings of a process; None if they are not visible.
    pub(super) fn of(pid: u32) -> Option<Mapped> {
        let mut mapped = Mapped::default();
        each_line(&maps(pid), |line| {
            mapped.files.extend(FileId::in_line(line));
            mapped.library |= contains(line, b"/libgpuslice.so");
            mapped.driver |= contains(line, b"/libcuda.so");
            ControlFlow::Continue(())
        })?;
        Some(mapped)
    }

    /// Checks whether a file is mapped.
    pub(super) fn has(&self, file: &FileId) -> bool {
        self.files.contains(file)
    }
}

/// Checks whether a process has mapped a file, and reads no further than to its first mapping.
pub(super) fn has_mapped(pid: u32, file: &FileId) -> bool {
    let mut found = false;
    each_line(&maps(pid), |line| {
        found = FileId::in_line(line).as_ref() == Some(file);
        match found {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    found
}

fn maps(pid: u32) -> String {
    format!("/proc/{pid}/maps")
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|bytes| bytes == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user can put a pipe in the place of a ledger. Nobody writes to this one.
    #[test]
    fn a_pipe_in_the_place_of_a_ledger_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("ledger");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(FileId::of(&pipe).is_some());
    }

    #[test]
    fn a_file_of_the_same_number_on_another_file_system_is_another_file() {
        let line = |device| format!("7f00-7f10 rw-s 00000000 {device} 2   /ledger/ledger");
        let id = |device| FileId::in_line(line(device).as_bytes()).unwrap();
        assert_ne!(id("00:38"), id("00:41"));
        assert_ne!(id("00:38"), id("38:00"));
        assert_eq!(id("00:38"), id("00:38"));
        assert_eq!(id("103:38").device, (0x103, 0x38));
    }

    #[test]
    fn a_line_without_a_file_names_none() {
        for line in [
            "7f00-7f10 rw-p 00000000 00:00 0 ",
            "7f00-7f10 rw-p 00000000 00:00 0    [heap]",
            "7f00-7f10 rw-p 00000000 00:00",
            "7f00-7f10 rw-p 00000000 0000 7",
            "7f00-7f10 rw-p 00000000 00:+1 -7",
            "",
        ] {
            assert_eq!(FileId::in_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_file_is_named_as_maps_name_it_whatever_its_file_system_is() {
        // This test maps its own executable, which is on a disk or an overlay.
        let own = std::env::current_exe().unwrap();
        let file = FileId::of(&own).unwrap();
        let pid = std::process::id();
        assert!(Mapped::of(pid).unwrap().has(&file));
        assert!(has_mapped(pid, &file));
        let other = FileId {
            inode: u64::MAX,
            ..file
        };
        assert!(!has_mapped(pid, &other));
        assert!(!has_mapped(u32::MAX, &file));
    }
}
