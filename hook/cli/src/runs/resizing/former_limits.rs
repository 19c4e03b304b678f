//! Removes the limits that `gpuslice resize` has set in a ledger that a slice file names: the ledger
//! outlives the slice, and the slice that is started again has the limits of its file.
//! Touches: the ledger, and a lock on it; the environments in /proc.
//! Law: a limit is removed only while no process is in the slice, under the lock of `gpuslice resize`.

use crate::slice::ledger::c_path;
use gpuslice_config::ledger::{Ledger, LedgerError, Open, SetLimit, Snapshot};
use gpuslice_config::slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::paths;
use gpuslice_host::base::ledger_room::room;
use gpuslice_host::machine::environment;
use nix::unistd::geteuid;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Reasons why the limits of a former slice stay in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormerLimitsError {
    /// The ledger cannot be read or changed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The ledger cannot be locked.
    #[error("cannot lock it: {0}")]
    Lock(#[from] io::Error),
    /// Another command holds the lock.
    #[error("another command has locked it")]
    Locked,
}

/// The longest time to wait for the lock. A run that starts at the same moment holds it for less.
const PATIENCE: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(5);

/// Removes the limits from the ledger of this slice file, for a run that is about to start, if the
/// slice has ended. `ledger` is a ledger already.
///
/// # Errors
/// When the limits of a slice that has ended stay in force.
pub(crate) fn remove(file: &Path, ledger: &Path) -> Result<(), FormerLimitsError> {
    if left_over(file, ledger)?.is_empty() {
        return Ok(());
    }
    let lock = File::open(ledger)?;
    let start = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                std::thread::sleep(INTERVAL);
            }
            Err(TryLockError::WouldBlock) => return Err(FormerLimitsError::Locked),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    // Another run may have started meanwhile, and its slice may have been resized.
    let left = left_over(file, ledger)?;
    if left.is_empty() {
        return Ok(());
    }
    let opened = Ledger::open(&c_path(ledger), Open::Existing)?;
    for device in left.iter().filter_map(|uuid| opened.device(uuid)) {
        // `device` is a device of this ledger.
        let _ = opened.set_limit(device, SetLimit::NONE);
    }
    Ok(())
}

/// Returns the devices with a limit in the ledger of a slice that has ended; none while it lasts.
fn left_over(file: &Path, ledger: &Path) -> Result<Vec<DeviceUuid>, LedgerError> {
    let mut bytes = room(ledger);
    let snapshot = Snapshot::read(&c_path(ledger), &mut bytes)?;
    let limited: Vec<DeviceUuid> = snapshot.limits().map(|(uuid, _)| uuid).collect();
    let lasts =
        || snapshot.slots().any(|record| record.alive) || is_in_an_environment(file, ledger);
    Ok(match limited.is_empty() || lasts() {
        true => Vec::new(),
        false => limited,
    })
}

/// Checks whether the environment of a process names the slice file, or carries a slice with this
/// ledger. Such a process may not have used a GPU yet. This process counts too: it may become another
/// program of its slice.
fn is_in_an_environment(file: &Path, ledger: &Path) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // Only this user's processes can open the ledger.
    let own = geteuid().as_raw();
    let is_own = |pid: &i32| {
        let facts = fs::metadata(format!("/proc/{pid}"));
        facts.is_ok_and(|facts| facts.uid() == own)
    };
    pids.filter(is_own).any(|pid| {
        let environment = environment::of(pid).unwrap_or_default();
        let value = |name: &CStr| {
            let mut variables = environment.split(|byte| *byte == 0);
            variables
                .find_map(|variable| variable.strip_prefix(name.to_bytes())?.strip_prefix(b"="))
        };
        let named = value(paths::CONFIG).map(|path| Path::new(OsStr::from_bytes(path)));
        let carried = value(paths::SLICE).and_then(|text| slice::parse(text).ok());
        let carried = carried.and_then(|slice| slice.ledger);
        named == Some(file) || carried.is_some_and(|path| Path::new(path.as_str()) == ledger)
    })
}
