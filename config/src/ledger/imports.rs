//! The ledger's interface for exports and imports.
//! Touches: the mapped file; the kernel through `kernel`.

use super::protocol::layout::{Device, Kind, Trust};
use super::protocol::private::Mine;
use super::protocol::sharing::{self, Class, ObjectSize, Sharer};
use super::protocol::totals;
use super::{Claim, Ledger};
use crate::words::units::Bytes;

/// The outcome of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    /// The import is recorded: this process pays for it when no other process does.
    Shared,
    /// The import is charged like an allocation of this process, because it cannot be recorded.
    Paid,
    /// No process in the slice pays for the memory, and there is no room for it.
    Refused {
        /// Bytes held by the slice's processes.
        used: Bytes,
    },
}

impl Ledger {
    /// This process's slot on a device; a new one is taken if there is none.
    fn own_slot(&self, device: Device) -> Option<usize> {
        let slot = || self.private.mine(device).and_then(Mine::slot);
        slot().or_else(|| {
            self.claim(device, Bytes::ZERO, Kind::Vmm, Bytes::MAX);
            slot()
        })
    }

    fn row(&self, device: Device) -> Option<&Sharer> {
        let slot = self.private.mine(device).and_then(Mine::slot)?;
        sharing::row(self.table, slot)
    }

    /// Records that other processes of the slice may import this much of this process's memory.
    /// Returns false if no row is free; then an importer pays for the memory, too.
    pub fn export(&self, device: Device, class: Class, size: Bytes) -> bool {
        let slot = self.own_slot(device);
        let row = slot.and_then(|slot| sharing::row_for(self.table, slot));
        row.inspect(|row| row.export(class, size)).is_some()
    }

    /// Call before exported memory is released: its importers pay from now on.
    pub fn unexport(&self, device: Device, class: Class, size: Bytes) {
        if let Some(row) = self.row(device) {
            row.unexport(class, size);
        }
    }

    /// The size of an exported object, for imports that do not report their own size.
    #[must_use]
    pub fn exported(&self, device: Device, class: Class) -> Option<ObjectSize> {
        let (session, device) = (self.session(), self.in_file(device));
        let lives = totals::lives(self.table, &session, device, Trust::unless(true));
        sharing::object(self.table, device, class, lives)
    }

    /// Records an import by this process. It is refused only if no process in the slice pays for
    /// the memory and the slice would then hold more than `limit`.
    pub fn import(&self, device: Device, class: Class, size: Bytes, limit: Bytes) -> Import {
        let row = self.own_slot(device);
        let row = row.and_then(|slot| Some((slot, sharing::row_for(self.table, slot)?)));
        let Some((slot, row)) = row else {
            return match self.claim(device, size, Kind::Vmm, limit) {
                Claim::Refused { used } => Import::Refused { used },
                Claim::NoSlot(_) => Import::Refused { used: limit },
                Claim::Granted | Claim::Private(_) => Import::Paid,
            };
        };
        let growth = {
            let (session, device) = (self.session(), self.in_file(device));
            let lives = totals::lives(self.table, &session, device, Trust::unless(true));
            sharing::growth(self.table, device, class, slot, size, lives)
        };
        if growth == Bytes::ZERO {
            row.import(class, size);
            return Import::Shared;
        }
        // The growth is claimed like an allocation; the memory counts twice until that claim is
        // released.
        match self.claim(device, growth, Kind::Vmm, limit) {
            Claim::Refused { used } => Import::Refused { used },
            Claim::NoSlot(_) => Import::Refused { used: limit },
            Claim::Granted | Claim::Private(_) => {
                row.import(class, size);
                self.release(device, growth, Kind::Vmm);
                Import::Shared
            }
        }
    }

    /// Records that this process has released this much imported memory.
    pub fn unimport(&self, device: Device, class: Class, size: Bytes) {
        if let Some(row) = self.row(device) {
            row.unimport(class, size);
        }
    }
}
