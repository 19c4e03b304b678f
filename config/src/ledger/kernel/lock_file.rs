//! The file that carries a ledger's locks, and the descriptors that are open on it.
//! Touches: the file, by its path, for as long as one call of the ledger.

use super::reopen;
use crate::sys::{Access, ESTALE, Errno, Fd, Stat};
use core::ffi::CStr;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU64, AtomicUsize};

/// The longest path of a ledger.
pub(crate) const PATH_MAX: usize = 255;

/// The longest path of a descriptor.
pub(crate) const DESCRIPTOR_MAX: usize = 31;

/// A path that ends in NUL.
pub(crate) struct Path<const N: usize>([u8; N]);

impl<const N: usize> Path<N> {
    /// No path.
    const EMPTY: Path<N> = Path([0; N]);

    /// The path of the file `name` in the same folder.
    pub(crate) fn beside(path: &CStr, name: &[u8]) -> Option<Path<N>> {
        let path = path.to_bytes();
        let folder = path.iter().rposition(|byte| *byte == b'/')?;
        let folder = path.get(..folder.saturating_add(1))?;
        let mut bytes = [0; N];
        let (start, rest) = bytes.split_at_mut_checked(folder.len())?;
        start.copy_from_slice(folder);
        let (to, end) = rest.split_at_mut_checked(name.len())?;
        to.copy_from_slice(name);
        // The name must have room for its NUL.
        let _ = end.first()?;
        Some(Path(bytes))
    }

    pub(crate) fn new(path: &CStr) -> Option<Path<N>> {
        let from = path.to_bytes_with_nul();
        let mut bytes = [0; N];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Path(bytes))
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// The lock file beside a sealed ledger, because no mapping keeps that ledger's own locks.
pub(crate) const LOCKS: &[u8] = b"locks";

/// The identity of the file that carries the locks.
enum Identity {
    /// The ledger itself, with its length.
    Ledger((u64, u64), u64),
    /// A file beside it, by its device and inode once it has been opened.
    Beside([AtomicU64; 2]),
}

/// The file that carries a ledger's locks.
pub(crate) struct LockFile {
    path: Path<{ PATH_MAX + 1 }>,
    /// The path of another process's descriptor of the ledger; empty where there is none.
    descriptor: Path<{ DESCRIPTOR_MAX + 1 }>,
    /// The descriptors of the file that this process has open.
    pub(crate) open_fds: OpenFds,
    identity: Identity,
}

impl LockFile {
    /// The ledger itself, at `path`. `None` if the path is too long.
    pub(crate) fn ledger(path: &CStr, descriptor: &CStr, stat: Stat) -> Option<LockFile> {
        Some(LockFile {
            path: Path::new(path)?,
            descriptor: Path::new(descriptor).unwrap_or(Path::EMPTY),
            open_fds: OpenFds::none(),
            identity: Identity::Ledger(stat.identity, stat.length),
        })
    }

    /// The file `locks` beside the ledger at `path`. `None` if the path is too long.
    pub(crate) fn beside(path: &CStr, descriptor: &CStr) -> Option<LockFile> {
        Some(LockFile {
            path: Path::beside(path, LOCKS)?,
            descriptor: Path::new(descriptor).unwrap_or(Path::EMPTY),
            open_fds: OpenFds::none(),
            identity: Identity::Beside([const { AtomicU64::new(0) }; 2]),
        })
    }

    /// No file: the ledger cannot be used.
    pub(crate) fn none() -> LockFile {
        LockFile {
            path: Path::EMPTY,
            descriptor: Path::EMPTY,
            open_fds: OpenFds::none(),
            identity: Identity::Beside([const { AtomicU64::new(0) }; 2]),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &CStr {
        self.path.as_c_str()
    }

    /// Whether a file is the one that carries the locks.
    fn is(&self, stat: &Stat) -> bool {
        match &self.identity {
            Identity::Ledger(identity, length) => {
                stat.regular && stat.identity == *identity && stat.length == *length
            }
            Identity::Beside([device, inode]) => {
                let found = stat.identity;
                let same = |word: &AtomicU64, found: u64| {
                    let known = word.compare_exchange(0, found, SeqCst, SeqCst);
                    known.map_or_else(|known| known == found, |_| true)
                };
                stat.regular && same(device, found.0) && same(inode, found.1)
            }
        }
    }

    /// Opens the file that carries the locks. Its path may by now lead to another file, or to none.
    pub(crate) fn open(&self, access: Access) -> Result<Fd, Errno> {
        let ours = |fd: Fd| match self.is(&fd.stat()?) {
            true => Ok(fd),
            false => Err(ESTALE),
        };
        let (path, descriptor) = (&self.path, &self.descriptor);
        let named = Fd::open(path.as_c_str(), access).and_then(ours);
        named.or_else(|why| {
            let there = reopen::open(path.as_c_str(), descriptor.as_c_str());
            there.and_then(ours).map_err(|_| why)
        })
    }

    /// In a forked child: closes the descriptors that the parent had open at the moment of the
    /// fork.
    pub(crate) fn close_inherited(&self) {
        self.open_fds.close(|stat| self.is(stat));
    }
}

/// The descriptors that this process has open at this moment, each plus one.
///
/// A child that is forked in that moment (some microseconds, once per process and device) inherits
/// them, and with them the locks. It closes them at its first use of the ledger. If it never uses
/// the ledger and outlives its parent, the parent's bytes stay counted until the child ends: too
/// much is reported as used, never too little. The same applies to the mapping, between mmap and
/// madvise.
pub(crate) struct OpenFds([AtomicUsize; 4]);

impl OpenFds {
    pub(crate) const fn none() -> OpenFds {
        OpenFds([const { AtomicUsize::new(0) }; 4])
    }

    /// Notes an open descriptor; the returned word is set to 0 when it is closed.
    pub(crate) fn note(&self, fd: &Fd) -> Option<&AtomicUsize> {
        let number = fd.number().saturating_add(1);
        let free = |entry: &&AtomicUsize| {
            let noted = entry.compare_exchange(0, number, SeqCst, SeqCst);
            noted.is_ok()
        };
        self.0.iter().find(free)
    }

    /// In a child: closes the descriptors that the parent had open, if they still refer to the
    /// ledger.
    fn close(&self, is_ours: impl Fn(&Stat) -> bool) {
        for entry in &self.0 {
            let Some(number) = entry.swap(0, SeqCst).checked_sub(1) else {
                continue;
            };
            let fd = Fd::numbered(number);
            match fd.stat() {
                Ok(stat) if is_ours(&stat) => drop(fd),
                _ => core::mem::forget(fd),
            }
        }
    }
}
