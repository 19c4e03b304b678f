//! Exports and imports, as the ledger's users see them.
//! Touches: the mapped file; the kernel through `calls`.

use super::calls::Calls;
use super::layout::{Device, Kind, Trust};
use super::private::Mine;
use super::protocol;
use super::sharing::{self, Class, Sharer};
use super::{Claim, Ledger};
use crate::units::Bytes;

/// The outcome of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    /// It is recorded: this process pays for it when nobody else does.
    Shared,
    /// It is this process's as if it had allocated it, because it cannot be recorded.
    Paid,
    /// Nobody in the slice pays for it, and there is no room: the slice's processes hold this much.
    Refused {
        /// Bytes held by the slice's processes.
        used: Bytes,
    },
}

impl Ledger {
    /// This process's slot on a device, which it takes if it has none.
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

    /// Others of the slice may import so much of what this process holds. False: there is no row
    /// for that, and who imports it pays for it too.
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

    /// The size of what was exported, where an import does not say its own.
    #[must_use]
    pub fn exported(&self, device: Device, class: Class) -> Option<Bytes> {
        let (calls, device) = (Calls::of(self), self.in_file(device));
        let lives = protocol::lives(self.table, &calls, device, Trust::unless(true));
        sharing::object(self.table, device, class, lives)
    }

    /// This process has imported so much. It is refused only where nobody in the slice pays for it
    /// and the slice would then hold more than `limit`.
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
            let (calls, device) = (Calls::of(self), self.in_file(device));
            let lives = protocol::lives(self.table, &calls, device, Trust::unless(true));
            sharing::growth(self.table, device, class, slot, size, lives)
        };
        if growth == Bytes::ZERO {
            row.import(class, size);
            return Import::Shared;
        }
        // Claimed as if it were allocated; and it counts twice until that is given back.
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

    /// This process has let go of so much of what it had imported.
    pub fn unimport(&self, device: Device, class: Class, size: Bytes) {
        if let Some(row) = self.row(device) {
            row.unimport(class, size);
        }
    }
}
