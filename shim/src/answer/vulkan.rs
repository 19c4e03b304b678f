//! Finds the slice's entry for a device of Vulkan, and the view of its memory.
//! Touches: the driver's properties of a device; CUDA's driver, if the program has started it.

use core::mem::{MaybeUninit, offset_of};

use gpuslice_config::answer::view::{DriverMemory, MemoryView};
use gpuslice_config::words::units::Bytes;

use crate::answer::device::{self, Device};
use crate::answer::{self, driver_memory};
use crate::log::counters;
use crate::real::copies::CopyId;
use crate::real::vulkan;
use crate::real::vulkan_abi::{
    INTEGRATED_GPU, VkBaseStructure, VkPhysicalDevice, VkPhysicalDeviceIDProperties,
    VkPhysicalDeviceProperties, VkPhysicalDeviceProperties2, structure,
};
use crate::slice::loaded_slice::LoadedSlice;

/// The identity of a device by its driver: its uuid, which is CUDA's, and its type.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    uuid: [u8; 16],
    is_integrated: bool,
}

impl Identity {
    /// A device of which only the uuid is known.
    pub(crate) fn of_card(uuid: [u8; 16]) -> Identity {
        Identity {
            uuid,
            is_integrated: false,
        }
    }
}

/// The identity of a device. None: the driver does not report it.
#[inline(never)]
pub(crate) fn identity(copy: CopyId, physical: VkPhysicalDevice) -> Option<Identity> {
    let Some(ask) = vulkan::properties2(copy) else {
        counters::UUID.warn_text("Vulkan reports no uuid of a GPU, which is not limited");
        return None;
    };
    let mut id = VkPhysicalDeviceIDProperties {
        start: VkBaseStructure {
            sType: structure::PHYSICAL_DEVICE_ID_PROPERTIES,
            pNext: core::ptr::null(),
        },
        deviceUUID: [0; 16],
        driverUUID: [0; 16],
        deviceLUID: [0; 8],
        deviceNodeMask: 0,
        deviceLUIDValid: 0,
    };
    let mut all = MaybeUninit::<VkPhysicalDeviceProperties2>::zeroed();
    let start = VkBaseStructure {
        sType: structure::PHYSICAL_DEVICE_PROPERTIES_2,
        pNext: (&raw mut id).cast(),
    };
    // SAFETY: the struct begins with these fields.
    unsafe { all.as_mut_ptr().cast::<VkBaseStructure>().write(start) };
    // SAFETY: vkGetPhysicalDeviceProperties2's contract: the device is the caller's own, and the
    // chain has room for what the driver writes.
    unsafe { ask(physical, all.as_mut_ptr()) };
    const TYPE: usize = offset_of!(VkPhysicalDeviceProperties2, properties)
        + offset_of!(VkPhysicalDeviceProperties, deviceType);
    let kind = all.as_ptr().wrapping_byte_add(TYPE).cast::<i32>();
    Some(Identity {
        uuid: id.deviceUUID,
        // SAFETY: zeroed before the call; any bytes are an integer.
        is_integrated: unsafe { kind.read() } == INTEGRATED_GPU,
    })
}

/// The slice's entry for a device. None: the slice does not limit it.
#[inline(never)]
pub(crate) fn device(slice: &LoadedSlice, identity: Identity) -> Option<Device<'_>> {
    let place = slice.budget(identity.uuid, None)?;
    let written = slice.numbers(place)?;
    let unified = written.integrated == Some(true) || identity.is_integrated;
    Some(Device {
        written,
        unified: Some(unified),
        listed: slice.listed(identity.uuid, place),
        // The driver holds no limit of memory that a device shares with the host.
        is_held_by_driver: !unified && slice.is_held_by_driver(place),
    })
}

/// The view of a device. `heap` is the driver's size of its largest heap, which includes memory that
/// CUDA's total does not, and `free` what the driver would still grant, where it is known.
#[inline(never)]
pub(crate) fn view(
    slice: &LoadedSlice,
    device: &Device<'_>,
    identity: Identity,
    heap: Bytes,
    free: Option<Bytes>,
) -> Option<MemoryView> {
    let twin = device::cuda_twin(identity.uuid);
    let total = twin.and_then(|(copy, ordinal)| driver_memory::total(copy, ordinal));
    let total = total.map_or(heap, Bytes::new).at_most(heap);
    if device.unified == Some(true) {
        return answer::of_host(slice, device, Some(total.get()));
    }
    let driver = DriverMemory {
        total,
        free: free.unwrap_or(total),
    };
    Some(answer::view_of_device(slice, device, driver))
}
