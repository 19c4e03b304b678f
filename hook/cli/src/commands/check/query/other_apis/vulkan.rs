//! Asks NVIDIA's Vulkan driver for its devices and their memory, through Vulkan's loader or without it.
//! Touches: the loader or the driver.

use crate::commands::check::query::apis::QueryTarget;
use crate::commands::check::query::devices::ListedDevice;
use crate::commands::check::query::dl::{self, Symbol};
use crate::commands::check::query::row::Reading;
use ash::vk::{self, Handle as _};
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use libc::{RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// The number that PCI gives to NVIDIA.
const NVIDIA: u32 = 0x10DE;
/// The id of a driver that does not fill it in.
const UNNAMED: vk::DriverId = vk::DriverId::from_raw(0);
/// The names of the driver, with a display's libraries and without.
const DRIVERS: [&CStr; 2] = [c"libGLX_nvidia.so.0", c"libEGL_nvidia.so.0"];

/// The entry of Vulkan's loader.
pub(crate) fn loader() -> Result<Symbol, String> {
    let library = dl::open(c"libvulkan.so.1", RTLD_NOW | RTLD_LOCAL)?;
    let found = dl::symbol(library, c"vkGetInstanceProcAddr");
    found.ok_or_else(|| "libvulkan.so.1 has no vkGetInstanceProcAddr".to_owned())
}

/// The entry of NVIDIA's driver.
pub(crate) fn driver() -> Result<Symbol, String> {
    let [first, second] = DRIVERS.map(|name| dl::open(name, RTLD_NOW | RTLD_LOCAL));
    let library = first.or_else(|error| second.map_err(|_| error))?;
    let found = dl::symbol(library, c"vk_icdGetInstanceProcAddr");
    found.ok_or_else(|| "the driver's library has no vk_icdGetInstanceProcAddr".to_owned())
}

/// Creates an instance, which lives until this process ends. Returns NVIDIA's devices, and the
/// function that reports their memory.
pub(crate) fn devices(entry: Symbol) -> Result<(Option<Symbol>, Vec<ListedDevice>), String> {
    // SAFETY: both names are those of a function with this prototype.
    let get_instance_proc_addr =
        unsafe { std::mem::transmute::<Symbol, vk::PFN_vkGetInstanceProcAddr>(entry) };
    let entry = ash::StaticFn {
        get_instance_proc_addr,
    };
    // SAFETY: the function stays loaded, because libraries are never closed.
    let entry = unsafe { ash::Entry::from_static_fn(entry) };
    // Version 1.1 has the uuid of a device.
    let program = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
    let create = vk::InstanceCreateInfo::default().application_info(&program);
    // SAFETY: the structs live during the call; there are no callbacks.
    let instance = unsafe { entry.create_instance(&create, None) };
    let instance = instance.map_err(|error| format!("vkCreateInstance: {}", named(error)))?;
    // SAFETY: the instance is alive.
    let listed = unsafe { instance.enumerate_physical_devices() };
    let listed = listed.map_err(|error| format!("vkEnumeratePhysicalDevices: {}", named(error)))?;
    let mut devices = Vec::new();
    for device in listed {
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut ids)
            .push_next(&mut driver);
        // SAFETY: the device is one of the instance's, and the structs live during the call.
        unsafe { instance.get_physical_device_properties2(device, &mut properties) };
        let properties = properties.properties;
        // Mesa has drivers for NVIDIA's cards, too. An old driver does not name itself.
        let is_nvidias = matches!(driver.driver_id, vk::DriverId::NVIDIA_PROPRIETARY | UNNAMED);
        if properties.vendor_id != NVIDIA || !is_nvidias {
            continue;
        }
        let uuid = DeviceUuid {
            kind: DeviceKind::Gpu,
            bytes: ids.device_uuid,
        };
        let name = properties.device_name_as_c_str().unwrap_or_default();
        let handle =
            std::ptr::without_provenance_mut(usize::try_from(device.as_raw()).unwrap_or(0));
        devices.push(ListedDevice {
            handle,
            uuid,
            name: name.to_string_lossy().into_owned(),
        });
    }
    let memory = instance.fp_v1_1().get_physical_device_memory_properties2;
    Ok((NonNull::new(memory as *mut c_void), devices))
}

fn named(error: vk::Result) -> String {
    format!("{error:?}")
}

/// The memory of a device: the sum of its own heaps.
pub(crate) fn memory(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    // SAFETY: `devices` has returned this function.
    let ask = unsafe {
        std::mem::transmute::<Symbol, vk::PFN_vkGetPhysicalDeviceMemoryProperties2>(symbol)
    };
    let mut budgets = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budgets);
    let device = vk::PhysicalDevice::from_raw(target.handle.addr() as u64);
    // SAFETY: `devices` has returned the device, and the structs live during the call.
    unsafe { ask(device, &raw mut memory) };
    let memory = memory.memory_properties;
    let heaps = memory.memory_heaps_as_slice().iter();
    let heaps = heaps.zip(budgets.heap_budget).zip(budgets.heap_usage);
    let (mut total, mut free) = (0u64, 0u64);
    for ((heap, budget), usage) in heaps {
        if heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL) {
            total = total.saturating_add(heap.size);
            free = free.saturating_add(budget.saturating_sub(usage));
        }
    }
    // A driver without VK_EXT_memory_budget leaves all budgets 0.
    let has_budgets = budgets.heap_budget.iter().any(|budget| *budget > 0);
    let free = has_budgets.then_some(free);
    Ok(Reading {
        total: Some(total),
        free,
        used: free.map(|free| total.saturating_sub(free)),
        ..Reading::default()
    })
}
