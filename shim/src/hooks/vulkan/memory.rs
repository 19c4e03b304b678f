//! Device memory: claims it, then calls the driver; releases it after the driver has freed it.
//! Touches: the ledger; the real function, unless the slice has no room.

use core::ffi::c_void;

use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use crate::account::share::{self, Full, Granted};
use crate::account::{Account, sharing, vulkan as account};
use crate::hooks::vulkan::devices::{self, Body, Member};
use crate::hooks::vulkan::group;
use crate::real::functions::Call;
use crate::real::vulkan::{chained, real};
use crate::real::vulkan_abi::*;

/// What an allocation asks for.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) bytes: Bytes,
    /// The members that get memory, one bit each.
    pub(super) members: u32,
    /// The key of the memory that is imported.
    import: Option<u64>,
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
    let only = body.members.first().and_then(Option::as_ref);
    let payer = only.and_then(Member::account);
    let Some(payer) = payer else {
        return ask();
    };
    let granted = match request.claim(&payer) {
        Ok(Some(granted)) => granted,
        Ok(None) => return ask(),
        Err(Full) => return VK_ERROR_OUT_OF_DEVICE_MEMORY,
    };
    let code = ask();
    if code == VK_SUCCESS {
        // SAFETY: VK_SUCCESS, so the driver has written the handle.
        let made = unsafe { memory.read() };
        account::keep(&payer, place.owner(0), made, granted, request.bytes);
    } else {
        request.undo(&payer, granted, code);
    }
    code
}

impl Request {
    /// Claims the memory on one card. None: it is not counted.
    #[inline]
    pub(super) fn claim(&self, payer: &Account) -> Result<Option<Granted>, Full> {
        match self.import {
            Some(key) => share::import(payer, key, self.bytes).map(Some),
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
#[inline(never)]
unsafe fn request(body: &Body, info: *const VkMemoryAllocateInfo) -> Option<Request> {
    // SAFETY: the caller guarantees that `info` is null or valid.
    let info = unsafe { info.as_ref() }?;
    let is_charged = 1u32.checked_shl(info.memoryTypeIndex).unwrap_or(0) & body.charged != 0;
    if !is_charged {
        return None;
    }
    let mut request = Request {
        bytes: share::paged(info.allocationSize),
        members: u32::MAX,
        import: None,
    };
    let next = info.start.pNext;
    if next.is_null() {
        return Some(request);
    }
    let (host, fd, flags) = (
        structure::IMPORT_MEMORY_HOST_POINTER_INFO,
        structure::IMPORT_MEMORY_FD_INFO,
        structure::MEMORY_ALLOCATE_FLAGS_INFO,
    );
    // SAFETY: the caller guarantees the chain; structs of a type are of its struct.
    let host = unsafe { chained::<VkImportMemoryHostPointerInfoEXT>(next, host) };
    // SAFETY: as above.
    if host.is_some_and(|it| unsafe { it.read() }.handleType != 0) {
        // The program's own memory.
        return None;
    }
    // SAFETY: as above.
    let fd = unsafe { chained::<VkImportMemoryFdInfoKHR>(next, fd) };
    // SAFETY: as above.
    let fd = fd.map(|it| unsafe { it.read() });
    if let Some(fd) = fd.filter(|it| it.handleType != 0) {
        const DESCRIPTOR: i32 = 1;
        // SAFETY: a descriptor is no pointer to a handle.
        let key = unsafe { sharing::key_of_shareable(DESCRIPTOR, fd.fd as usize as *const c_void) };
        request.import = Some(key?);
    }
    // SAFETY: as above.
    let flags = unsafe { chained::<VkMemoryAllocateFlagsInfo>(next, flags) };
    // SAFETY: as above.
    let flags = flags.map(|it| unsafe { it.read() });
    if let Some(flags) = flags.filter(|it| it.flags & ALLOCATE_DEVICE_MASK != 0) {
        request.members = flags.deviceMask;
    }
    Some(request)
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
    match found {
        Some((place, body)) if body.count > 1 => group::free(place, body, memory, ask),
        Some((place, _)) => {
            let record = account::find(place.owner(0), memory);
            ask();
            if let Some(record) = record {
                account::release(record);
            }
        }
        None => ask(),
    }
}
