//! Memory shared between processes: records what this process has exported and imported.
//! Touches: the ledger, this process's own table; the driver, for the ranges of imported memory.
//! Law: exported memory is removed from the ledger's row of exports before it is released there, so
//! that a process that has imported it pays without a gap.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use gpuslice_config::ledger::{Class, Device, Import, Kind, key_of};
use gpuslice_config::words::units::Bytes;

use crate::account::{self, Account, Memory};
use crate::answer::device;
use crate::real::abi::{CUdeviceptr, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions;
use crate::state::allocations::STEP;
use crate::state::handles::{self, FoundEntry, Space};
use crate::state::page::{self, ProcessState};
use crate::sys::{Stat, file_system, int};
use gpuslice_config::ledger::stepped;

/// The size of an IPC or fabric handle, in bytes.
pub(crate) const HANDLE: usize = 64;

/// The key of the memory that a shareable handle refers to.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) number: u64,
    /// Whether no other memory has this key.
    pub(crate) is_unique: bool,
}

impl Key {
    pub(crate) fn class(self) -> Class {
        Class::of(self.number)
    }

    /// The key of the file that a descriptor is open on. Dma-bufs and files of a memory file system
    /// have an inode each; all descriptors of a device's file have the same one.
    fn of_file(descriptor: i32) -> Option<Key> {
        /// `DMA_BUF_MAGIC` of `linux/magic.h`, which the libc crate lacks.
        const DMA_BUF: u64 = 0x444d_4142;
        let stat = Stat::of(descriptor).ok()?;
        let (device, inode) = stat.identity;
        let mut bytes = [0; 16];
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (word, value) in words.iter_mut().zip([device, inode]) {
            *word = value.to_ne_bytes();
        }
        Some(Key {
            number: key_of(&bytes),
            is_unique: stat.regular || file_system(int(descriptor)) == Ok(DMA_BUF),
        })
    }
}

/// The key of the memory that a shareable handle of this type refers to. None: the type is unknown
/// here, or the handle has no key.
///
/// # Safety
/// `place` points to a fabric handle, if `kind` is fabric.
pub(crate) unsafe fn key_of_shareable(kind: i32, place: *const c_void) -> Option<Key> {
    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: the pointer's value is the descriptor.
    const DESCRIPTOR: i32 = 1;
    /// `CU_MEM_HANDLE_TYPE_FABRIC`.
    const FABRIC: i32 = 8;
    match kind {
        DESCRIPTOR => Key::of_file(i32::try_from(place as usize).ok()?),
        FABRIC if !place.is_null() => {
            // SAFETY: the caller guarantees that `place` points to a fabric handle.
            let handle = unsafe { place.cast::<[u8; HANDLE]>().read() };
            Some(Key {
                number: key_of(&handle),
                is_unique: true,
            })
        }
        _ => None,
    }
}

/// The record of linear memory that was exported.
#[derive(Clone, Copy)]
struct Exported {
    bytes: Bytes,
    class: Class,
    device: Device,
    context: u8,
}

const STEPS: u64 = (1 << 23) - 1;
const CLASS_AT: u32 = 23;
const DEVICE_AT: u32 = 30;
const CONTEXT_AT: u32 = 36;

impl Exported {
    fn pack(self) -> u64 {
        ((self.bytes.get() / STEP) & STEPS)
            | u64::from(self.class.number()) << CLASS_AT
            | u64::from(self.device.number()) << DEVICE_AT
            | u64::from(self.context) << CONTEXT_AT
    }

    fn unpack(payload: u64) -> Exported {
        let [class, device, context] =
            [CLASS_AT, DEVICE_AT, CONTEXT_AT].map(|at| (payload >> at).to_le_bytes()[0]);
        Exported {
            bytes: Bytes::new((payload & STEPS).wrapping_mul(STEP)),
            class: Class::numbered(class),
            device: Device::numbered(device & 63),
            context: context & 63,
        }
    }
}

/// Records that the driver has returned an IPC handle with this key for an address.
pub(crate) fn export(copy: CopyId, address: CUdeviceptr, key: u64) {
    let Some((base, size)) = range(copy, address) else {
        return;
    };
    let (Some(memory), Some(state)) = (account::memory(base), account::page()) else {
        return;
    };
    let held = match memory {
        Memory::Word(found) => found.charge(),
        Memory::Stray(found) => found.charge(),
    };
    let exported = Exported {
        bytes: stepped(size),
        class: Class::of(key),
        device: held.device,
        context: held.context,
    };
    let Some(ledger) = account::ledger() else {
        return;
    };
    if handles::find(state, Space::Exported, base).is_some()
        || !ledger.export(exported.device, exported.class, exported.bytes)
    {
        return;
    }
    state.exports.store(1, Ordering::Release);
    if !handles::put_payload(state, Space::Exported, base, exported.pack()) {
        ledger.unexport(exported.device, exported.class, exported.bytes);
    }
    // Each thread has put its export before it looks: of several, all but the first are removed.
    handles::all(state, Space::Exported, base)
        .skip(1)
        .for_each(unexport);
}

/// Records that the driver has freed an address, before the ledger releases it.
#[inline]
pub(crate) fn freed(address: u64) {
    if let Some(state) = page::page()
        && state.exports.load(Ordering::Acquire) != 0
    {
        let found = handles::find(state, Space::Exported, address);
        found.into_iter().for_each(unexport);
    }
}

#[cold]
fn unexport(found: FoundEntry) {
    if found.take()
        && let Some(ledger) = account::ledger()
    {
        let exported = Exported::unpack(found.payload());
        ledger.unexport(exported.device, exported.class, exported.bytes);
    }
}

/// The record of an object imported by IPC, stored under its key: its size, and the number of
/// addresses at which it is open.
#[derive(Clone, Copy)]
struct Object {
    bytes: Bytes,
    addresses: u64,
    device: Device,
    /// This process pays for it as if it had allocated it.
    paid: bool,
}

const ADDRESSES_AT: u32 = 23;
/// The most addresses of an object that are counted. An object that has had so many is never
/// released: how many more it has is not known.
const ADDRESSES: u64 = (1 << 20) - 1;
const OBJECT_DEVICE_AT: u32 = 43;
const PAID_AT: u32 = 49;
/// The bits of a key that fit into the record of an address.
const KEY: u64 = (1 << 44) - 1;
const OPENED_AT: u32 = 44;
/// The most times that an address is counted as open. One that has been open so often counts as open
/// for good, as with `ADDRESSES`.
const OPENED: u64 = 127;
const IMPORT_CONTEXT_AT: u32 = 51;

impl Object {
    fn pack(self) -> u64 {
        ((self.bytes.get() / STEP) & STEPS)
            | (self.addresses & ADDRESSES) << ADDRESSES_AT
            | u64::from(self.device.number()) << OBJECT_DEVICE_AT
            | u64::from(self.paid) << PAID_AT
    }

    fn unpack(payload: u64) -> Object {
        let device = (payload >> OBJECT_DEVICE_AT).to_le_bytes()[0] & 63;
        Object {
            bytes: Bytes::new((payload & STEPS).wrapping_mul(STEP)),
            addresses: (payload >> ADDRESSES_AT) & ADDRESSES,
            device: Device::numbered(device),
            paid: payload >> PAID_AT & 1 != 0,
        }
    }
}

/// Records that the driver has opened an IPC handle with this key at an address. False: no process
/// in the slice pays for it, and there is no room.
pub(crate) fn import(copy: CopyId, address: CUdeviceptr, key: u64) -> bool {
    let key = key & KEY;
    let (Some((_, size)), Some(account), Some(state)) =
        (range(copy, address), at(copy, address), account::page())
    else {
        return true;
    };
    // Opening a handle again may return an address that is already open.
    while let Some(found) = handles::find(state, Space::Imported, address) {
        let payload = found.payload();
        let opened = payload >> OPENED_AT & OPENED;
        if opened == OPENED && payload & KEY != key {
            // The driver has closed the address and reused it; the old object stays charged.
            found.take();
            continue;
        }
        let more = opened.saturating_add(1).min(OPENED);
        let payload = (payload & !(OPENED << OPENED_AT)) | (more << OPENED_AT);
        if found.replace_payload(payload) {
            return true;
        }
    }
    let context = account::context(state, copy);
    let payload = key | (1 << OPENED_AT) | (u64::from(context) << IMPORT_CONTEXT_AT);
    while let Some(found) = handles::find(state, Space::Object, key) {
        let object = Object::unpack(found.payload());
        let again = Object {
            addresses: object.addresses.saturating_add(1).min(ADDRESSES),
            ..object
        };
        if found.replace_payload(again.pack()) {
            handles::put_payload(state, Space::Imported, address, payload);
            return true;
        }
    }
    let bytes = stepped(size);
    let paid = match account.import(Class::of(key), bytes) {
        Import::Refused { .. } => return false,
        Import::Shared => false,
        Import::Paid => true,
    };
    let object = Object {
        bytes,
        addresses: 1,
        device: account.listed,
        paid,
    };
    state.imports.store(1, Ordering::Release);
    handles::put_payload(state, Space::Object, key, object.pack());
    handles::put_payload(state, Space::Imported, address, payload);
    true
}

/// Records that the driver has closed an address.
pub(crate) fn closed(mut found: FoundEntry) {
    loop {
        let payload = found.payload();
        let opened = payload >> OPENED_AT & OPENED;
        if opened == OPENED {
            return;
        }
        if opened > 1 {
            let less = payload.wrapping_sub(1 << OPENED_AT);
            if found.replace_payload(less) {
                return;
            }
        } else if found.take() {
            return let_go(payload & KEY);
        }
        let Some(now) = found.again() else {
            return;
        };
        found = now;
    }
}

/// Removes one address from an object.
fn let_go(key: u64) {
    let (Some(state), Some(ledger)) = (page::page(), account::ledger()) else {
        return;
    };
    while let Some(found) = handles::find(state, Space::Object, key) {
        let object = Object::unpack(found.payload());
        if object.addresses == ADDRESSES {
            return;
        }
        let less = Object {
            addresses: object.addresses.saturating_sub(1),
            ..object
        };
        if less.addresses != 0 && found.replace_payload(less.pack()) {
            return;
        }
        if less.addresses == 0 && found.take() {
            let Object { device, bytes, .. } = object;
            return match object.paid {
                true => account::give_back(ledger, device, bytes, Kind::Vmm),
                false => unimport(device, Class::of(key), bytes),
            };
        }
    }
}

/// Ends an import.
pub(crate) fn unimport(device: Device, class: Class, bytes: Bytes) {
    if let Some(ledger) = account::ledger() {
        ledger.unimport(device, class, bytes);
        // Publishes the change to the neighbours.
        account::give_back(ledger, device, Bytes::ZERO, Kind::Vmm);
    }
}

/// Corrects the size of imported memory that is in use. It is not refused any more.
pub(crate) fn correct_import(device: Device, class: Class, counted: Bytes, size: Bytes) {
    let less = counted.minus(size);
    if counted < size
        && let Some(ledger) = account::ledger()
    {
        ledger.import(device, class, size.minus(counted), Bytes::MAX);
    }
    if less != Bytes::ZERO {
        unimport(device, class, less);
    }
}

/// Ends the exports and imports of a context that no longer exists.
pub(crate) fn context_gone(state: &'static ProcessState, number: u8) {
    let shares = [&state.exports, &state.imports];
    if shares.iter().all(|flag| flag.load(Ordering::Acquire) == 0) {
        return;
    }
    handles::each(state, |space, _, found| match space {
        Space::Exported if Exported::unpack(found.payload()).context == number => unexport(found),
        Space::Imported if found.payload() >> IMPORT_CONTEXT_AT == u64::from(number) => {
            let key = found.payload() & KEY;
            if found.take() {
                let_go(key);
            }
        }
        _ => {}
    });
}

/// The base and size of the allocation that contains an address.
fn range(copy: CopyId, address: CUdeviceptr) -> Option<(CUdeviceptr, u64)> {
    let (mut base, mut size) = (0, 0usize);
    let ask = functions::cuMemGetAddressRange_v2::real(copy)?;
    // SAFETY: cuMemGetAddressRange_v2's contract: it writes to locals of its types.
    let code = unsafe { ask(&raw mut base, &raw mut size, address) };
    (code == SUCCESS).then_some((base, size as u64))
}

/// The account of the device that holds the memory at an address.
fn at(copy: CopyId, address: CUdeviceptr) -> Option<Account> {
    /// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
    const ORDINAL: i32 = 9;
    let mut ordinal = 0i32;
    let ask = functions::cuPointerGetAttribute::real(copy)?;
    // SAFETY: cuPointerGetAttribute's contract: this attribute is an int.
    let code = unsafe { ask((&raw mut ordinal).cast(), ORDINAL, address) };
    let ordinal = match code {
        SUCCESS => device::ordinal(ordinal)?,
        _ => device::current(copy)?,
    };
    account::by_ordinal(copy, ordinal)
}
