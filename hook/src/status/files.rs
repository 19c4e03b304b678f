//! Reads the files of a slice: its slice file, its ledger and its promise.
//! Touches: these files, by reading them.

use super::containers;
use super::process::FileId;
use super::users::{User, is_file_of};
use crate::{slice_file, slice_ledger};
use gpuslice_config::device::DeviceUuid;
use gpuslice_config::ledger::{MAX_SIZE, Record, Refusals, Snapshot};
use gpuslice_config::slice::Slice;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// No GPU and no machine has so much memory, in bytes.
const IMPOSSIBLE_BYTES: u64 = 1 << 50;
/// No slice lives long enough to be refused so often.
const IMPOSSIBLE_COUNT: u64 = 1 << 48;

/// The contents of a ledger.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// What living processes hold.
    pub(super) records: Vec<Record>,
    /// What was refused.
    pub(super) refusals: BTreeMap<DeviceUuid, Refusals>,
    /// Allocations that it had no room for.
    pub(super) uncounted: Option<u64>,
    /// Whether impossible numbers were left out: then no sum is known.
    pub(super) is_damaged: bool,
}

/// The files of a slice.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) slice: Option<Slice>,
    pub(super) ledger: Option<PathBuf>,
    /// The ledger, as processes have it mapped.
    pub(super) mapped: Option<FileId>,
    pub(super) told: Option<Told>,
    /// The files that cannot be read, as a message.
    pub(super) error: Option<String>,
    /// Whether they are another user's, and not for this user to read.
    pub(super) is_private: bool,
}

/// Reads them. `there` is where a container's files are, which its slice file names as they are
/// seen inside. A file that a user without root's rights reads of another must be that user's own.
pub(super) fn read(file: &Path, user: Option<User>, there: Option<&containers::Files>) -> Files {
    let stranger = user.filter(|user| *user != User::own() && User::own() != User(0));
    let is_safe = |path: &Path| stranger.is_none_or(|user| is_file_of(user, path));
    let mut files = Files::default();
    if !is_safe(file) {
        files.error = Some("its slice file can be read by its user and by root only".to_owned());
        files.is_private = true;
        return files;
    }
    let slice = match slice_file::read(file) {
        Ok(slice) => slice,
        Err(error) => {
            files.error = Some(format!("{:#}", anyhow::Error::new(error)));
            return files;
        }
    };
    files.ledger = match there {
        Some(there) => Some(there.ledger.clone()),
        None => slice_ledger::path(file, &slice),
    };
    files.slice = Some(slice);
    let Some(ledger) = files.ledger.clone().filter(|ledger| is_safe(ledger)) else {
        return files;
    };
    let mut bytes = vec![0; MAX_SIZE];
    match Snapshot::read(&slice_ledger::c_path(&ledger), &mut bytes) {
        Ok(snapshot) => {
            let told = told(&snapshot);
            files.mapped = FileId::of(&ledger);
            files.error = told.is_damaged.then(|| DAMAGED.to_owned());
            files.told = Some(told);
        }
        Err(error) => files.error = Some(error.to_string()),
    }
    files
}

const DAMAGED: &str = "the ledger is damaged: impossible numbers in it are not shown";

/// What the snapshot says, without impossible numbers.
fn told(snapshot: &Snapshot<'_>) -> Told {
    let mut is_damaged = false;
    let mut possible = |is_possible: bool| {
        is_damaged |= !is_possible;
        is_possible
    };
    let alive = snapshot.slots().filter(|record| record.alive);
    let records = alive
        .filter(|record| possible(record.used < IMPOSSIBLE_BYTES))
        .collect();
    let refusals = snapshot
        .refusals()
        .filter(|(_, refusals)| {
            let (count, regret) = (refusals.count, refusals.regret.get());
            possible(count < IMPOSSIBLE_COUNT && regret < IMPOSSIBLE_BYTES)
        })
        .collect();
    let uncounted = Some(snapshot.uncounted());
    let uncounted = uncounted.filter(|count| possible(*count < IMPOSSIBLE_COUNT));
    Told {
        records,
        refusals,
        uncounted,
        is_damaged,
    }
}
