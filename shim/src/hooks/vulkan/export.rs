//! Memory that is exported by a descriptor.
//! Touches: the real function; the ledger's row of exports.

use core::ffi::c_void;

use crate::account::{sharing, vulkan as account};
use crate::hooks::vulkan::devices;
use crate::real::functions::Call;
use crate::real::vulkan::real;
use crate::real::vulkan_abi::*;

/// `vkGetMemoryFdKHR`.
///
/// # Safety
/// The caller guarantees the vendor function's contract.
#[inline(never)]
pub(crate) unsafe fn descriptor(
    call: Call<real::vkGetMemoryFdKHR>,
    device: VkDevice,
    info: *const VkMemoryGetFdInfoKHR,
    fd: *mut i32,
) -> VkResult {
    let found = devices::find(device);
    let real = found.and_then(|(_, body)| body.functions.descriptor);
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { real.unwrap_or(call.real)(device, info, fd) };
    if code == VK_SUCCESS
        && let Some((place, body)) = found
    {
        // SAFETY: VK_SUCCESS, so the driver has read the struct.
        let memory = unsafe { info.read() }.memory;
        // SAFETY: VK_SUCCESS, so the driver has written the descriptor.
        let descriptor = unsafe { fd.read() };
        const DESCRIPTOR: i32 = 1;
        // SAFETY: a descriptor is no pointer to a handle.
        let key =
            unsafe { sharing::key_of_shareable(DESCRIPTOR, descriptor as usize as *const c_void) };
        for member in 0..body.count {
            if let (Some(found), Some(key)) = (account::find(place.owner(member), memory), key) {
                account::exported(found, key.class());
            }
        }
    }
    code
}
