//! Types and constants of Vulkan, as far as the library uses them. A test compares them with the
//! `ash` crate, which cannot be used here: it needs an allocator.
//! Touches: nothing.
#![allow(non_snake_case, reason = "the vendor's names")]

use core::ffi::c_void;

pub(crate) type VkInstance = *mut c_void;
pub(crate) type VkPhysicalDevice = *mut c_void;
pub(crate) type VkDevice = *mut c_void;
/// Never a pointer to this library: a driver's own number, on 64-bit machines usually an address.
pub(crate) type VkDeviceMemory = u64;
/// `PFN_vkVoidFunction`; null if there is no such function.
pub(crate) type VkFunction = *mut c_void;
pub(crate) type VkResult = i32;

pub(crate) const VK_SUCCESS: VkResult = 0;
pub(crate) const VK_ERROR_OUT_OF_DEVICE_MEMORY: VkResult = -2;
pub(crate) const VK_ERROR_INITIALIZATION_FAILED: VkResult = -3;
pub(crate) const VK_ERROR_TOO_MANY_OBJECTS: VkResult = -10;

/// Values of `VkStructureType`.
pub(crate) mod structure {
    pub(crate) const MEMORY_ALLOCATE_FLAGS_INFO: i32 = 1_000_060_000;
    pub(crate) const DEVICE_GROUP_DEVICE_CREATE_INFO: i32 = 1_000_070_001;
    pub(crate) const PHYSICAL_DEVICE_PROPERTIES_2: i32 = 1_000_059_001;
    pub(crate) const PHYSICAL_DEVICE_ID_PROPERTIES: i32 = 1_000_071_004;
    pub(crate) const IMPORT_MEMORY_FD_INFO: i32 = 1_000_074_000;
    pub(crate) const IMPORT_MEMORY_HOST_POINTER_INFO: i32 = 1_000_178_000;
    pub(crate) const PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES: i32 = 1_000_237_000;
}

/// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`.
pub(crate) const HEAP_DEVICE_LOCAL: u32 = 1;
/// `VK_MEMORY_ALLOCATE_DEVICE_MASK_BIT`.
pub(crate) const ALLOCATE_DEVICE_MASK: u32 = 1;
/// `VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU`.
pub(crate) const INTEGRATED_GPU: i32 = 1;
pub(crate) const VK_MAX_MEMORY_TYPES: usize = 32;
pub(crate) const VK_MAX_MEMORY_HEAPS: usize = 16;

/// The start of every struct that has a type and a chain.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkBaseStructure {
    pub(crate) sType: i32,
    pub(crate) pNext: *const VkBaseStructure,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkMemoryType {
    pub(crate) propertyFlags: u32,
    pub(crate) heapIndex: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkMemoryHeap {
    pub(crate) size: u64,
    pub(crate) flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkPhysicalDeviceMemoryProperties {
    pub(crate) memoryTypeCount: u32,
    pub(crate) memoryTypes: [VkMemoryType; VK_MAX_MEMORY_TYPES],
    pub(crate) memoryHeapCount: u32,
    pub(crate) memoryHeaps: [VkMemoryHeap; VK_MAX_MEMORY_HEAPS],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkPhysicalDeviceMemoryProperties2 {
    pub(crate) start: VkBaseStructure,
    pub(crate) memoryProperties: VkPhysicalDeviceMemoryProperties,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkPhysicalDeviceMemoryBudgetPropertiesEXT {
    pub(crate) start: VkBaseStructure,
    pub(crate) heapBudget: [u64; VK_MAX_MEMORY_HEAPS],
    pub(crate) heapUsage: [u64; VK_MAX_MEMORY_HEAPS],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkMemoryAllocateInfo {
    pub(crate) start: VkBaseStructure,
    pub(crate) allocationSize: u64,
    pub(crate) memoryTypeIndex: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkMemoryAllocateFlagsInfo {
    pub(crate) start: VkBaseStructure,
    pub(crate) flags: u32,
    pub(crate) deviceMask: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkImportMemoryFdInfoKHR {
    pub(crate) start: VkBaseStructure,
    pub(crate) handleType: u32,
    pub(crate) fd: i32,
}

/// `VkImportMemoryHostPointerInfoEXT`, its first fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkImportMemoryHostPointerInfoEXT {
    pub(crate) start: VkBaseStructure,
    pub(crate) handleType: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkMemoryGetFdInfoKHR {
    pub(crate) start: VkBaseStructure,
    pub(crate) memory: VkDeviceMemory,
    pub(crate) handleType: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkDeviceGroupDeviceCreateInfo {
    pub(crate) start: VkBaseStructure,
    pub(crate) physicalDeviceCount: u32,
    pub(crate) pPhysicalDevices: *const VkPhysicalDevice,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkPhysicalDeviceIDProperties {
    pub(crate) start: VkBaseStructure,
    pub(crate) deviceUUID: [u8; 16],
    pub(crate) driverUUID: [u8; 16],
    pub(crate) deviceLUID: [u8; 8],
    pub(crate) deviceNodeMask: u32,
    pub(crate) deviceLUIDValid: u32,
}

/// `VkPhysicalDeviceProperties`. Only its type is read; the rest is room for the driver.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkPhysicalDeviceProperties {
    pub(crate) versions: [u32; 4],
    pub(crate) deviceType: i32,
    pub(crate) deviceName: [u8; 256],
    pub(crate) pipelineCacheUUID: [u8; 16],
    pub(crate) limits: [u64; 63],
    pub(crate) sparseProperties: [u32; 5],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VkPhysicalDeviceProperties2 {
    pub(crate) start: VkBaseStructure,
    pub(crate) properties: VkPhysicalDeviceProperties,
}
