//! The ledger of the slice that is resized.
//! Touches: the ledger, by one word for each device, and a lock on the file.
//! Law: what is held is read from a copy of the file. Only the limits are written, by a mapping: a
//! slice that truncates its ledger at that moment ends this command.

use crate::commands::status::users::{User, with_rights_of};
use crate::slice::ledger::c_path;
use anyhow::{Context, bail};
use gpuslice_config::ledger::{Device, Ledger, Open, Record, SetLimit, Snapshot};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_host::base::ledger_room::room;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// The ledger of a slice, locked against other resizes.
pub(super) struct SliceLedger {
    ledger: Ledger,
    path: PathBuf,
    user: User,
    _lock: File,
}

impl SliceLedger {
    pub(super) fn open(path: &Path, user: User) -> anyhow::Result<SliceLedger> {
        let cannot = || format!("cannot open {}, the ledger of the slice", path.display());
        let opened = with_rights_of(user, || {
            // Ledger::open refuses a FIFO, on which File::open would block. So it comes first.
            let ledger = Ledger::open(&c_path(path), Open::Existing).with_context(cannot)?;
            anyhow::Ok((ledger, File::open(path).with_context(cannot)?))
        });
        let (ledger, lock) = opened?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another command is resizing this slice"),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        Ok(SliceLedger {
            ledger,
            path: path.to_owned(),
            user,
            _lock: lock,
        })
    }

    /// Returns the number of a device. Adds the device if no program has used it.
    pub(super) fn device(&self, uuid: DeviceUuid) -> anyhow::Result<Device> {
        let device = self.ledger.device(&uuid);
        device.with_context(|| format!("{} has no room for {uuid}", self.path.display()))
    }

    pub(super) fn limit(&self, device: Device) -> SetLimit {
        self.ledger.limit(device)
    }

    pub(super) fn set(&self, device: Device, limit: SetLimit) {
        // `device` is a device of this ledger.
        let _ = self.ledger.set_limit(device, limit);
    }

    /// Returns the living processes of the slice that hold memory.
    pub(super) fn records(&self) -> anyhow::Result<Vec<Record>> {
        with_rights_of(self.user, || {
            let mut bytes = room(&self.path);
            let snapshot = Snapshot::read(&c_path(&self.path), &mut bytes);
            let snapshot =
                snapshot.with_context(|| format!("cannot read {}", self.path.display()))?;
            Ok(snapshot.slots().filter(|record| record.alive).collect())
        })
    }
}
