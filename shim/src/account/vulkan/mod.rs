//! The records of Vulkan's memory: who pays for it, and whether other processes share it.
//! Touches: this process's own table; the ledger.
//!
//! Handles are numbers of a device, so that the number of the device is a part of the key.

use gpuslice_config::ledger::{Class, Kind};
use gpuslice_config::words::units::Bytes;

use crate::account::physical::Whose;
use crate::account::share::{self, Full, Granted, Share};
use crate::account::{self, Account, Outcome};
use crate::log::counters;
use crate::real::vulkan_abi::VkDeviceMemory;
use crate::state::handles::{self, FoundEntry, PutNew, Space};

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

/// Claims memory. None: it is not counted.
#[inline(always)]
pub(crate) fn claim(account: &Account, bytes: Bytes) -> Result<Option<Granted>, Full> {
    match account.claim(bytes, Kind::Vmm) {
        Outcome::Granted => Ok(Some(Granted::Own)),
        Outcome::Uncounted => Ok(None),
        Outcome::Refused(_) => Err(Full),
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
    let share = granted.record(account, bytes);
    let put = |key| handles::put_new(account.state, Space::Vulkan, key, share);
    match owner.key(memory).map_or(PutNew::Full, put) {
        PutNew::Done => {}
        PutNew::Stale(old) => keep_instead(account, owner, memory, old, share),
        PutNew::Full => uncounted(),
    }
}

/// Records granted memory in place of what the driver had under this handle before, and has freed.
#[cold]
#[inline(never)]
fn keep_instead(
    account: &Account,
    owner: Owner,
    memory: VkDeviceMemory,
    old: FoundEntry,
    share: u64,
) {
    release(old);
    let put = |key| handles::put_payload(account.state, Space::Vulkan, key, share);
    if !owner.key(memory).is_some_and(put) {
        uncounted();
    }
}

#[cold]
fn uncounted() {
    counters::UNCOUNTED.warn_text("no memory to record an allocation: it stays counted");
}

/// The record of a handle.
#[inline(never)]
pub(crate) fn find(owner: Owner, memory: VkDeviceMemory) -> Option<FoundEntry> {
    handles::find(account::page()?, Space::Vulkan, owner.key(memory)?)
}

/// The record of a handle of a device whose memory this account pays for.
#[inline(always)]
pub(crate) fn find_of(
    account: &Account,
    owner: Owner,
    memory: VkDeviceMemory,
) -> Option<FoundEntry> {
    handles::find(account.state, Space::Vulkan, owner.key(memory)?)
}

/// Releases memory that this account pays for, and that the driver has freed.
#[inline(always)]
pub(crate) fn release_of(account: &Account, found: FoundEntry) {
    if found.take() {
        let share = Share::unpack(found.payload());
        match share.whose {
            Whose::Own => account.release(share.bytes, Kind::Vmm),
            Whose::Exported | Whose::Imported | Whose::Averaged => {
                share::release(found.payload(), account.ledger);
            }
        }
    }
}

/// Releases memory that the driver has freed.
#[inline(never)]
pub(crate) fn release(found: FoundEntry) {
    if found.take()
        && let Some(ledger) = account::ledger()
    {
        share::release(found.payload(), ledger);
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

/// Records that this process has exported memory under a key of this class.
#[inline(never)]
pub(crate) fn exported(found: FoundEntry, class: Class) {
    let (share, Some(ledger)) = (Share::unpack(found.payload()), account::ledger()) else {
        return;
    };
    if share.whose != Whose::Own || !ledger.export(share.device, class, share.bytes) {
        return;
    }
    let exported = Share {
        class,
        whose: Whose::Exported,
        ..share
    };
    if !found.replace_payload(exported.pack()) {
        ledger.unexport(share.device, class, share.bytes);
    }
}
