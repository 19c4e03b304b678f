//! Creates and finds a slice's ledger, which must exist before the slice's first program.
//! Touches: the ledger's file.

use gpuslice_config::ledger::{Ledger, LedgerError, Open, Refusals, Snapshot, key_of, size_for};
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::paths;
use gpuslice_host::base::ledger_room::room;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of a run's own ledger, in its private folder.
const NAME: &str = "ledger";

/// Selects the processes that may write to a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// The processes of the user that owns the slice.
    User,
    /// Every process that knows its name.
    WhoKnowsIt,
}

impl Writers {
    fn mode(self) -> u32 {
        match self {
            Writers::User => 0o600,
            Writers::WhoKnowsIt => 0o666,
        }
    }
}

/// Creates the ledger of a run for this many devices in its private folder. Returns its path, and
/// the number by which the slice's processes recognise it.
///
/// A program started by root may change to another user (gosu, setpriv) and must still be counted.
/// So any process that knows the name of root's ledger can write to it. The name contains 128
/// random bits, and only the slice's own processes know it: other users can read neither their
/// environment nor the list of the folder's files. After a change of user, the new user's other
/// processes can read the name in that environment. They gain nothing by it, because they can stop
/// the slice's processes anyway.
///
/// # Errors
/// When the ledger cannot be created.
pub(crate) fn make_in(folder: &Path, devices: usize) -> Result<(PathBuf, u64), SliceLedgerError> {
    let mut bits = [0; 16];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bits));
    random.map_err(|source| SliceLedgerError::Make {
        path: folder.join(NAME),
        source,
    })?;
    let id = key_of(&bits).max(1);
    let (path, writers) = match nix::unistd::geteuid().is_root() {
        false => (folder.join(NAME), Writers::User),
        true => {
            let name = format!("{NAME}.{:032x}", u128::from_ne_bytes(bits));
            (folder.join(name), Writers::WhoKnowsIt)
        }
    };
    let ledger = made(&path, writers, devices)?;
    match ledger.identify(id) {
        true => Ok((path, id)),
        false => Err(SliceLedgerError::Use {
            path,
            source: LedgerError::Another,
        }),
    }
}

/// Reasons why a slice has no ledger.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SliceLedgerError {
    /// The ledger cannot be created.
    #[error("cannot make {path}, the ledger of the slice")]
    Make {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file is not a usable ledger.
    #[error("cannot use {path} as the ledger of the slice")]
    Use {
        path: PathBuf,
        #[source]
        source: LedgerError,
    },
}

/// Creates the ledger of a slice for this many devices if it does not exist, and checks it.
///
/// # Errors
/// When it cannot be created, or is not a ledger.
pub(crate) fn make(path: &Path, writers: Writers, devices: usize) -> Result<(), SliceLedgerError> {
    made(path, writers, devices).map(drop)
}

fn made(path: &Path, writers: Writers, devices: usize) -> Result<Ledger, SliceLedgerError> {
    let mode = writers.mode();
    reserve(path, mode, size_for(devices)).map_err(|source| SliceLedgerError::Make {
        path: path.to_owned(),
        source,
    })?;
    let opened = Ledger::open(&c_path(path), Open::Create { mode, devices });
    opened.map_err(|source| SliceLedgerError::Use {
        path: path.to_owned(),
        source,
    })
}

/// Creates the file and allocates all its pages at once. Otherwise, on a full file system, a
/// program would be killed when it first touches an unallocated page. An existing file is never
/// turned into a ledger, because a slice file may name any file.
fn reserve(path: &Path, mode: u32, length: usize) -> io::Result<()> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(flags.bits())
        .open(path);
    let file = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return not_empty(path),
        made => made?,
    };
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    // The mode must not depend on the umask.
    file.set_permissions(Permissions::from_mode(mode))?;
    match fallocate(&file, FallocateFlags::empty(), 0, length) {
        // On a file system that cannot allocate, the file is only extended.
        Err(Errno::EOPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}

/// The longest time to wait for another process that has created the file but not yet allocated its
/// pages.
const PATIENCE: Duration = Duration::from_secs(1);

fn not_empty(path: &Path) -> io::Result<()> {
    let start = Instant::now();
    loop {
        let facts = fs::metadata(path)?;
        if !facts.is_file() || facts.len() > 0 {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(
                "it is an empty file that gpuslice has not made (remove it, or name another)",
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the refusals of a slice; empty if the ledger cannot be read.
#[must_use]
pub(crate) fn refusals(path: &Path) -> Vec<(DeviceUuid, Refusals)> {
    let mut bytes = room(path);
    let snapshot = Snapshot::read(&c_path(path), &mut bytes);
    snapshot.map_or_else(|_| Vec::new(), |snapshot| snapshot.refusals().collect())
}

/// Puts the limits in force into a slice that was read from its file: those that were set since its
/// start are in its ledger.
pub(crate) fn apply_limits(file: &Path, slice: &mut Slice) {
    let Some(ledger) = path(file, slice) else {
        return;
    };
    let mut bytes = room(&ledger);
    if let Ok(snapshot) = Snapshot::read(&c_path(&ledger), &mut bytes) {
        for (uuid, limit) in snapshot.limits() {
            slice.set_limit(uuid, limit);
        }
    }
}

/// Returns the path of a slice's ledger; None if no memory is counted.
#[must_use]
pub(crate) fn path(file: &Path, slice: &Slice) -> Option<PathBuf> {
    let named = slice.ledger.map(|path| PathBuf::from(path.as_str()));
    named
        .or_else(|| (file == path_of(paths::MOUNTED_SLICE)).then(|| path_of(paths::MOUNTED_LEDGER)))
}

/// Returns a path for the ledger's system calls. A path with a NUL byte becomes the empty path,
/// which names no file.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn path_of(name: &CStr) -> PathBuf {
    OsStr::from_bytes(name.to_bytes()).into()
}
