//! Classifies filesystems: whether the pages of their files can be evicted, and who counts them.
//! Touches: an open file, by asking about it.

use std::fs::File;
use std::os::fd::AsRawFd;

/// A filesystem, as far as its page cache is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filesystem {
    /// One whose pages are copies of what is on a device.
    Backed,
    /// Its files are other files, whose pages the kernel counts there: cachestat says 0.
    Overlay,
    /// Its pages are the files themselves.
    Memory(&'static str),
}

impl Filesystem {
    /// The one that an open file is on.
    pub(super) fn of(file: &File) -> Filesystem {
        let kind = nix::sys::statfs::fstatfs(file).map(|stat| stat.filesystem_type());
        match kind {
            Ok(nix::sys::statfs::OVERLAYFS_SUPER_MAGIC) => Filesystem::Overlay,
            Ok(nix::sys::statfs::TMPFS_MAGIC) => Filesystem::Memory(memory_file(file)),
            Ok(nix::sys::statfs::HUGETLBFS_MAGIC) => Filesystem::Memory("hugetlbfs"),
            Ok(kind) if kind == RAMFS_MAGIC => Filesystem::Memory("ramfs"),
            // One that does not say what it is can only be treated as all others are.
            _ => Filesystem::Backed,
        }
    }
}

const RAMFS_MAGIC: nix::sys::statfs::FsType = nix::sys::statfs::FsType(0x8584_58f6);

/// A memfd is a tmpfs file that no mount has.
fn memory_file(file: &File) -> &'static str {
    let link = std::fs::read_link(format!("/proc/thread-self/fd/{}", file.as_raw_fd()));
    match link.is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"/memfd:")) {
        true => "memfd",
        false => "tmpfs",
    }
}
