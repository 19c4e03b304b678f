//! The shim's declarations of Vulkan's types and constants agree with `ash`, which is generated from
//! the registry.
//! Touches: declarations only.

use ash::vk;
use std::mem::{align_of, offset_of, size_of};

#[path = "../../../../../shim/src/real/vulkan_abi.rs"]
#[expect(dead_code, reason = "handles have no value to compare")]
mod abi;

/// Size, alignment, and where each field lies.
macro_rules! layout {
    ($name:ty, $($field:ident)*) => {
        (size_of::<$name>(), align_of::<$name>(), vec![$(offset_of!($name, $field)),*])
    };
}

#[test]
fn vulkans_codes_and_numbers_are_the_registrys() {
    let codes = [
        (abi::VK_SUCCESS, vk::Result::SUCCESS),
        (
            abi::VK_ERROR_OUT_OF_DEVICE_MEMORY,
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        ),
        (
            abi::VK_ERROR_INITIALIZATION_FAILED,
            vk::Result::ERROR_INITIALIZATION_FAILED,
        ),
        (
            abi::VK_ERROR_TOO_MANY_OBJECTS,
            vk::Result::ERROR_TOO_MANY_OBJECTS,
        ),
    ];
    for (ours, theirs) in codes {
        assert_eq!(ours, theirs.as_raw());
    }
    use abi::structure as ours;
    use vk::StructureType as theirs;
    let structures = [
        (
            ours::MEMORY_ALLOCATE_FLAGS_INFO,
            theirs::MEMORY_ALLOCATE_FLAGS_INFO,
        ),
        (
            ours::DEVICE_GROUP_DEVICE_CREATE_INFO,
            theirs::DEVICE_GROUP_DEVICE_CREATE_INFO,
        ),
        (
            ours::PHYSICAL_DEVICE_PROPERTIES_2,
            theirs::PHYSICAL_DEVICE_PROPERTIES_2,
        ),
        (
            ours::PHYSICAL_DEVICE_ID_PROPERTIES,
            theirs::PHYSICAL_DEVICE_ID_PROPERTIES,
        ),
        (
            ours::IMPORT_MEMORY_FD_INFO,
            theirs::IMPORT_MEMORY_FD_INFO_KHR,
        ),
        (
            ours::IMPORT_MEMORY_HOST_POINTER_INFO,
            theirs::IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        ),
        (
            ours::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES,
            theirs::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
        ),
    ];
    for (ours, theirs) in structures {
        assert_eq!(ours, theirs.as_raw());
    }
    assert_eq!(
        abi::HEAP_DEVICE_LOCAL,
        vk::MemoryHeapFlags::DEVICE_LOCAL.as_raw()
    );
    assert_eq!(
        abi::ALLOCATE_DEVICE_MASK,
        vk::MemoryAllocateFlags::DEVICE_MASK.as_raw()
    );
    assert_eq!(
        abi::INTEGRATED_GPU,
        vk::PhysicalDeviceType::INTEGRATED_GPU.as_raw()
    );
    assert_eq!(abi::VK_MAX_MEMORY_TYPES, vk::MAX_MEMORY_TYPES);
    assert_eq!(abi::VK_MAX_MEMORY_HEAPS, vk::MAX_MEMORY_HEAPS);
}

#[test]
fn vulkans_structs_lie_in_memory_as_the_registrys_do() {
    assert_eq!(
        layout!(abi::VkBaseStructure, sType pNext),
        layout!(vk::BaseInStructure<'_>, s_type p_next)
    );
    assert_eq!(
        layout!(abi::VkMemoryType, propertyFlags heapIndex),
        layout!(vk::MemoryType, property_flags heap_index)
    );
    assert_eq!(
        layout!(abi::VkMemoryHeap, size flags),
        layout!(vk::MemoryHeap, size flags)
    );
    assert_eq!(
        layout!(abi::VkPhysicalDeviceMemoryProperties, memoryTypeCount memoryTypes memoryHeapCount memoryHeaps),
        layout!(vk::PhysicalDeviceMemoryProperties, memory_type_count memory_types memory_heap_count memory_heaps)
    );
    assert_eq!(
        layout!(abi::VkPhysicalDeviceMemoryProperties2, start memoryProperties),
        layout!(vk::PhysicalDeviceMemoryProperties2<'_>, s_type memory_properties)
    );
    assert_eq!(
        layout!(abi::VkPhysicalDeviceMemoryBudgetPropertiesEXT, start heapBudget heapUsage),
        layout!(vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>, s_type heap_budget heap_usage)
    );
    assert_eq!(
        layout!(abi::VkMemoryAllocateInfo, start allocationSize memoryTypeIndex),
        layout!(vk::MemoryAllocateInfo<'_>, s_type allocation_size memory_type_index)
    );
    assert_eq!(
        layout!(abi::VkMemoryAllocateFlagsInfo, start flags deviceMask),
        layout!(vk::MemoryAllocateFlagsInfo<'_>, s_type flags device_mask)
    );
    assert_eq!(
        layout!(abi::VkImportMemoryFdInfoKHR, start handleType fd),
        layout!(vk::ImportMemoryFdInfoKHR<'_>, s_type handle_type fd)
    );
    // Its last field is not declared.
    assert_eq!(
        offset_of!(abi::VkImportMemoryHostPointerInfoEXT, handleType),
        offset_of!(vk::ImportMemoryHostPointerInfoEXT<'_>, handle_type)
    );
    assert_eq!(
        layout!(abi::VkMemoryGetFdInfoKHR, start memory handleType),
        layout!(vk::MemoryGetFdInfoKHR<'_>, s_type memory handle_type)
    );
    assert_eq!(
        layout!(abi::VkDeviceGroupDeviceCreateInfo, start physicalDeviceCount pPhysicalDevices),
        layout!(vk::DeviceGroupDeviceCreateInfo<'_>, s_type physical_device_count p_physical_devices)
    );
    assert_eq!(
        layout!(abi::VkPhysicalDeviceIDProperties, start deviceUUID driverUUID deviceLUID deviceNodeMask deviceLUIDValid),
        layout!(vk::PhysicalDeviceIDProperties<'_>, s_type device_uuid driver_uuid device_luid device_node_mask device_luid_valid)
    );
    assert_eq!(
        layout!(abi::VkPhysicalDeviceProperties, versions deviceType deviceName pipelineCacheUUID limits sparseProperties),
        layout!(vk::PhysicalDeviceProperties, api_version device_type device_name pipeline_cache_uuid limits sparse_properties)
    );
    assert_eq!(
        layout!(abi::VkPhysicalDeviceProperties2, start properties),
        layout!(vk::PhysicalDeviceProperties2<'_>, s_type properties)
    );
    assert_eq!(
        size_of::<abi::VkDeviceMemory>(),
        size_of::<vk::DeviceMemory>()
    );
    assert_eq!(size_of::<abi::VkDevice>(), size_of::<vk::Device>());
}
