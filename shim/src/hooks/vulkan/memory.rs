//! Device memory: claims it, then calls the driver; releases it after the driver has freed it.
//! Touches: the ledger; the real function, unless the slice has no room.

use core::ffi::c_void;

use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use crate::account::share::{self, Full, Granted, Named};
use crate::account::sharing::{self, Key};
use crate::account::{Account, vulkan as account};
use crate::hooks::vulkan::devices::{self, Body};
use crate::hooks::vulkan::group;
use crate::real::functions::Call;
use crate::real::vulkan::real;
use crate::real::vulkan_abi::*;

/// What an allocation asks for.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) bytes: Bytes,
    /// Whether memory of this type is charged.
    is_charged: bool,
    /// The members that get memory, one bit each.
    pub(super) members: u32,
    /// The key of the memory that is imported.
    import: Option<Key>,
}

/// `vkAllocateMemory`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
#[inline(never)]
pub(crate) unsafe fn allocate(
    call: Call<real::vkAllocateMemory>,
    device: VkDevice,
    info: *const VkMemoryAllocateInfo,
    allocator: *const c_void,
    memory: *mut VkDeviceMemory,
) -> VkResult {
    let found = devices::find(device);
    let real = found.and_then(|(_, body)| body.functions.allocate);
    let real = real.unwrap_or(call.real);
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { real(device, info, allocator, memory) };
    let Some((place, body)) = found else {
        return ask();
    };
    // SAFETY: the caller guarantees vkAllocateMemory's contract for `info`.
    let Some(request) = (unsafe { request(body, info) }) else {
        return ask();
    };
    if body.count > 1 {
        // SAFETY: `ask` is the driver's call, which writes its handle to `memory`.
        return unsafe { group::allocate(place, body, request, memory, ask) };
    }
    let late;
    let payer = match &body.payer {
        Some(payer) => payer,
        None => {
            late = body.late_payer();
            match &late {
                Some(payer) => payer,
                None => return ask(),
            }
        }
    };
    let granted = match request.claim(payer) {
        Ok(Some(granted)) => granted,
        Ok(None) => return ask(),
        Err(Full) => return VK_ERROR_OUT_OF_DEVICE_MEMORY,
    };
    let code = ask();
    if code == VK_SUCCESS {
        // SAFETY: VK_SUCCESS, so the driver has written the handle.
        let made = unsafe { memory.read() };
        account::keep(payer, place.owner(0), made, granted, request.bytes);
    } else {
        request.undo(payer, granted, code);
    }
    code
}

impl Request {
    /// Claims the memory on one card. None: it is not counted.
    #[inline(always)]
    pub(super) fn claim(&self, payer: &Account) -> Result<Option<Granted>, Full> {
        match self.import {
            Some(key) => {
                let (bytes, is_charged) = (self.bytes, self.is_charged);
                share::import(payer, key, Named { bytes, is_charged })
            }
            None => account::claim(payer, self.bytes),
        }
    }

    /// Takes back what was granted. `code` is the driver's.
    #[cold]
    #[inline(never)]
    pub(super) fn undo(&self, payer: &Account, granted: Granted, code: VkResult) {
        granted.undo(payer, self.bytes);
        if code == VK_ERROR_OUT_OF_DEVICE_MEMORY {
            payer.refused_by_driver(self.bytes, Kind::Vmm);
        }
    }
}

/// Reads what is asked for. None: it is not charged.
///
/// # Safety
/// `info` is valid for vkAllocateMemory.
#[inline(always)]
unsafe fn request(body: &Body, info: *const VkMemoryAllocateInfo) -> Option<Request> {
    // SAFETY: the caller guarantees that `info` is null or valid.
    let info = unsafe { info.as_ref() }?;
    let is_charged = 1u32.checked_shl(info.memoryTypeIndex).unwrap_or(0) & body.charged != 0;
    let request = Request {
        bytes: share::paged(info.allocationSize),
        is_charged,
        members: u32::MAX,
        import: None,
    };
    match info.start.pNext.is_null() {
        true => is_charged.then_some(request),
        // SAFETY: the caller guarantees the chain.
        false => unsafe { chained_request(request, info.start.pNext) },
    }
}

/// The request with what the chain of an allocation adds. None: it is not charged.
///
/// # Safety
/// `next` is the chain of an allocation.
#[inline(never)]
unsafe fn chained_request(
    mut request: Request,
    mut next: *const VkBaseStructure,
) -> Option<Request> {
    // SAFETY: the caller guarantees the chain.
    while let Some(link) = unsafe { next.as_ref() } {
        match link.sType {
            structure::IMPORT_MEMORY_HOST_POINTER_INFO => {
                let host = next.cast::<VkImportMemoryHostPointerInfoEXT>();
                // SAFETY: the caller guarantees that structs of a type are of its struct.
                if unsafe { host.read() }.handleType != 0 {
                    // The program's own memory.
                    return None;
                }
            }
            structure::IMPORT_MEMORY_FD_INFO => {
                // SAFETY: as above.
                let fd = unsafe { next.cast::<VkImportMemoryFdInfoKHR>().read() };
                if fd.handleType != 0 {
                    const DESCRIPTOR: i32 = 1;
                    let place = fd.fd as usize as *const c_void;
                    // SAFETY: a descriptor is no pointer to a handle.
                    let key = unsafe { sharing::key_of_shareable(DESCRIPTOR, place) };
                    request.import = Some(key?);
                }
            }
            structure::MEMORY_ALLOCATE_FLAGS_INFO => {
                // SAFETY: as above.
                let flags = unsafe { next.cast::<VkMemoryAllocateFlagsInfo>().read() };
                if flags.flags & ALLOCATE_DEVICE_MASK != 0 {
                    request.members = flags.deviceMask;
                }
            }
            _ => {}
        }
        next = link.pNext;
    }
    // Only the exporter knows the type of imported memory.
    (request.is_charged || request.import.is_some()).then_some(request)
}

/// `vkFreeMemory`.
///
/// # Safety
/// As `allocate`.
#[inline(never)]
pub(crate) unsafe fn free(
    call: Call<real::vkFreeMemory>,
    device: VkDevice,
    memory: VkDeviceMemory,
    allocator: *const c_void,
) {
    let found = devices::find(device);
    let real = found.and_then(|(_, body)| body.functions.free);
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { real.unwrap_or(call.real)(device, memory, allocator) };
    let Some((place, body)) = found else {
        return ask();
    };
    if body.count > 1 {
        return group::free(place, body, memory, ask);
    }
    let owner = place.owner(0);
    if let Some(payer) = &body.payer {
        let record = account::find_of(payer, owner, memory);
        ask();
        return record
            .into_iter()
            .for_each(|record| account::release_of(payer, record));
    }
    let record = account::find(owner, memory);
    ask();
    record.into_iter().for_each(account::release);
}
