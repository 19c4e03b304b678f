//! Another size of a run on GPUs with memory of their own.
//! Touches: the folders of tenants and the locks on them; for root, the hook's lock.
//! Law: another user's folder is read with that user's rights only.

use super::{Size, SizeError};
use crate::runs::tenancy::{self, Card};
use crate::runs::tenant_folders::{self, Folders, Lock};
use crate::slice::user::{User, with_rights_of};
use anyhow::Context;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_host::slices::records::DeviceBudget;
use gpuslice_host::slices::resized;
use gpuslice_host::slices::tenants::Tenant;
use std::fs::File;
use std::path::Path;

/// The lock on the tenants, and their records read under it.
pub(crate) struct TenantAdmission {
    _lock: Lock<'static>,
    /// The lock on the run's user's folder, if only that user's runs count the run.
    _users: Option<File>,
    own: Option<Tenant>,
    others: Vec<Tenant>,
}

impl TenantAdmission {
    pub(super) fn begin(
        simulated: Option<&Path>,
        record: Option<&Path>,
        uid: u32,
    ) -> TenantAdmission {
        let folders = Folders::of(simulated);
        let lock = folders.lock();
        let is_own = |tenant: &Tenant| Some(tenant.file.as_path()) == record && tenant.uid == uid;
        let mut living = folders.living();
        let another = record.and_then(|record| folders.another(record));
        let users = another.and_then(|folder| {
            let (lock, tenants) = with_rights_of(User(uid), || tenant_folders::locked(folder));
            living.extend(tenants);
            lock
        });
        let (own, others): (Vec<_>, Vec<_>) = living.into_iter().partition(is_own);
        TenantAdmission {
            _lock: lock,
            _users: users,
            own: own.into_iter().next(),
            others,
        }
    }

    /// A slice that was not admitted on a card, because its programs do not see it, needs no room
    /// there.
    pub(super) fn admit(&self, cards: &[Card]) -> Result<(), SizeError> {
        let counts = |card: &&Card| {
            self.own.as_ref().is_none_or(|own| {
                let mut devices = own.devices.iter();
                devices.any(|budget| budget.uuid == card.uuid)
            })
        };
        let cards: Vec<Card> = cards.iter().filter(counts).cloned().collect();
        match tenancy::full(&cards, &self.others) {
            Some(full) => Err(SizeError::NoRoom(full.to_string())),
            None => Ok(()),
        }
    }

    pub(super) fn record(&mut self, sizes: &[(DeviceUuid, Size)]) -> anyhow::Result<()> {
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        let after = |budget: &DeviceBudget| DeviceBudget {
            memory: Size::of(sizes, budget.uuid, budget.memory),
            ..*budget
        };
        let budgets: Vec<DeviceBudget> = own.devices.iter().map(after).collect();
        if budgets != own.devices {
            let written = resized::rewrite(own, &budgets);
            written.with_context(|| format!("cannot write {}", own.file.display()))?;
            own.devices = budgets;
        }
        Ok(())
    }
}
