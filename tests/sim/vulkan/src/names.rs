//! The functions by their names.
//! Touches: nothing.

use crate::device::*;
use crate::instance::*;
use crate::memory::*;
use crate::physical::*;
use crate::{Found, vk_icdGetInstanceProcAddr, vk_icdGetPhysicalDeviceProcAddr};
use ash::vk;
use std::ffi::{CStr, c_char};

/// A function's address, whatever its type.
macro_rules! found {
    ($function:path) => {{
        // SAFETY: a function pointer; whoever calls it casts it back to the type of its name.
        Some(unsafe {
            std::mem::transmute::<*const (), unsafe extern "system" fn()>($function as *const ())
        })
    }};
}

/// The functions that need no instance.
fn global(name: &str) -> Found {
    match name {
        "vkCreateInstance" => found!(vkCreateInstance),
        "vkEnumerateInstanceVersion" => found!(vkEnumerateInstanceVersion),
        "vkEnumerateInstanceExtensionProperties" => found!(vkEnumerateInstanceExtensionProperties),
        "vkGetInstanceProcAddr" | "vk_icdGetInstanceProcAddr" => found!(vk_icdGetInstanceProcAddr),
        "vk_icdGetPhysicalDeviceProcAddr" => found!(vk_icdGetPhysicalDeviceProcAddr),
        _ => None,
    }
}

/// The functions whose first argument is a physical device.
pub(crate) fn of_physical_device(name: &str) -> Found {
    match name.strip_suffix("KHR").unwrap_or(name) {
        "vkGetPhysicalDeviceProperties" => found!(vkGetPhysicalDeviceProperties),
        "vkGetPhysicalDeviceProperties2" => found!(vkGetPhysicalDeviceProperties2),
        "vkGetPhysicalDeviceMemoryProperties" => found!(vkGetPhysicalDeviceMemoryProperties),
        "vkGetPhysicalDeviceMemoryProperties2" => found!(vkGetPhysicalDeviceMemoryProperties2),
        "vkGetPhysicalDeviceFeatures" => found!(vkGetPhysicalDeviceFeatures),
        "vkGetPhysicalDeviceFeatures2" => found!(vkGetPhysicalDeviceFeatures2),
        "vkGetPhysicalDeviceQueueFamilyProperties" => {
            found!(vkGetPhysicalDeviceQueueFamilyProperties)
        }
        "vkGetPhysicalDeviceQueueFamilyProperties2" => {
            found!(vkGetPhysicalDeviceQueueFamilyProperties2)
        }
        "vkGetPhysicalDeviceImageFormatProperties"
        | "vkGetPhysicalDeviceImageFormatProperties2" => {
            found!(no_format)
        }
        "vkEnumerateDeviceExtensionProperties" => found!(vkEnumerateDeviceExtensionProperties),
        "vkEnumerateDeviceLayerProperties" => found!(no_layers),
        "vkCreateDevice" => found!(vkCreateDevice),
        "vkGetPhysicalDeviceSparseImageFormatProperties" => found!(no_sparse_formats),
        "vkGetPhysicalDeviceSparseImageFormatProperties2" => found!(no_sparse_formats2),
        "vkGetPhysicalDeviceFormatProperties"
        | "vkGetPhysicalDeviceFormatProperties2"
        | "vkGetPhysicalDeviceExternalBufferProperties"
        | "vkGetPhysicalDeviceExternalFenceProperties"
        | "vkGetPhysicalDeviceExternalSemaphoreProperties" => found!(nothing),
        _ => None,
    }
}

/// The functions of devices, and of everything below them.
fn of_device(name: &str) -> Found {
    match name {
        "vkGetDeviceProcAddr" => found!(vkGetDeviceProcAddr),
        "vkDestroyDevice" => found!(vkDestroyDevice),
        "vkAllocateMemory" => found!(vkAllocateMemory),
        "vkFreeMemory" => found!(vkFreeMemory),
        "vkMapMemory" => found!(vkMapMemory),
        "vkUnmapMemory" => found!(vkUnmapMemory),
        "vkGetMemoryFdKHR" => found!(vkGetMemoryFdKHR),
        "vkGetDeviceQueue" => found!(vkGetDeviceQueue),
        "vkGetDeviceQueue2" => found!(vkGetDeviceQueue2),
        "vkGetBufferMemoryRequirements2" => found!(vkGetBufferMemoryRequirements2),
        "vkGetPipelineCacheData" => found!(no_data),
        "vkAllocateCommandBuffers" => found!(vkAllocateCommandBuffers),
        "vkAllocateDescriptorSets" => found!(vkAllocateDescriptorSets),
        "vkCreateBuffer" => found!(vkCreateBuffer),
        "vkGetBufferMemoryRequirements" => found!(vkGetBufferMemoryRequirements),
        "vkCreateComputePipelines" | "vkCreateGraphicsPipelines" => found!(create_pipelines),
        "vkGetDeviceGroupPeerMemoryFeatures" => found!(nothing),
        _ if name.starts_with("vkCreate") && is_core(name) => found!(create),
        _ if is_core(name) => found!(nothing),
        _ => None,
    }
}

/// Whether a name is of a function that the driver has and that does nothing here.
fn is_core(name: &str) -> bool {
    const STARTS: [&str; 12] = [
        "vkCreate",
        "vkDestroy",
        "vkCmd",
        "vkBegin",
        "vkEnd",
        "vkReset",
        "vkQueue",
        "vkWait",
        "vkFree",
        "vkUpdate",
        "vkFlush",
        "vkBind",
    ];
    const MORE: [&str; 9] = [
        "vkGetSemaphoreCounterValue",
        "vkGetQueryPoolResults",
        "vkSetEvent",
        "vkSignalSemaphore",
        "vkTrimCommandPool",
        "vkDeviceWaitIdle",
        "vkInvalidateMappedMemoryRanges",
        "vkGetFenceStatus",
        "vkGetEventStatus",
    ];
    let extension = [
        "KHR", "EXT", "NV", "AMD", "INTEL", "NVX", "GOOGLE", "QCOM", "ARM", "HUAWEI",
    ];
    !extension.iter().any(|it| name.ends_with(it))
        && (STARTS.iter().any(|it| name.starts_with(it)) || MORE.contains(&name))
}

pub(crate) fn of_instance(instance: vk::Instance, name: &str) -> Found {
    use vk::Handle;
    if instance.is_null() {
        return global(name);
    }
    match name {
        "vkDestroyInstance" => found!(vkDestroyInstance),
        "vkEnumeratePhysicalDevices" => found!(vkEnumeratePhysicalDevices),
        "vkEnumeratePhysicalDeviceGroups" | "vkEnumeratePhysicalDeviceGroupsKHR" => {
            found!(vkEnumeratePhysicalDeviceGroups)
        }
        _ => global(name)
            .or_else(|| of_physical_device(name))
            .or_else(|| of_device(name)),
    }
}

unsafe extern "C" fn vkGetDeviceProcAddr(_device: vk::Device, name: *const c_char) -> Found {
    // SAFETY: the caller's contract.
    of_device(unsafe { CStr::from_ptr(name) }.to_str().ok()?)
}
