//! The ledger of a slice: where it is, and that it is there before the slice's first program.
//! Touches: the ledger's file.

use gpuslice_config::device::DeviceUuid;
use gpuslice_config::ledger::{
    Ledger, LedgerError, MAX_SIZE, Open, Refusals, Snapshot, key_of, size_for,
};
use gpuslice_config::slice::Slice;
use gpuslice_config::source;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How a run's own ledger is called, beside its slice file.
const NAME: &str = "ledger";

/// Who may write to a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// The processes of the user whose slice it is.
    User,
    /// Everybody who knows its name.
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

/// Makes the ledger of a run on so many devices in its private folder, and says where it is, and the
/// number by which its processes know it.
///
/// What root starts may go on as another user (gosu, setpriv), and must still be counted. So
/// root's ledger can be written to by everybody who knows its name, of 128 random bits, and those
/// are the slice's own processes: the name stands in their environment, which others cannot read,
/// and in a folder that others can pass through but not list. Somebody else of that other user's
/// can read it there, as he can stop those processes: he needs no ledger to harm them.
///
/// # Errors
/// When it cannot be made.
pub fn make_in(folder: &Path, devices: usize) -> Result<(PathBuf, u64), SliceLedgerError> {
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

/// Why there is no ledger.
#[derive(Debug, thiserror::Error)]
pub enum SliceLedgerError {
    /// It cannot be made.
    #[error("cannot make {path}, the ledger of the slice")]
    Make {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("cannot use {path} as the ledger of the slice")]
    Use {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: LedgerError,
    },
}

/// Makes the ledger of a slice of so many devices if there is none, and looks whether it is one.
///
/// # Errors
/// When it cannot be made, or is something else.
pub fn make(path: &Path, writers: Writers, devices: usize) -> Result<(), SliceLedgerError> {
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

/// Takes the whole file from the file system at once: on one that is full, a program that comes
/// to a page that is not there yet would be killed. A file that is there is never made into one: a
/// slice file may name any.
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
    // Whatever the umask says.
    file.set_permissions(Permissions::from_mode(mode))?;
    match fallocate(&file, FallocateFlags::empty(), 0, length) {
        // It can only be made longer then.
        Err(Errno::EOPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}

/// How long another may take that has made the file and not yet reserved its pages.
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

/// What was refused to the processes of a slice; nothing where the ledger cannot be read.
#[must_use]
pub fn refusals(path: &Path) -> Vec<(DeviceUuid, Refusals)> {
    let mut bytes = vec![0; MAX_SIZE];
    let snapshot = Snapshot::read(&c_path(path), &mut bytes);
    snapshot.map_or_else(|_| Vec::new(), |snapshot| snapshot.refusals().collect())
}

/// Where the ledger of a slice is; None where nothing is counted.
#[must_use]
pub fn path(file: &Path, slice: &Slice) -> Option<PathBuf> {
    let named = slice.ledger.map(|path| PathBuf::from(path.as_str()));
    named.or_else(|| {
        (file == path_of(source::MOUNTED_SLICE)).then(|| path_of(source::MOUNTED_LEDGER))
    })
}

/// A path for the ledger's own calls. One with a NUL in it leads nowhere.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn path_of(name: &CStr) -> PathBuf {
    OsStr::from_bytes(name.to_bytes()).into()
}
