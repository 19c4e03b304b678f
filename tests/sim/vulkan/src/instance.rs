//! Instances and the physical devices that they list.
//! Touches: the machine, which is opened with the first instance.

use crate::{LOADER_MAGIC, enumerate, text};
use ash::vk;
use ash::vk::Handle;
use gpuslice_sim_machine::Machine;
use std::ffi::c_char;
use std::sync::OnceLock;

/// One card, as an instance lists it. The loader writes to its first word.
#[repr(C)]
pub(crate) struct PhysicalDevice {
    magic: u64,
    pub(crate) machine: &'static Machine,
    /// Its memory: the card's, or its first MIG instance's.
    pub(crate) domain: usize,
}

#[repr(C)]
struct Instance {
    magic: u64,
    devices: Vec<Box<PhysicalDevice>>,
}

static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();

fn machine() -> Option<&'static Machine> {
    let machine = MACHINE.get_or_init(|| {
        Machine::from_environment()
            .map_err(|error| eprintln!("gpuslice-sim: {error}"))
            .ok()
    });
    machine.as_ref()
}

/// The card of a handle.
pub(crate) fn card(device: vk::PhysicalDevice) -> &'static PhysicalDevice {
    // SAFETY: handles are addresses of boxes that live as long as their instance.
    unsafe { &*(device.as_raw() as *const PhysicalDevice) }
}

pub(crate) unsafe extern "C" fn vkEnumerateInstanceVersion(version: *mut u32) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe { version.write(vk::API_VERSION_1_3) };
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "C" fn vkEnumerateInstanceExtensionProperties(
    _layer: *const c_char,
    count: *mut u32,
    room: *mut vk::ExtensionProperties,
) -> vk::Result {
    let names = [
        "VK_KHR_get_physical_device_properties2",
        "VK_KHR_external_memory_capabilities",
        "VK_KHR_device_group_creation",
    ];
    let list = names.map(|name| vk::ExtensionProperties {
        extension_name: text(name),
        spec_version: 1,
    });
    // SAFETY: the caller's contract.
    unsafe { enumerate(&list, count, room) }
}

pub(crate) unsafe extern "C" fn vkCreateInstance(
    _info: *const vk::InstanceCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Instance,
) -> vk::Result {
    let Some(machine) = machine() else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let first = |gpu: usize| machine.domains.iter().position(|it| it.gpu == gpu);
    let domains = (0..machine.scenario.gpu.len()).filter_map(first);
    let device = |domain| {
        Box::new(PhysicalDevice {
            magic: LOADER_MAGIC,
            machine,
            domain,
        })
    };
    let instance = Box::new(Instance {
        magic: LOADER_MAGIC,
        devices: domains.map(device).collect(),
    });
    // SAFETY: the caller's contract.
    unsafe { out.write(vk::Instance::from_raw(Box::into_raw(instance) as u64)) };
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "C" fn vkDestroyInstance(
    instance: vk::Instance,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if !instance.is_null() {
        // SAFETY: the handle is the address of a box, which the caller gives up.
        drop(unsafe { Box::from_raw(instance.as_raw() as *mut Instance) });
    }
}

fn devices(instance: vk::Instance) -> Vec<vk::PhysicalDevice> {
    // SAFETY: the handle is the address of a live box.
    let instance = unsafe { &*(instance.as_raw() as *const Instance) };
    let handle =
        |device: &PhysicalDevice| vk::PhysicalDevice::from_raw(std::ptr::from_ref(device) as u64);
    instance.devices.iter().map(|it| handle(it)).collect()
}

pub(crate) unsafe extern "C" fn vkEnumeratePhysicalDevices(
    instance: vk::Instance,
    count: *mut u32,
    room: *mut vk::PhysicalDevice,
) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe { enumerate(&devices(instance), count, room) }
}

/// One group of all cards, as NVIDIA's driver forms of linked cards.
pub(crate) unsafe extern "C" fn vkEnumeratePhysicalDeviceGroups(
    instance: vk::Instance,
    count: *mut u32,
    room: *mut vk::PhysicalDeviceGroupProperties<'_>,
) -> vk::Result {
    let mut group = vk::PhysicalDeviceGroupProperties::default();
    let devices = devices(instance);
    for (to, from) in group.physical_devices.iter_mut().zip(&devices) {
        *to = *from;
    }
    group.physical_device_count = devices.len() as u32;
    // SAFETY: the caller's contract.
    unsafe { enumerate(&[group], count, room) }
}
