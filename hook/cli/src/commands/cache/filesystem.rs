//! Classifies filesystems: whether their files' pages can be evicted, and where the kernel counts
//! them.
//! Touches: an open file, by querying it.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The kind of a filesystem, with regard to the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filesystem {
    /// A filesystem whose pages are copies of data on a device.
    Backed,
    /// A filesystem whose files are files of another one. The kernel counts the pages there, and
    /// cachestat returns 0.
    Overlay,
    /// A filesystem whose pages are the files themselves.
    Memory(&'static str),
}

impl Filesystem {
    /// Returns the kind of an open file's filesystem.
    pub(super) fn of(file: &File) -> Filesystem {
        let kind = nix::sys::statfs::fstatfs(file).map(|stat| stat.filesystem_type());
        match kind {
            Ok(nix::sys::statfs::OVERLAYFS_SUPER_MAGIC) => Filesystem::Overlay,
            Ok(nix::sys::statfs::TMPFS_MAGIC) => Filesystem::Memory(memory_file(file)),
            Ok(nix::sys::statfs::HUGETLBFS_MAGIC) => Filesystem::Memory("hugetlbfs"),
            Ok(kind) if kind == RAMFS_MAGIC => Filesystem::Memory("ramfs"),
            // An unknown filesystem can only be treated as one with a device.
            _ => Filesystem::Backed,
        }
    }
}

const RAMFS_MAGIC: nix::sys::statfs::FsType = nix::sys::statfs::FsType(0x8584_58f6);

/// Returns the kind of a memory file. A memfd is a tmpfs file without a mount.
fn memory_file(file: &File) -> &'static str {
    let link = std::fs::read_link(format!("/proc/thread-self/fd/{}", file.as_raw_fd()));
    match link.is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"/memfd:")) {
        true => "memfd",
        false => "tmpfs",
    }
}
