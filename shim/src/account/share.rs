//! The record of one device's share of memory that several processes may hold: Vulkan's memory, and
//! what OpenCL imports.
//! Touches: the ledger, when the memory goes.

use gpuslice_config::ledger::{Class, Device, Import, Kind, Ledger};
use gpuslice_config::words::units::Bytes;

use super::{Account, sharing};
use crate::account;
use crate::account::physical::Whose;

/// The size in which this memory is charged. Drivers take memory in larger blocks, from which they
/// serve several allocations.
pub(crate) const PAGE: u64 = 4 << 10;

/// The bytes to charge for an allocation: whole pages.
pub(crate) fn paged(bytes: u64) -> Bytes {
    Bytes::new(bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

/// The record: 32 bits of pages, device, class, and whose it is.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    pub(crate) bytes: Bytes,
    pub(crate) device: Device,
    pub(crate) class: Class,
    pub(crate) whose: Whose,
}

const PAGES: u64 = (1 << 32) - 1;
const DEVICE_AT: u32 = 32;
const CLASS_AT: u32 = 38;
const WHOSE_AT: u32 = 46;

impl Share {
    pub(crate) fn pack(self) -> u64 {
        (self.bytes.get() / PAGE) & PAGES
            | u64::from(self.device.number()) << DEVICE_AT
            | u64::from(self.class.number()) << CLASS_AT
            | (self.whose as u64) << WHOSE_AT
    }

    pub(crate) fn unpack(payload: u64) -> Share {
        let [device, class, whose] =
            [DEVICE_AT, CLASS_AT, WHOSE_AT].map(|at| (payload >> at).to_le_bytes()[0]);
        Share {
            bytes: Bytes::new((payload & PAGES).wrapping_mul(PAGE)),
            device: Device::numbered(device & 63),
            class: Class::numbered(class),
            whose: match whose & 3 {
                0 => Whose::Own,
                1 => Whose::Exported,
                _ => Whose::Imported,
            },
        }
    }

    pub(crate) fn release(self, ledger: &Ledger) {
        let Share {
            device,
            class,
            bytes,
            ..
        } = self;
        match self.whose {
            Whose::Imported | Whose::Averaged => {
                return sharing::unimport(device, class, bytes);
            }
            // The export ends before the memory itself is released: see `sharing`.
            Whose::Exported => ledger.unexport(device, class, bytes),
            Whose::Own => {}
        }
        account::give_back(ledger, device, bytes, Kind::Vmm);
    }
}

/// The slice has no room.
pub(crate) struct Full;

/// Memory that was granted and is not recorded yet.
#[derive(Clone, Copy)]
pub(crate) enum Granted {
    /// Claimed for this process.
    Own,
    /// Imported: another process may pay for it.
    Import(Class),
    /// An import that is charged like an allocation.
    Paid,
}

/// Records that memory is about to be imported.
#[inline(never)]
pub(crate) fn import(account: &Account, key: u64, bytes: Bytes) -> Result<Granted, Full> {
    let class = Class::of(key);
    match account.import(class, bytes) {
        Import::Refused { .. } => Err(Full),
        Import::Shared => Ok(Granted::Import(class)),
        Import::Paid => Ok(Granted::Paid),
    }
}

impl Granted {
    /// The record of what was granted.
    pub(crate) fn share(self, account: &Account, bytes: Bytes) -> Share {
        let (class, whose) = match self {
            Granted::Import(class) => (class, Whose::Imported),
            Granted::Own | Granted::Paid => (Class::numbered(0), Whose::Own),
        };
        Share {
            bytes,
            device: account.listed,
            class,
            whose,
        }
    }

    /// Takes back what was granted, because the driver has not allocated it.
    #[inline(never)]
    pub(crate) fn undo(self, account: &Account, bytes: Bytes) {
        match self {
            Granted::Import(class) => sharing::unimport(account.listed, class, bytes),
            Granted::Own | Granted::Paid => account.release(bytes, Kind::Vmm),
        }
    }
}
