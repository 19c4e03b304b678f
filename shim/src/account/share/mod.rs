//! The record of one device's share of memory that several processes may hold: Vulkan's memory, and
//! what OpenCL imports.
//! Touches: the ledger, when the memory goes.

use gpuslice_config::ledger::{Class, Device, Import, Kind, Ledger};
use gpuslice_config::words::units::Bytes;

mod objects;

use self::objects::ObjectId;
use super::{Account, sharing};
use crate::account;
use crate::account::physical::Whose;
use crate::account::sharing::Key;

/// The size in which this memory is charged. Drivers take memory in larger blocks, from which they
/// serve several allocations.
pub(crate) const PAGE: u64 = 4 << 10;

/// The bytes to charge for an allocation: whole pages.
pub(crate) fn paged(bytes: u64) -> Bytes {
    Bytes::new(bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

/// The record: 32 bits of pages, device, class, and whose it is. The record of one import of an object
/// is an [`ObjectId`] instead, which unpacks as imported memory.
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

    fn release(self, ledger: &Ledger) {
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

/// Releases the memory of a record.
pub(crate) fn release(payload: u64, ledger: &Ledger) {
    match ObjectId::of_record(payload) {
        Some(object) => objects::end_import(object),
        None => Share::unpack(payload).release(ledger),
    }
}

/// The slice has no room.
pub(crate) struct Full;

/// Memory that was granted and is not recorded yet.
#[derive(Clone, Copy)]
pub(crate) enum Granted {
    /// Claimed for this process.
    Own,
    /// Imported, with the size that is charged: another process may pay for it.
    Import(Class, Bytes),
    /// One import of an object, which is charged once for all its imports.
    Object(ObjectId),
    /// An import of this size that is charged like an allocation.
    Paid(Bytes),
}

/// The size and memory type that an importer names.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub(crate) bytes: Bytes,
    /// Whether memory of this type is charged.
    pub(crate) is_charged: bool,
}

/// Records that memory is about to be imported. An importer may name another size and another type
/// than the memory has: what a process of the slice has exported is charged at least its exported
/// size, whatever its type. None: it is not charged.
#[inline(never)]
pub(crate) fn import(account: &Account, key: Key, named: Named) -> Result<Option<Granted>, Full> {
    let class = key.class();
    let exported = account.ledger.exported(account.listed, class);
    if exported.is_none() && !named.is_charged {
        return Ok(None);
    }
    let size = exported.map_or(Bytes::ZERO, |exported| exported.bytes);
    let bytes = named.bytes.max(size);
    if key.is_unique
        && let Some(object) = objects::import(account, key, bytes)?
    {
        return Ok(Some(Granted::Object(object)));
    }
    match account.import(class, bytes) {
        Import::Refused { .. } => Err(Full),
        Import::Shared => Ok(Some(Granted::Import(class, bytes))),
        Import::Paid => Ok(Some(Granted::Paid(bytes))),
    }
}

impl Granted {
    /// The record of what was granted. `requested`: the size of an allocation.
    pub(crate) fn record(self, account: &Account, requested: Bytes) -> u64 {
        let (class, whose, bytes) = match self {
            Granted::Object(object) => return object.record(),
            Granted::Import(class, bytes) => (class, Whose::Imported, bytes),
            Granted::Paid(bytes) => (Class::numbered(0), Whose::Own, bytes),
            Granted::Own => (Class::numbered(0), Whose::Own, requested),
        };
        let share = Share {
            bytes,
            device: account.listed,
            class,
            whose,
        };
        share.pack()
    }

    /// Takes back what was granted, because the driver has not allocated it.
    #[inline(never)]
    pub(crate) fn undo(self, account: &Account, requested: Bytes) {
        match self {
            Granted::Object(object) => objects::end_import(object),
            Granted::Import(class, bytes) => sharing::unimport(account.listed, class, bytes),
            Granted::Paid(bytes) => account.release(bytes, Kind::Vmm),
            Granted::Own => account.release(requested, Kind::Vmm),
        }
    }
}
