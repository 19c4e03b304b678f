//! Examines the slice's ledger: whether programs can use it, and how full it is.
//! Touches: the ledger, by reading it. If no context can be created, it takes a slot in the ledger
//! until this process ends.

use super::slice_shown::SliceShown;
use crate::slice::ledger as slice_ledger;
use crate::slice::ledger::c_path;
use gpuslice_config::ledger::{
    Claim, Kind, Ledger, LedgerError, MAX_SIZE, Open, Private, Snapshot,
};
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A slice's ledger in its state before the first query. It is read early, because a process that
/// opens an erased ledger rewrites its header.
#[derive(Debug)]
pub(super) struct LedgerSeen {
    path: PathBuf,
    descriptor: Option<PathBuf>,
    open: Open,
    is_enforced: bool,
    fault: Option<Fault>,
}

/// Reasons why programs cannot use a ledger.
#[derive(Debug)]
enum Fault {
    /// The file has a ledger's length, but its header is all zeros.
    Erased,
    /// The file cannot be used.
    File(LedgerError),
}

/// The memory that the slice's processes hold on a device, and their limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) used: Bytes,
    pub(super) limit: Bytes,
}

/// This process's own entry in the ledger, which holds no memory.
static OWN: Private = Private::empty();

impl LedgerSeen {
    /// Reads the ledger of a slice; None if the slice has no ledger.
    pub(super) fn find(shown: &SliceShown) -> Option<LedgerSeen> {
        let slice = shown.slice.as_deref()?;
        let path = slice_ledger::path(&shown.path, slice)?;
        let mut place = vec![0; MAX_SIZE];
        let fault = match Snapshot::read(&c_path(&path), &mut place) {
            // If the path no longer exists, programs reach the ledger through the run's watcher.
            Ok(_) | Err(LedgerError::Open(_)) => None,
            Err(LedgerError::Magic) if is_erased(&path) => Some(Fault::Erased),
            Err(why) => Some(Fault::File(why)),
        };
        Some(LedgerSeen {
            descriptor: slice.ledger_descriptor.map(|path| path.as_str().into()),
            open: slice.ledger_id.map_or(Open::Existing, Open::Known),
            is_enforced: slice.enforce,
            path,
            fault,
        })
    }

    /// Returns the reason why the slice's programs cannot use the ledger, and the fix.
    /// `context_failed` is a device of the slice on which a route could not create a context.
    pub(super) fn fault(
        &self,
        slice: &Slice,
        context_failed: Option<DeviceUuid>,
    ) -> Option<String> {
        let why = match &self.fault {
            // The programs may load another version of the library than this command's.
            Some(Fault::File(LedgerError::Version(_))) if context_failed.is_none() => return None,
            Some(Fault::Erased) => "its header is erased".to_owned(),
            Some(Fault::File(why)) => why.to_string(),
            None => self.refusal(slice, context_failed)?,
        };
        let follows = match (&self.fault, self.is_enforced) {
            (Some(Fault::Erased), _) => "what its processes hold is not counted any more",
            (_, true) => "the slice refuses GPU memory to its programs",
            (_, false) => "nothing is counted",
        };
        Some(format!(
            "the ledger {} cannot be used: {why}; {follows}: stop its programs and start the slice \
             again",
            self.path.display()
        ))
    }

    /// Returns the reason why the ledger has no slot for a process.
    fn refusal(&self, slice: &Slice, context_failed: Option<DeviceUuid>) -> Option<String> {
        let uuid = match context_failed {
            Some(uuid) => uuid,
            // No context failed, so it is enough that programs can open the ledger.
            None => return self.open().err().map(|why| why.to_string()),
        };
        slice.device(uuid)?;
        let ledger = match self.open() {
            Ok(ledger) => ledger,
            Err(why) => return Some(why.to_string()),
        };
        let Some(device) = ledger.device(&uuid) else {
            return Some("it has no room for another device".to_owned());
        };
        // A claim of zero bytes takes a slot in the ledger too.
        match ledger.claim(device, Bytes::ZERO, Kind::Linear, Bytes::MAX) {
            Claim::Granted | Claim::Refused { .. } => None,
            Claim::NoSlot(why) | Claim::Private(why) => Some(why.to_string()),
        }
    }

    fn open(&self) -> Result<Ledger, LedgerError> {
        let descriptor = self.descriptor.as_deref().unwrap_or(Path::new(""));
        Ledger::open_with(&c_path(&self.path), &c_path(descriptor), self.open, &OWN)
    }

    /// Returns how full the slice is on a device.
    pub(super) fn fill(&self, slice: &Slice, uuid: DeviceUuid) -> Option<Fill> {
        let limit = slice.device(uuid)?.memory;
        let ledger = self.open().ok()?;
        let used = ledger.sum(ledger.device(&uuid)?);
        Some(Fill { used, limit })
    }
}

/// Checks whether the first words of a file are zeros.
fn is_erased(path: &Path) -> bool {
    let mut words = [1; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut words));
    read.is_ok() && words == [0; 16]
}
