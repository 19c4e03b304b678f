//! Devices, their queues, and objects that hold no memory.
//! Touches: structs of the caller.

use crate::instance::{PhysicalDevice, card};
use crate::{LOADER_MAGIC, chain, memory};
use ash::vk;
use ash::vk::Handle;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A device of one card, or of a group of cards.
#[repr(C)]
pub(crate) struct Device {
    magic: u64,
    pub(crate) cards: Vec<*const PhysicalDevice>,
}

/// A queue or a command buffer: an object that the loader dispatches by.
#[repr(C)]
struct Dispatchable {
    magic: u64,
}

impl Device {
    pub(crate) fn handle(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }
}

/// The device of a handle.
pub(crate) fn device(handle: vk::Device) -> &'static Device {
    // SAFETY: the handle is the address of a live box.
    unsafe { &*(handle.as_raw() as *const Device) }
}

pub(crate) unsafe extern "C" fn vkCreateDevice(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Device,
) -> vk::Result {
    let mut cards = vec![std::ptr::from_ref(card(physical))];
    // SAFETY: the caller's contract.
    unsafe {
        chain((*info).p_next.cast_mut(), |link| {
            if link.s_type == vk::StructureType::DEVICE_GROUP_DEVICE_CREATE_INFO {
                let group = std::ptr::from_ref(link).cast::<vk::DeviceGroupDeviceCreateInfo<'_>>();
                let count = (*group).physical_device_count as usize;
                if count > 0 {
                    let members = std::slice::from_raw_parts((*group).p_physical_devices, count);
                    cards = members
                        .iter()
                        .map(|it| std::ptr::from_ref(card(*it)))
                        .collect();
                }
            }
        });
    }
    let device = Box::new(Device {
        magic: LOADER_MAGIC,
        cards,
    });
    // SAFETY: the caller's contract.
    unsafe { out.write(vk::Device::from_raw(Box::into_raw(device) as u64)) };
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "C" fn vkDestroyDevice(
    device: vk::Device,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if !device.is_null() {
        memory::device_gone(device.as_raw());
        // SAFETY: the handle is the address of a box, which the caller gives up.
        drop(unsafe { Box::from_raw(device.as_raw() as *mut Device) });
    }
}

fn dispatchable() -> u64 {
    // Never freed: queues live as long as their device, and the simulator is short-lived.
    let made = Box::leak(Box::new(Dispatchable {
        magic: LOADER_MAGIC,
    }));
    std::ptr::from_mut(made) as u64
}

pub(crate) unsafe extern "C" fn vkGetDeviceQueue(
    _device: vk::Device,
    _family: u32,
    _index: u32,
    out: *mut u64,
) {
    // SAFETY: the caller's contract.
    unsafe { out.write(dispatchable()) };
}

pub(crate) unsafe extern "C" fn vkGetDeviceQueue2(
    _device: vk::Device,
    _info: *const c_void,
    out: *mut u64,
) {
    // SAFETY: the caller's contract.
    unsafe { out.write(dispatchable()) };
}

pub(crate) unsafe extern "C" fn vkAllocateCommandBuffers(
    _device: vk::Device,
    info: *const vk::CommandBufferAllocateInfo<'_>,
    out: *mut u64,
) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe {
        for index in 0..(*info).command_buffer_count as usize {
            out.add(index).write(dispatchable());
        }
    }
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "C" fn vkAllocateDescriptorSets(
    _device: vk::Device,
    info: *const vk::DescriptorSetAllocateInfo<'_>,
    out: *mut u64,
) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe {
        for index in 0..(*info).descriptor_set_count as usize {
            out.add(index).write(fresh());
        }
    }
    vk::Result::SUCCESS
}

/// A number that no other object of this process has.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) * 16
}

/// `vkCreateBuffer`, whose size is remembered.
pub(crate) unsafe extern "C" fn vkCreateBuffer(
    _device: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    _allocator: *const c_void,
    out: *mut u64,
) -> vk::Result {
    let buffer = fresh();
    let mut sizes = SIZES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the caller's contract.
    unsafe {
        sizes.insert(buffer, (*info).size);
        out.write(buffer);
    }
    vk::Result::SUCCESS
}

static SIZES: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

pub(crate) unsafe extern "C" fn vkGetBufferMemoryRequirements(
    _device: vk::Device,
    buffer: u64,
    out: *mut vk::MemoryRequirements,
) {
    let sizes = SIZES.lock().unwrap_or_else(PoisonError::into_inner);
    let size = sizes.get(&buffer).copied().unwrap_or(0);
    let requirements = vk::MemoryRequirements {
        size: size.next_multiple_of(256),
        alignment: 256,
        memory_type_bits: 0b11110,
    };
    // SAFETY: the caller's contract.
    unsafe { out.write(requirements) };
}

pub(crate) unsafe extern "C" fn vkGetBufferMemoryRequirements2(
    device: vk::Device,
    info: *const vk::BufferMemoryRequirementsInfo2<'_>,
    out: *mut vk::MemoryRequirements2<'_>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let buffer = (*info).buffer.as_raw();
        vkGetBufferMemoryRequirements(device, buffer, &raw mut (*out).memory_requirements);
    }
}

/// `vkGetPipelineCacheData`: a cache with nothing in it.
pub(crate) unsafe extern "C" fn no_data(
    _device: vk::Device,
    _cache: u64,
    size: *mut usize,
    _data: *mut c_void,
) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe { size.write(0) };
    vk::Result::SUCCESS
}

/// Every `vkCreate…` whose object is only a number.
pub(crate) unsafe extern "C" fn create(
    _device: vk::Device,
    _info: *const c_void,
    _allocator: *const c_void,
    out: *mut u64,
) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe { out.write(fresh()) };
    vk::Result::SUCCESS
}

/// `vkCreateComputePipelines` and `vkCreateGraphicsPipelines`.
pub(crate) unsafe extern "C" fn create_pipelines(
    _device: vk::Device,
    _cache: u64,
    count: u32,
    _infos: *const c_void,
    _allocator: *const c_void,
    out: *mut u64,
) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe {
        for index in 0..count as usize {
            out.add(index).write(fresh());
        }
    }
    vk::Result::SUCCESS
}

/// Every other function: it does nothing, and succeeds.
pub(crate) unsafe extern "C" fn nothing() -> vk::Result {
    vk::Result::SUCCESS
}
