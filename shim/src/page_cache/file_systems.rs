//! Decides by the type of a file system how its files are treated: whether they are memory, and how
//! locks on them are found.
//! Touches: its arguments.

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// The pages of its files are their only copy: such pages are never dropped.
    Memory,
    /// The kernel knows all locks, and answers a query by itself.
    Local,
    /// The kernel passes queries for locks to the server that also serves the reads.
    Fuse,
    /// A query for locks may go to a lock manager, which may not be reachable although the file is.
    /// Unknown file systems count as this.
    Network,
}

impl FileSystem {
    /// The kind of a file system with this number of statfs(2).
    pub(crate) fn numbered(number: u64) -> FileSystem {
        const TMPFS: u64 = libc::TMPFS_MAGIC as u64;
        const HUGETLBFS: u64 = libc::HUGETLBFS_MAGIC as u64;
        const FUSE: u64 = libc::FUSE_SUPER_MAGIC as u64;
        // ext2 and ext3 have the same number.
        const EXT4: u64 = libc::EXT4_SUPER_MAGIC as u64;
        const XFS: u64 = libc::XFS_SUPER_MAGIC as u64;
        const BTRFS: u64 = libc::BTRFS_SUPER_MAGIC as u64;
        const F2FS: u64 = libc::F2FS_SUPER_MAGIC as u64;
        const BCACHEFS: u64 = libc::BCACHEFS_SUPER_MAGIC as u64;
        // Its locks are its own, whatever the layers below it are.
        const OVERLAYFS: u64 = libc::OVERLAYFS_SUPER_MAGIC as u64;
        const ISOFS: u64 = libc::ISOFS_SUPER_MAGIC as u64;
        const FAT: u64 = libc::MSDOS_SUPER_MAGIC as u64;
        // The `libc` crate lacks these constants.
        const RAMFS: u64 = 0x8584_58f6;
        const ZFS: u64 = 0x2fc1_2fc1;
        const EROFS: u64 = 0xe0f5_e1e2;
        const SQUASHFS: u64 = 0x7371_7368;
        const EXFAT: u64 = 0x2011_bab0;
        const NTFS3: u64 = 0x7366_746e;
        match number {
            TMPFS | RAMFS | HUGETLBFS => FileSystem::Memory,
            FUSE => FileSystem::Fuse,
            EXT4 | XFS | BTRFS | F2FS | ZFS | BCACHEFS | OVERLAYFS | EROFS | SQUASHFS | ISOFS
            | FAT | EXFAT | NTFS3 => FileSystem::Local,
            _ => FileSystem::Network,
        }
    }
}
