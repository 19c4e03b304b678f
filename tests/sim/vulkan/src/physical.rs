//! What a physical device reports: identity, heaps, memory types, queues.
//! Touches: the machine's numbers; structs of the caller.

use crate::instance::{PhysicalDevice, card};
use crate::memory;
use crate::{chain, enumerate, text};
use ash::vk;
use std::ffi::{c_char, c_void};
use vk::MemoryHeapFlags as Heap;
use vk::MemoryPropertyFlags as Type;

/// The size of the window through which the processor sees a card's memory.
const WINDOW: u64 = 246 << 20;
/// The heap of host memory that a driver of a card reports.
const HOST: u64 = 64 << 30;

/// The extensions of a device that matter for memory.
const EXTENSIONS: [&str; 5] = [
    "VK_EXT_memory_budget",
    "VK_KHR_external_memory",
    "VK_KHR_external_memory_fd",
    "VK_KHR_device_group",
    "VK_KHR_16bit_storage",
];

impl PhysicalDevice {
    /// Its uuid: a MIG instance's own.
    fn uuid(&self) -> [u8; 16] {
        let domain = self.machine.domains[self.domain];
        let gpu = self.machine.gpu(self.domain);
        domain
            .mig
            .map_or_else(|| gpu.uuid_bytes(), |mig| gpu.mig[mig].uuid_bytes())
    }

    fn properties(&self) -> vk::PhysicalDeviceProperties {
        let gpu = self.machine.gpu(self.domain);
        let mut limits = vk::PhysicalDeviceLimits {
            max_memory_allocation_count: u32::MAX,
            max_bound_descriptor_sets: 32,
            max_push_constants_size: 256,
            max_storage_buffer_range: u32::MAX,
            max_uniform_buffer_range: 65_536,
            buffer_image_granularity: 1024,
            non_coherent_atom_size: 64,
            min_storage_buffer_offset_alignment: 16,
            min_uniform_buffer_offset_alignment: 64,
            max_per_stage_descriptor_storage_buffers: 1 << 20,
            max_descriptor_set_storage_buffers: 1 << 20,
            max_compute_shared_memory_size: 49_152,
            max_compute_work_group_invocations: 1024,
            max_compute_work_group_count: [u32::MAX, 65_535, 65_535],
            max_compute_work_group_size: [1024, 1024, 64],
            timestamp_period: 1.0,
            ..vk::PhysicalDeviceLimits::default()
        };
        limits.min_memory_map_alignment = 64;
        vk::PhysicalDeviceProperties {
            api_version: vk::API_VERSION_1_3,
            driver_version: 1,
            vendor_id: 0x10DE,
            device_id: gpu.pci_id >> 16,
            device_type: match gpu.integrated {
                true => vk::PhysicalDeviceType::INTEGRATED_GPU,
                false => vk::PhysicalDeviceType::DISCRETE_GPU,
            },
            device_name: text(&gpu.name),
            limits,
            ..vk::PhysicalDeviceProperties::default()
        }
    }

    /// The heaps: the card's memory, the host's, and the window to the card's. A device that shares
    /// the host's memory has one heap, from which all types come.
    fn heaps(&self) -> Vec<(u64, Heap)> {
        if self.machine.gpu(self.domain).integrated {
            return vec![(self.machine.cuda_total(self.domain), Heap::DEVICE_LOCAL)];
        }
        vec![
            (self.machine.nvml_total(self.domain), Heap::DEVICE_LOCAL),
            (HOST, Heap::empty()),
            (WINDOW, Heap::DEVICE_LOCAL),
        ]
    }

    /// The memory types: flags and heap.
    fn types(&self) -> Vec<(Type, u32)> {
        let visible = Type::HOST_VISIBLE | Type::HOST_COHERENT;
        if self.machine.gpu(self.domain).integrated {
            let both = Type::DEVICE_LOCAL | visible;
            return vec![(Type::DEVICE_LOCAL, 0), (both | Type::HOST_CACHED, 0)];
        }
        vec![
            (Type::empty(), 1),
            (Type::DEVICE_LOCAL, 0),
            (visible, 1),
            (visible | Type::HOST_CACHED, 1),
            (Type::DEVICE_LOCAL | visible, 2),
        ]
    }

    /// Whether memory of this type lies on the device. None: there is no such type.
    pub(crate) fn is_local(&self, kind: u32) -> Option<bool> {
        let types = self.types();
        let (_, heap) = types.get(kind as usize)?;
        Some(self.heaps()[*heap as usize].1.contains(Heap::DEVICE_LOCAL))
    }

    /// The heap of a memory type.
    pub(crate) fn heap_of(&self, kind: u32) -> Option<u32> {
        self.types().get(kind as usize).map(|(_, heap)| *heap)
    }

    fn memory_properties(&self) -> vk::PhysicalDeviceMemoryProperties {
        let mut out = vk::PhysicalDeviceMemoryProperties::default();
        for (to, (size, flags)) in out.memory_heaps.iter_mut().zip(self.heaps()) {
            (to.size, to.flags) = (size, flags);
        }
        for (to, (flags, heap)) in out.memory_types.iter_mut().zip(self.types()) {
            (to.property_flags, to.heap_index) = (flags, heap);
        }
        out.memory_heap_count = self.heaps().len() as u32;
        out.memory_type_count = self.types().len() as u32;
        out
    }

    fn budget(&self, out: &mut vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>) {
        let free = self.machine.query(self.domain).free;
        for (heap, (size, flags)) in self.heaps().into_iter().enumerate() {
            let own = memory::own_use(self, heap);
            let room = match flags.contains(Heap::DEVICE_LOCAL) {
                true => free,
                false => size - own,
            };
            out.heap_usage[heap] = own;
            out.heap_budget[heap] = (own + room).min(size);
        }
    }
}

/// Writes a struct of a chain as a whole, as a driver does: programs leave its members uninitialised.
/// The struct still leads to the next one.
macro_rules! fill {
    ($link:expr, $name:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        let link: *mut vk::BaseOutStructure<'_> = $link;
        let values = vk::$name {
            $($field: $value,)*
            p_next: (*link).p_next.cast(),
            ..Default::default()
        };
        std::ptr::write(link.cast(), values);
    }};
}

pub(crate) unsafe extern "C" fn vkGetPhysicalDeviceProperties(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceProperties,
) {
    // SAFETY: the caller's contract.
    unsafe { out.write(card(device).properties()) };
}

pub(crate) unsafe extern "C" fn vkGetPhysicalDeviceProperties2(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceProperties2<'_>,
) {
    let card = card(device);
    // SAFETY: the caller's contract.
    unsafe {
        (*out).properties = card.properties();
        chain((*out).p_next, |link| match link.s_type {
            vk::StructureType::PHYSICAL_DEVICE_ID_PROPERTIES => fill!(
                link,
                PhysicalDeviceIDProperties {
                    device_uuid: card.uuid(),
                    driver_uuid: *b"gpuslice-sim-vk\0",
                    device_node_mask: 1,
                }
            ),
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES => fill!(
                link,
                PhysicalDeviceVulkan11Properties {
                    device_uuid: card.uuid(),
                    subgroup_size: 32,
                    subgroup_supported_stages: vk::ShaderStageFlags::COMPUTE,
                    max_memory_allocation_size: HOST,
                }
            ),
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES => {
                fill!(link, PhysicalDeviceVulkan12Properties {});
            }
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES => {
                fill!(link, PhysicalDeviceVulkan13Properties {});
            }
            vk::StructureType::PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES => fill!(
                link,
                PhysicalDeviceMaintenance3Properties {
                    max_memory_allocation_size: HOST,
                }
            ),
            vk::StructureType::PHYSICAL_DEVICE_SUBGROUP_PROPERTIES => fill!(
                link,
                PhysicalDeviceSubgroupProperties {
                    subgroup_size: 32,
                    supported_stages: vk::ShaderStageFlags::COMPUTE,
                }
            ),
            _ => {}
        });
    }
}

pub(crate) unsafe extern "C" fn vkGetPhysicalDeviceMemoryProperties(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties,
) {
    // SAFETY: the caller's contract.
    unsafe { out.write(card(device).memory_properties()) };
}

pub(crate) unsafe extern "C" fn vkGetPhysicalDeviceMemoryProperties2(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    let card = card(device);
    // SAFETY: the caller's contract.
    unsafe {
        (*out).memory_properties = card.memory_properties();
        chain((*out).p_next, |link| {
            if link.s_type == vk::StructureType::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT {
                card.budget(&mut *std::ptr::from_mut(link).cast());
            }
        });
    }
}

pub(crate) unsafe extern "C" fn vkGetPhysicalDeviceFeatures(
    _device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceFeatures,
) {
    let features = vk::PhysicalDeviceFeatures {
        shader_int16: vk::TRUE,
        shader_int64: vk::TRUE,
        ..vk::PhysicalDeviceFeatures::default()
    };
    // SAFETY: the caller's contract.
    unsafe { out.write(features) };
}

pub(crate) unsafe extern "C" fn vkGetPhysicalDeviceFeatures2(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceFeatures2<'_>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        vkGetPhysicalDeviceFeatures(device, &raw mut (*out).features);
        chain((*out).p_next, |link| match link.s_type {
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_1_FEATURES => fill!(
                link,
                PhysicalDeviceVulkan11Features {
                    storage_buffer16_bit_access: vk::TRUE,
                }
            ),
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES => {
                fill!(link, PhysicalDeviceVulkan12Features {});
            }
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_3_FEATURES => {
                fill!(link, PhysicalDeviceVulkan13Features {});
            }
            _ => {}
        });
    }
}

const QUEUES: vk::QueueFamilyProperties = vk::QueueFamilyProperties {
    queue_flags: vk::QueueFlags::from_raw(0b111),
    queue_count: 16,
    timestamp_valid_bits: 64,
    min_image_transfer_granularity: vk::Extent3D {
        width: 1,
        height: 1,
        depth: 1,
    },
};

pub(crate) unsafe extern "C" fn vkGetPhysicalDeviceQueueFamilyProperties(
    _device: vk::PhysicalDevice,
    count: *mut u32,
    room: *mut vk::QueueFamilyProperties,
) {
    // SAFETY: the caller's contract.
    let _ = unsafe { enumerate(&[QUEUES], count, room) };
}

pub(crate) unsafe extern "C" fn vkGetPhysicalDeviceQueueFamilyProperties2(
    _device: vk::PhysicalDevice,
    count: *mut u32,
    room: *mut vk::QueueFamilyProperties2<'_>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(first) = room.as_mut() {
            first.queue_family_properties = QUEUES;
        }
        count.write(1);
    }
}

pub(crate) unsafe extern "C" fn vkEnumerateDeviceExtensionProperties(
    _device: vk::PhysicalDevice,
    _layer: *const c_char,
    count: *mut u32,
    room: *mut vk::ExtensionProperties,
) -> vk::Result {
    let list = EXTENSIONS.map(|name| vk::ExtensionProperties {
        extension_name: text(name),
        spec_version: 1,
    });
    // SAFETY: the caller's contract.
    unsafe { enumerate(&list, count, room) }
}

/// No image can be made.
pub(crate) unsafe extern "C" fn no_format(
    _device: vk::PhysicalDevice,
    _: *mut c_void,
) -> vk::Result {
    vk::Result::ERROR_FORMAT_NOT_SUPPORTED
}

/// A list with nothing in it: `vkEnumerateDeviceLayerProperties`.
pub(crate) unsafe extern "C" fn no_layers(
    _device: vk::PhysicalDevice,
    count: *mut u32,
    _room: *mut vk::LayerProperties,
) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe { count.write(0) };
    vk::Result::SUCCESS
}

/// A list with nothing in it.
pub(crate) unsafe extern "C" fn no_sparse_formats(
    _device: vk::PhysicalDevice,
    _format: i32,
    _kind: i32,
    _samples: u32,
    _usage: u32,
    _tiling: i32,
    count: *mut u32,
    _room: *mut c_void,
) {
    // SAFETY: the caller's contract.
    unsafe { count.write(0) };
}

/// A list with nothing in it.
pub(crate) unsafe extern "C" fn no_sparse_formats2(
    _device: vk::PhysicalDevice,
    _info: *const c_void,
    count: *mut u32,
    _room: *mut c_void,
) {
    // SAFETY: the caller's contract.
    unsafe { count.write(0) };
}
