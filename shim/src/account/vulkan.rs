//! The records of Vulkan's memory: who pays for it, and whether other processes share it.
//! Touches: this process's own table; the ledger.
//!
//! Handles are numbers of a device, so that the number of the device is a part of the key.

use gpuslice_config::ledger::{Class, Device, Import, Kind, Ledger};
use gpuslice_config::words::units::Bytes;

use crate::account::physical::Whose;
use crate::account::{self, Account, Outcome, sharing};
use crate::log::counters;
use crate::real::vulkan_abi::VkDeviceMemory;
use crate::state::handles::{self, FoundEntry, Space};

/// The size in which memory is charged. Drivers take memory in larger blocks, from which they serve
/// several allocations.
pub(crate) const PAGE: u64 = 4 << 10;

/// The bytes to charge for an allocation: whole pages.
pub(crate) fn paged(bytes: u64) -> Bytes {
    Bytes::new(bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

/// One device's share of an allocation: 32 bits of pages, device, class, and whose it is.
#[derive(Clone, Copy)]
struct Record {
    bytes: Bytes,
    device: Device,
    class: Class,
    whose: Whose,
}

const PAGES: u64 = (1 << 32) - 1;
const DEVICE_AT: u32 = 32;
const CLASS_AT: u32 = 38;
const WHOSE_AT: u32 = 46;

impl Record {
    fn pack(self) -> u64 {
        (self.bytes.get() / PAGE) & PAGES
            | u64::from(self.device.number()) << DEVICE_AT
            | u64::from(self.class.number()) << CLASS_AT
            | (self.whose as u64) << WHOSE_AT
    }

    fn unpack(payload: u64) -> Record {
        let [device, class, whose] =
            [DEVICE_AT, CLASS_AT, WHOSE_AT].map(|at| (payload >> at).to_le_bytes()[0]);
        Record {
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
        let Record {
            device,
            class,
            bytes,
            ..
        } = self;
        match self.whose {
            Whose::Imported => return sharing::unimport(device, class, bytes),
            // The export ends before the memory itself is released: see `sharing`.
            Whose::Exported => ledger.unexport(device, class, bytes),
            Whose::Own => {}
        }
        account::give_back(ledger, device, bytes, Kind::Vmm);
    }
}

/// The number of a device of this process, and of a member of its group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Below [`Owner::MOST`].
    pub(crate) device: u8,
    /// Below 32.
    pub(crate) member: u8,
}

impl Owner {
    /// The number of devices that can be told apart.
    pub(crate) const MOST: usize = 64;
    /// The bits of a handle that are part of its key: those of an address.
    const HANDLE: u32 = 48;

    fn key(self, memory: VkDeviceMemory) -> Option<u64> {
        let owner = u64::from(self.device & 63) << 5 | u64::from(self.member & 31);
        (memory >> Self::HANDLE == 0).then_some(owner << Self::HANDLE | memory)
    }

    fn is_of(key: u64, device: u8) -> bool {
        key >> (Self::HANDLE + 5) == u64::from(device)
    }
}

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

/// The slice has no room.
pub(crate) struct Full;

/// Claims memory. None: it is not counted.
#[inline(never)]
pub(crate) fn claim(account: &Account, bytes: Bytes) -> Result<Option<Granted>, Full> {
    match account.claim(bytes, Kind::Vmm) {
        Outcome::Granted => Ok(Some(Granted::Own)),
        Outcome::Uncounted => Ok(None),
        Outcome::Refused(_) => Err(Full),
    }
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

/// Takes back a grant whose memory the driver has not allocated.
#[inline(never)]
pub(crate) fn undo(account: &Account, granted: Granted, bytes: Bytes) {
    match granted {
        Granted::Import(class) => sharing::unimport(account.listed, class, bytes),
        Granted::Own | Granted::Paid => account.release(bytes, Kind::Vmm),
    }
}

/// Records granted memory by its handle.
#[inline(never)]
pub(crate) fn keep(
    account: &Account,
    owner: Owner,
    memory: VkDeviceMemory,
    granted: Granted,
    bytes: Bytes,
) {
    let (class, whose) = match granted {
        Granted::Import(class) => (class, Whose::Imported),
        Granted::Own | Granted::Paid => (Class::numbered(0), Whose::Own),
    };
    let record = Record {
        bytes,
        device: account.listed,
        class,
        whose,
    };
    let key = owner.key(memory);
    // The driver has freed what it had under this handle before.
    if let Some(old) = key.and_then(|key| handles::find(account.state, Space::Vulkan, key)) {
        release(old);
    }
    let put = |key| handles::put_payload(account.state, Space::Vulkan, key, record.pack());
    if !key.is_some_and(put) {
        counters::UNCOUNTED.warn_text("no memory to record an allocation: it stays counted");
    }
}

/// The record of a handle.
#[inline(never)]
pub(crate) fn find(owner: Owner, memory: VkDeviceMemory) -> Option<FoundEntry> {
    handles::find(account::page()?, Space::Vulkan, owner.key(memory)?)
}

/// Releases memory that the driver has freed.
#[inline(never)]
pub(crate) fn release(found: FoundEntry) {
    if found.take()
        && let Some(ledger) = account::ledger()
    {
        Record::unpack(found.payload()).release(ledger);
    }
}

/// Releases all memory of a device that no longer exists.
#[inline(never)]
pub(crate) fn device_gone(device: u8) {
    let Some(state) = account::page() else {
        return;
    };
    handles::each(state, |space, key, found| {
        if space == Space::Vulkan && Owner::is_of(key, device) {
            release(found);
        }
    });
}

/// Records that this process has exported memory under a key.
#[inline(never)]
pub(crate) fn exported(found: FoundEntry, key: u64) {
    let (record, Some(ledger)) = (Record::unpack(found.payload()), account::ledger()) else {
        return;
    };
    let class = Class::of(key);
    if record.whose != Whose::Own || !ledger.export(record.device, class, record.bytes) {
        return;
    }
    let shared = Record {
        class,
        whose: Whose::Exported,
        ..record
    };
    if !found.replace_payload(shared.pack()) {
        ledger.unexport(record.device, class, record.bytes);
    }
}
