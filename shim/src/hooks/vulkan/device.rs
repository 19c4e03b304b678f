//! The beginning and the end of a device.
//! Touches: the real function; this process's table of devices.

use core::ffi::{CStr, c_void};

use crate::account::{self, Account};
use crate::answer::vulkan;
use crate::hooks::vulkan::devices::{self, Body, Functions, MOST_MEMBERS, Member, Place};
use crate::log::counters;
use crate::real::copies::CopyId;
use crate::real::functions::Call;
use crate::real::vulkan::{self as drivers, real};
use crate::real::vulkan_abi::*;
use crate::slice;
use crate::slice::loaded_slice::LoadedSlice;

/// `vkCreateDevice`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
#[inline(never)]
pub(crate) unsafe fn create(
    call: Call<real::vkCreateDevice>,
    physical: VkPhysicalDevice,
    info: *const VkBaseStructure,
    allocator: *const c_void,
    device: *mut VkDevice,
) -> VkResult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(physical, info, allocator, device) };
    let Some(slice) = slice::current() else {
        return ask();
    };
    let mut members = [None; MOST_MEMBERS];
    // SAFETY: the caller guarantees vkCreateDevice's contract for `info`.
    let count = unsafe { members_of(slice, call.copy, physical, info, &mut members) };
    if members.iter().all(Option::is_none) {
        return ask();
    }
    let Some(place) = devices::take() else {
        counters::UNCOUNTED.warn_text("more Vulkan devices than the library can count");
        return match slice.enforces() {
            true => VK_ERROR_TOO_MANY_OBJECTS,
            false => ask(),
        };
    };
    let code = ask();
    // SAFETY: VK_SUCCESS, so the driver has written the device.
    let made = (code == VK_SUCCESS).then(|| unsafe { device.read() });
    match made {
        Some(made) => {
            let unified = |member: &Option<Member>| {
                member.is_some_and(|it| it.entry.is_some_and(|it| it.unified == Some(true)))
            };
            // A device of one card keeps its account.
            let only = match (count, members) {
                (1, [Some(only), ..]) => only.account(),
                _ => None,
            };
            let body = Body {
                functions: functions(call.copy, made),
                payer: only.filter(Account::is_settled),
                charged: match members.iter().any(unified) {
                    // All memory is the device's.
                    true => u32::MAX,
                    false => charged(call.copy, physical),
                },
                members,
                count,
            };
            // A driver that was unloaded with this device has left its record behind.
            if let Some((old, _)) = devices::find(made) {
                old.withdraw();
                gone(old);
            }
            place.publish(made, body);
        }
        None => place.free(),
    }
    code
}

/// Finds the cards of a new device that the slice limits, and returns how many cards it has.
///
/// # Safety
/// `info` is valid for vkCreateDevice.
#[inline(never)]
unsafe fn members_of(
    slice: &'static LoadedSlice,
    copy: CopyId,
    physical: VkPhysicalDevice,
    info: *const VkBaseStructure,
    members: &mut [Option<Member>; MOST_MEMBERS],
) -> u8 {
    let member = |physical| member(slice, copy, physical);
    // SAFETY: the caller guarantees that `info` is null or valid.
    let next = unsafe { info.as_ref() }.map_or(core::ptr::null(), |info| info.pNext);
    let wanted = structure::DEVICE_GROUP_DEVICE_CREATE_INFO;
    // SAFETY: the caller guarantees the chain; structs of this type are of this struct.
    let group = unsafe { drivers::chained::<VkDeviceGroupDeviceCreateInfo>(next, wanted) };
    // SAFETY: as above.
    let group = group.and_then(|group| unsafe { group.as_ref() });
    let Some(group) = group.filter(|group| group.physicalDeviceCount > 0) else {
        if let Some(first) = members.first_mut() {
            *first = member(physical);
        }
        return 1;
    };
    let mut count = 0u8;
    for (place, index) in members
        .iter_mut()
        .zip(0..group.physicalDeviceCount as usize)
    {
        let at = group.pPhysicalDevices.wrapping_add(index);
        // SAFETY: the caller guarantees as many devices as the struct says.
        *place = member(unsafe { at.read() });
        count = count.saturating_add(1);
    }
    count
}

/// A card of a device. None: the slice does not limit it.
#[inline(never)]
fn member(slice: &'static LoadedSlice, copy: CopyId, physical: VkPhysicalDevice) -> Option<Member> {
    let identity = vulkan::identity(copy, physical)?;
    let entry = vulkan::device(slice, identity)?;
    Some(Member {
        identity,
        // A slice that can be read only later may have other budgets.
        entry: (!slice.refuses()).then_some(entry),
    })
}

/// The memory types whose heap is on the device.
#[inline(never)]
fn charged(copy: CopyId, physical: VkPhysicalDevice) -> u32 {
    let Some(ask) = drivers::memory_properties(copy) else {
        return u32::MAX;
    };
    let mut all = core::mem::MaybeUninit::<VkPhysicalDeviceMemoryProperties>::zeroed();
    // SAFETY: the function's contract: the device is the caller's own, and there is room.
    unsafe { ask(physical, all.as_mut_ptr()) };
    // SAFETY: zeroed before the call; any bytes are integers.
    let all = unsafe { all.assume_init() };
    let is_local = |kind: &VkMemoryType| {
        let heap = all.memoryHeaps.get(kind.heapIndex as usize);
        heap.is_some_and(|heap| heap.flags & HEAP_DEVICE_LOCAL != 0)
    };
    let mut bits = 0u32;
    for (kind, place) in all.memoryTypes.iter().zip(0..all.memoryTypeCount) {
        if is_local(kind) {
            bits |= 1u32.checked_shl(place).unwrap_or(0);
        }
    }
    bits
}

#[inline(never)]
fn functions(copy: CopyId, device: VkDevice) -> Functions {
    let Some(ask) = drivers::device_functions(copy) else {
        return Functions::default();
    };
    // SAFETY: the function's contract: a device that the driver has just made.
    let find = |name: &CStr| unsafe { ask(device, name.as_ptr()) };
    Functions {
        // SAFETY: the driver's function of this name has this type.
        destroy: unsafe { devices::function(find(c"vkDestroyDevice")) },
        // SAFETY: as above.
        allocate: unsafe { devices::function(find(c"vkAllocateMemory")) },
        // SAFETY: as above.
        free: unsafe { devices::function(find(c"vkFreeMemory")) },
        // SAFETY: as above.
        descriptor: unsafe { devices::function(find(c"vkGetMemoryFdKHR")) },
    }
}

/// `vkDestroyDevice`, which frees what the program has left on the device.
///
/// # Safety
/// As `create`.
#[inline(never)]
pub(crate) unsafe fn destroy(
    call: Call<real::vkDestroyDevice>,
    device: VkDevice,
    allocator: *const c_void,
) {
    let found = devices::find(device);
    let real = found.and_then(|(_, body)| body.functions.destroy);
    if let Some((place, _)) = found {
        place.withdraw();
    }
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    unsafe { real.unwrap_or(call.real)(device, allocator) };
    if let Some((place, _)) = found {
        gone(place);
    }
}

/// Releases what was left on a device, and frees its record.
#[inline(never)]
fn gone(place: Place) {
    account::vulkan::device_gone(place.number());
    place.free();
}

/// Whether the slice limits a device.
pub(crate) fn is_limited(device: VkDevice) -> bool {
    devices::find(device).is_some()
}
