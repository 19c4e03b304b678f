//! Admits another size of a running slice on GPUs with memory of their own, and records it.
//! Touches: the folder of tenants and the lock on it; for root, the hook's lock.
//! Law: the records of a card never promise less than the ledgers grant. A larger size is recorded
//! before it is in force, and a smaller one afterwards.

use crate::runs::tenancy::{self, Card};
use crate::runs::tenant_folders::{Folders, Lock};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::slices::admission::AdmissionError;
use gpuslice_host::slices::records::DeviceBudget;
use gpuslice_host::slices::resized;
use gpuslice_host::slices::tenants::Tenant;
use std::io;
use std::path::Path;

/// The locks of admission, and the records read under them.
pub(crate) struct Admission {
    _lock: Lock<'static>,
    own: Option<Tenant>,
    others: Vec<Tenant>,
}

impl Admission {
    /// Takes the locks. `simulated` is the state folder of a simulated machine. `record` is the file
    /// in which the slice of the user `uid` is recorded; a slice without it is not on record.
    pub(crate) fn begin(simulated: Option<&Path>, record: Option<&Path>, uid: u32) -> Admission {
        let folders = Folders::of(simulated);
        let lock = folders.lock();
        let is_own = |tenant: &Tenant| Some(tenant.file.as_path()) == record && tenant.uid == uid;
        let (own, others): (Vec<_>, Vec<_>) = folders.living().into_iter().partition(is_own);
        Admission {
            _lock: lock,
            own: own.into_iter().next(),
            others,
        }
    }

    /// Checks whether a card has room for the slice with the size that is asked for. A slice that
    /// was not admitted on this card, because its programs do not see it, needs no room there.
    ///
    /// # Errors
    /// When the other slices leave less.
    pub(crate) fn admit(&self, card: &Card) -> Result<(), AdmissionError> {
        let counts = self.own.as_ref().is_none_or(|own| {
            let mut devices = own.devices.iter();
            devices.any(|budget| budget.uuid == card.uuid)
        });
        match tenancy::full(std::slice::from_ref(card), &self.others) {
            Some(full) if counts => Err(full),
            _ => Ok(()),
        }
    }

    /// Records the sizes of some cards. A record that is smaller than a lower limit stays: the slice
    /// was started with --overcommit.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) fn record(&mut self, sizes: &[(DeviceUuid, Size)]) -> io::Result<()> {
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        let budgets: Vec<DeviceBudget> = own
            .devices
            .iter()
            .map(|budget| {
                let size = sizes.iter().find(|(uuid, _)| *uuid == budget.uuid);
                let memory = match size {
                    None => budget.memory,
                    Some((_, Size::Larger(size))) => *size,
                    Some((_, Size::Smaller(size))) => budget.memory.at_most(*size),
                };
                DeviceBudget { memory, ..*budget }
            })
            .collect();
        if budgets != own.devices {
            resized::rewrite(own, &budgets)?;
            own.devices = budgets;
        }
        Ok(())
    }
}

/// A size that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// The slice was admitted for this size.
    Larger(Bytes),
    /// The slice is limited to this size now.
    Smaller(Bytes),
}
