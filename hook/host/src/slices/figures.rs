//! Reads memory use and refusals from a slice's ledger.
//! Touches: the ledger, by reading it.
//! Law: every process of a slice can write any number into its ledger, so impossible numbers are left
//! out.

use gpuslice_config::ledger::{LedgerError, MAX_SIZE, Record, Refusals, Snapshot};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A number of bytes that exceeds the memory of every GPU and machine.
const IMPOSSIBLE_BYTES: u64 = 1 << 50;
/// A number of refusals that no slice can reach in its lifetime.
const IMPOSSIBLE_COUNT: u64 = 1 << 48;

/// The contents of a ledger.
#[derive(Debug, Default)]
pub struct LedgerFigures {
    /// The memory held by living processes.
    pub records: Vec<Record>,
    /// The refused requests.
    pub refusals: BTreeMap<DeviceUuid, Refusals>,
    /// The limits that were set since the start of the slice.
    pub limits: BTreeMap<DeviceUuid, Bytes>,
    /// The allocations for which the ledger had no room.
    pub uncounted: Option<u64>,
    /// Whether impossible numbers were left out. The sums are then unknown.
    pub is_damaged: bool,
}

impl LedgerFigures {
    /// The memory that living processes hold of a device.
    #[must_use]
    pub fn used(&self, device: DeviceUuid) -> Bytes {
        let own = self.records.iter();
        let own = own.filter(|record| record.device == Some(device));
        own.fold(Bytes::ZERO, |sum, record| sum.plus(Bytes::new(record.used)))
    }
}

/// Reads a ledger into `bytes`, which grow to its length.
///
/// # Errors
/// When it is not a ledger of this version, or cannot be read.
pub fn read(ledger: &Path, bytes: &mut Vec<u8>) -> Result<LedgerFigures, LedgerError> {
    let ledger = CString::new(ledger.as_os_str().as_bytes()).unwrap_or_default();
    let length = match Snapshot::read(&ledger, bytes) {
        Err(LedgerError::Length(length)) => usize::try_from(length).unwrap_or(MAX_SIZE),
        read => return read.map(|snapshot| figures(&snapshot)),
    };
    if length > bytes.len() {
        *bytes = vec![0; length.min(MAX_SIZE)];
    }
    Snapshot::read(&ledger, bytes).map(|snapshot| figures(&snapshot))
}

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
