//! Reads the files of a slice: its slice file, its ledger and its promise.
//! Touches: these files, by reading them.

use super::containers;
use super::process::FileId;
use super::strangers::PRIVATE;
use super::users::{User, is_file_of};
use crate::slice::{file as slice_file, ledger as slice_ledger};
use gpuslice_config::ledger::{LedgerError, MAX_SIZE, Record, Refusals, Snapshot};
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A number of bytes that exceeds the memory of every GPU and machine.
const IMPOSSIBLE_BYTES: u64 = 1 << 50;
/// A number of refusals that no slice can reach in its lifetime.
const IMPOSSIBLE_COUNT: u64 = 1 << 48;

/// The contents of a ledger.
#[derive(Debug, Default)]
pub(super) struct LedgerFigures {
    /// The memory held by living processes.
    pub(super) records: Vec<Record>,
    /// The refused requests.
    pub(super) refusals: BTreeMap<DeviceUuid, Refusals>,
    /// The limits that were set since the start of the slice.
    pub(super) limits: BTreeMap<DeviceUuid, Bytes>,
    /// The allocations for which the ledger had no room.
    pub(super) uncounted: Option<u64>,
    /// Whether impossible numbers were left out. The sums are then unknown.
    pub(super) is_damaged: bool,
}

/// The files of a slice.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) slice: Option<Slice>,
    pub(super) ledger: Option<PathBuf>,
    /// The identity of the ledger's file in the mappings of processes.
    pub(super) mapped: Option<FileId>,
    pub(super) figures: Option<LedgerFigures>,
    /// The error message about the files that cannot be read.
    pub(super) error: Option<String>,
    /// Whether the files belong to another user and this user cannot read them.
    pub(super) is_private: bool,
}

/// Reads the files of a slice, besides the contents of its ledger. A container's slice file names
/// its files by their paths inside the container; `there` are their paths on the host. Only root
/// reads every file of another user's slice. For other users, the file must also belong to the
/// slice's user.
pub(super) fn read(file: &Path, user: Option<User>, there: Option<&containers::Files>) -> Files {
    let mut files = Files::default();
    if !is_safe(file, user) {
        files.error = Some(PRIVATE.to_owned());
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
    files
}

/// Checks whether a file of this user's slice may be read.
fn is_safe(file: &Path, user: Option<User>) -> bool {
    let stranger = user.filter(|user| *user != User::own() && User::own() != User(0));
    stranger.is_none_or(|user| is_file_of(user, file))
}

impl Files {
    /// Reads the ledger into `bytes`.
    pub(super) fn read_ledger(&mut self, user: Option<User>, bytes: &mut Vec<u8>) {
        let ledger = self.ledger.as_ref().filter(|_| self.slice.is_some());
        let Some(ledger) = ledger.filter(|ledger| is_safe(ledger, user)) else {
            return;
        };
        match figures_of(ledger, bytes) {
            Ok(figures) => {
                self.mapped = self.mapped.or_else(|| FileId::of(ledger));
                self.error = figures.is_damaged.then(|| DAMAGED.to_owned());
                self.figures = Some(figures);
            }
            Err(error) => self.error = Some(error.to_string()),
        }
    }
}

/// Reads the ledger into `bytes`, which grow to its length.
pub(super) fn figures_of(ledger: &Path, bytes: &mut Vec<u8>) -> Result<LedgerFigures, LedgerError> {
    let ledger = slice_ledger::c_path(ledger);
    let length = match Snapshot::read(&ledger, bytes) {
        Err(LedgerError::Length(length)) => usize::try_from(length).unwrap_or(MAX_SIZE),
        read => return read.map(|snapshot| figures(&snapshot)),
    };
    if length > bytes.len() {
        *bytes = vec![0; length.min(MAX_SIZE)];
    }
    Snapshot::read(&ledger, bytes).map(|snapshot| figures(&snapshot))
}

const DAMAGED: &str = "the ledger is damaged: impossible numbers in it are not shown";

/// Returns the snapshot's contents, without impossible numbers.
fn figures(snapshot: &Snapshot<'_>) -> LedgerFigures {
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
    LedgerFigures {
        records,
        refusals,
        limits: snapshot.limits().collect(),
        uncounted,
        is_damaged,
    }
}
