//! The objects that this process has imported by Vulkan and OpenCL. An object that is imported several
//! times, for example once for each plane of a frame, is charged once.
//! Touches: the ledger; this process's own table.
//! Law: an object stays charged from its first import until the end of its last one, with the most
//! that an import has named. Two threads that import it for the first time at once may have it charged
//! twice until both imports end, never less than once.

use gpuslice_config::ledger::{Class, Device, Import, Kind};
use gpuslice_config::words::units::Bytes;

use super::{Full, PAGE};
use crate::account::physical::Whose;
use crate::account::sharing::{self, Key};
use crate::account::{Account, find};
use crate::state::handles::{self, Space};

/// An object on a device: the bits of its key that fit, a mark, and the device. This number is also the
/// record of each of its imports.
#[derive(Clone, Copy)]
pub(crate) struct ObjectId(u64);

const KEY: u64 = (1 << MARK_AT) - 1;
/// The bit position of the origin in a [`Share`](super::Share), and the value there that marks an
/// [`ObjectId`].
const MARK_AT: u32 = super::WHOSE_AT;
const MARK: u64 = Whose::Averaged as u64;
const DEVICE_AT: u32 = MARK_AT + 2;

impl ObjectId {
    fn of(key: Key, device: Device) -> ObjectId {
        let device = u64::from(device.number()) << DEVICE_AT;
        ObjectId(key.number & KEY | MARK << MARK_AT | device)
    }

    /// The object that a record is one import of. None: it is a record of other memory.
    pub(super) fn of_record(payload: u64) -> Option<ObjectId> {
        (payload >> MARK_AT & 3 == MARK).then_some(ObjectId(payload))
    }

    /// The record of one of its imports.
    pub(super) fn record(self) -> u64 {
        self.0
    }

    /// The class of its key, which the bits that are left out do not affect.
    fn class(self) -> Class {
        Class::of(self.0 & KEY)
    }

    fn device(self) -> Device {
        Device::numbered((self.0 >> DEVICE_AT).to_le_bytes()[0] & 63)
    }
}

/// The record of an object: 32 bits of pages, and the number of its imports.
#[derive(Clone, Copy)]
struct Imports {
    bytes: Bytes,
    count: u64,
}

const PAGES: u64 = (1 << COUNT_AT) - 1;
const COUNT_AT: u32 = 32;
/// The most imports that are counted. An object that has had so many is never released: how many more
/// it has is not known.
const MOST: u64 = (1 << 25) - 1;

impl Imports {
    const NONE: Imports = Imports {
        bytes: Bytes::ZERO,
        count: 0,
    };

    fn pack(self) -> u64 {
        (self.bytes.get() / PAGE) & PAGES | (self.count & MOST) << COUNT_AT
    }

    fn unpack(payload: u64) -> Imports {
        Imports {
            bytes: Bytes::new((payload & PAGES).wrapping_mul(PAGE)),
            count: payload >> COUNT_AT & MOST,
        }
    }

    fn with_one_of(self, bytes: Bytes) -> Imports {
        Imports {
            bytes: self.bytes.max(bytes),
            count: self.count.saturating_add(1).min(MOST),
        }
    }
}

/// Records one more import of an object. None: the object cannot be recorded, and nothing is charged.
pub(crate) fn import(account: &Account, key: Key, bytes: Bytes) -> Result<Option<ObjectId>, Full> {
    let object = ObjectId::of(key, account.listed);
    loop {
        let found = handles::find(account.state, Space::ImportedObject, object.0);
        let before = found.map_or(Imports::NONE, |found| Imports::unpack(found.payload()));
        let more = bytes.minus(before.bytes);
        if found.is_none() || more != Bytes::ZERO {
            match account.import(object.class(), more) {
                Import::Refused { .. } => return Err(Full),
                Import::Shared => {}
                Import::Paid => {
                    account.release(more, Kind::Vmm);
                    return Ok(None);
                }
            }
        }
        let after = before.with_one_of(bytes).pack();
        let is_recorded = match found {
            Some(found) => found.replace_payload(after),
            None => handles::put_payload(account.state, Space::ImportedObject, object.0, after),
        };
        if is_recorded {
            return Ok(Some(object));
        }
        sharing::unimport(account.listed, object.class(), more);
        if found.is_none() {
            return Ok(None);
        }
    }
}

/// Ends one import of an object. The last one ends the charge.
pub(crate) fn end_import(object: ObjectId) {
    while let Some(found) = find(Space::ImportedObject, object.0) {
        let Imports { bytes, count } = Imports::unpack(found.payload());
        if count == MOST {
            return;
        }
        let fewer = Imports {
            bytes,
            count: count.saturating_sub(1),
        };
        if fewer.count != 0 && found.replace_payload(fewer.pack()) {
            return;
        }
        if fewer.count == 0 && found.take() {
            return sharing::unimport(object.device(), object.class(), bytes);
        }
    }
}
